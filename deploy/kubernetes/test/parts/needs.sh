# Requirements of this machine, checked before anything is built: programs, other files, a docker that answers.

NEEDED_PROGRAMS="containerd:containerd ctr:containerd runc:runc etcd:etcd-server conntrack:conntrack ethtool:ethtool
  socat:socat ipset:ipset iptables:iptables iptables-save:iptables ip:iproute2 sysctl:procps openssl:openssl curl:curl
  docker:docker.io python3:python3"
NEEDED_PLUGINS="bridge host-local loopback portmap" # those of files/pods.conflist, and what containerd always wants

check() { # says what is missing and what to install; nothing if nothing is
  local packages="" absent="" pair plugin
  for pair in $NEEDED_PROGRAMS; do
    command -v "${pair%%:*}" >/dev/null || { absent+=", ${pair%%:*}"; packages+=" ${pair#*:}"; }
  done
  for plugin in $NEEDED_PLUGINS; do
    [ -x "$CNI_PLUGINS/$plugin" ] || { absent+=", $CNI_PLUGINS/$plugin"; packages+=" containernetworking-plugins"; }
  done
  if ! programs_are_built && ! command -v go >/dev/null; then absent+=", go"; packages+=" golang-go"; fi
  if [ -n "$absent" ]; then
    packages=$(tr ' ' '\n' <<<"$packages" | sort -u | tr '\n' ' ' | sed 's/^ *//; s/ *$//')
    fail "not installed: ${absent#, }; on Debian: apt-get install $packages"
  fi
  docker_answers || fail "docker does not answer: ${DOCKER_SAID:-no reason given}; start its daemon"
}

programs_are_built() {
  local program
  for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy pause coredns; do
    [ -x "$CACHE/bin/$program" ] || return 1
  done
  command -v kubectl >/dev/null
}

docker_answers() {
  DOCKER_SAID=$(timeout 20 docker version --format '{{.Server.Version}}' 2>&1 | tail -1) || return 1
}
