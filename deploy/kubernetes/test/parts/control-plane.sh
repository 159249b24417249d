# etcd, the API server, the controller manager, the scheduler and the proxy: one process each, on this machine's addresses.

start_network() {
  # A bridge without ports: kubelets accept no loopback address for a node, and no other machine has this one.
  if [ ! -e "/sys/class/net/$HOST_BRIDGE" ]; then
    ip link add "$HOST_BRIDGE" type bridge
    ip addr add "$CONTROL_ADDRESS/24" dev "$HOST_BRIDGE"
    ip link set "$HOST_BRIDGE" up
  fi
  sysctl -qw net.ipv4.ip_forward=1
  sysctl -qw net.bridge.bridge-nf-call-iptables=1 2>/dev/null || true
  # dockerd sets the policy of forwarding to DROP, and pods need forwarding.
  local way
  for way in -s -d; do
    iptables -w -C FORWARD "$way" "$POD_NETWORK" -j ACCEPT 2>/dev/null \
      || iptables -w -A FORWARD "$way" "$POD_NETWORK" -j ACCEPT
  done
}

start_control_plane() {
  local pki=$STATE/pki
  start etcd etcd --data-dir "$STATE/etcd" --listen-client-urls "http://$ETCD" --advertise-client-urls "http://$ETCD" \
    --listen-peer-urls "http://$ETCD_PEER" --initial-advertise-peer-urls "http://$ETCD_PEER" \
    --initial-cluster "default=http://$ETCD_PEER"
  within 20 "etcd answers" curl -sf "http://$ETCD/health"
  start kube-apiserver kube-apiserver --etcd-servers "http://$ETCD" --bind-address "$CONTROL_ADDRESS" \
    --advertise-address "$CONTROL_ADDRESS" --secure-port 6443 --service-cluster-ip-range "$SERVICE_NETWORK" \
    --authorization-mode Node,RBAC --allow-privileged \
    --enable-admission-plugins NodeRestriction \
    --client-ca-file "$pki/ca.crt" --tls-cert-file "$pki/api.crt" --tls-private-key-file "$pki/api.key" \
    --kubelet-client-certificate "$pki/api-to-kubelet.crt" --kubelet-client-key "$pki/api-to-kubelet.key" \
    --kubelet-certificate-authority "$pki/ca.crt" --kubelet-preferred-address-types InternalIP \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$pki/accounts.pub" \
    --service-account-signing-key-file "$pki/accounts.key"
  within 90 "the API server is ready" kubectl get --raw /readyz
  # A node is not ready after 20 s of silence; the default of 50 s would only make the tests longer.
  start kube-controller-manager kube-controller-manager --kubeconfig "$STATE/controllers.conf" --leader-elect=false \
    --bind-address 127.0.0.1 --use-service-account-credentials --node-monitor-grace-period 20s \
    --service-account-private-key-file "$pki/accounts.key" --root-ca-file "$pki/ca.crt"
  start kube-scheduler kube-scheduler --kubeconfig "$STATE/scheduler.conf" --leader-elect=false --bind-address 127.0.0.1
  start kube-proxy kube-proxy --kubeconfig "$STATE/proxy.conf" --hostname-override node0 --proxy-mode iptables \
    --cluster-cidr "$POD_NETWORK" --healthz-bind-address 127.0.0.1:10256 --metrics-bind-address 127.0.0.1:10249 \
    --conntrack-max-per-core 0 --conntrack-min 0
}
