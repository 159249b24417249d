# One authority, one certificate per program, and the kubeconfig that goes with it.

make_certificates() {
  local pki=$STATE/pki
  if [ ! -f "$pki/ca.crt" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=strandline-test \
      -keyout "$pki/ca.key" -out "$pki/ca.crt" 2>/dev/null
    # The key that signs service account tokens.
    openssl genrsa -out "$pki/accounts.key" 2048 2>/dev/null
    openssl rsa -in "$pki/accounts.key" -pubout -out "$pki/accounts.pub" 2>/dev/null
  fi
  certify api kube-apiserver kubernetes "IP:$CONTROL_ADDRESS,IP:$API_SERVICE,DNS:kubernetes.default.svc"
  certify api-to-kubelet api-to-kubelet system:masters
  identify admin admin system:masters
  identify controllers system:kube-controller-manager system:kube-controller-manager
  identify scheduler system:kube-scheduler system:kube-scheduler
  identify proxy system:kube-proxy system:node-proxier
}

certify() { # NAME COMMON_NAME GROUP [ALTERNATIVE_NAMES]
  local file=$STATE/pki/$1
  [ ! -f "$file.crt" ] || return 0
  {
    echo "keyUsage = digitalSignature, keyEncipherment"
    echo "extendedKeyUsage = serverAuth, clientAuth"
    [ -z "${4:-}" ] || echo "subjectAltName = $4"
  } >"$file.extensions"
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/O=$3/CN=$2" \
    -keyout "$file.key" -out "$file.request" 2>/dev/null
  openssl x509 -req -in "$file.request" -CA "$STATE/pki/ca.crt" -CAkey "$STATE/pki/ca.key" -CAcreateserial -days 30 \
    -extfile "$file.extensions" -out "$file.crt" 2>/dev/null
}

identify() { # NAME COMMON_NAME GROUP [ALTERNATIVE_NAMES]: a certificate and a kubeconfig that uses it
  certify "$@"
  fill kubeconfig.yaml NAME="$1" STATE="$STATE" SERVER="https://$CONTROL_ADDRESS:6443" >"$STATE/$1.conf"
}
