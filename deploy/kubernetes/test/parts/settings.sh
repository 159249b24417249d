# Directories and addresses; every value can be set in the environment.

KUBERNETES_VERSION=${KUBERNETES_VERSION:-1.33.13} # one whose modules are all on the module proxy
COREDNS_VERSION=${COREDNS_VERSION:-1.14.7}
NODES=${NODES:-3}
CACHE=${STRANDLINE_KUBERNETES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/strandline/kubernetes-$KUBERNETES_VERSION}
STATE=${STRANDLINE_KUBERNETES_STATE:-/tmp/strandline-kubernetes} # short: sockets lie below it
CNI_PLUGINS=${CNI_PLUGINS:-/usr/lib/cni}

# Node i has the address 10.250.0.(i+1) on a bridge without ports, and 10.244.i.0/24 for its pods on its own bridge.
HOST_BRIDGE=slhosts
POD_BRIDGE=slpods
CONTROL_ADDRESS=10.250.0.1
POD_NETWORK=10.244.0.0/16
SERVICE_NETWORK=10.96.0.0/16
API_SERVICE=10.96.0.1
ETCD=127.0.0.1:23790
ETCD_PEER=127.0.0.1:23800
CGROUP=strandline-node

export PATH=$CACHE/bin:$PATH${STRANDLINE_KUBERNETES_SYSTEM_PATH-:/usr/sbin:/sbin}
export KUBECONFIG=$STATE/admin.conf

nodes() { seq 0 $((NODES - 1)); }
node_address() { echo "10.250.0.$(($1 + 1))"; }
runtime_socket() { echo "$STATE/run/containerd$1.sock"; }

fail() {
  echo "cluster: $*" >&2
  exit 1
}
