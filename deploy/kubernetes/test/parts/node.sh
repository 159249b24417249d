# A node: its own containerd, kubelet, bridge for pods and cgroup, so that nodes are independent of each other.

start_node() { # INDEX
  local i=$1 address socket
  address=$(node_address "$i")
  socket=$(runtime_socket "$i")
  ip addr replace "$address/24" dev "$HOST_BRIDGE"
  make_cgroups "$CGROUP$i"
  identify "kubelet$i" "system:node:node$i" system:nodes "IP:$address,DNS:node$i"
  mkdir -p "$STATE/etc/cni$i"
  : >"$STATE/etc/resolv.conf" # empty: pods resolve names of the cluster, and no others
  fill containerd.toml NODE="$i" STATE="$STATE" SOCKET="$socket" CNI="$CNI_PLUGINS" >"$STATE/etc/containerd$i.toml"
  fill pods.conflist NODE="$i" STATE="$STATE" BRIDGE="$POD_BRIDGE$i" >"$STATE/etc/cni$i/pods.conflist"
  fill kubelet.yaml NODE="$i" STATE="$STATE" SOCKET="$socket" ADDRESS="$address" CGROUP="$CGROUP$i" \
    >"$STATE/etc/kubelet$i.yaml"

  start "containerd$i" containerd --config "$STATE/etc/containerd$i.toml"
  within 30 "containerd of node $i answers" ctr --address "$socket" version
  image_of_program "$i" strandline.test/pause:1 "$CACHE/bin/pause"
  image_of_program "$i" strandline.test/coredns:1 "$CACHE/bin/coredns"
  start_kubelet "$i"
}

start_kubelet() { # INDEX
  start "kubelet$1" kubelet --config "$STATE/etc/kubelet$1.yaml" --kubeconfig "$STATE/kubelet$1.conf" \
    --hostname-override "node$1" --node-ip "$(node_address "$1")" --root-dir "$STATE/kubelet$1"
}

make_cgroups() { # NAME: cgroup v1 wants the kubelet's root in every hierarchy, and cpusets that are not empty
  local hierarchy
  for hierarchy in /sys/fs/cgroup/*/; do
    [ -e "$hierarchy/cgroup.procs" ] || continue
    mkdir -p "$hierarchy/$1"
    [ -e "$hierarchy/cpuset.cpus" ] || continue
    cat "$hierarchy/cpuset.cpus" >"$hierarchy/$1/cpuset.cpus"
    cat "$hierarchy/cpuset.mems" >"$hierarchy/$1/cpuset.mems"
  done
}

nodes_ready() {
  [ "$(kubectl get nodes --no-headers 2>/dev/null | grep -cw Ready)" -ge "$NODES" ]
}

label_zones() {
  local i
  for i in $(nodes); do kubectl label node "node$i" "topology.kubernetes.io/zone=zone-$i" --overwrite >/dev/null; done
}
