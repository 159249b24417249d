# Undoes `up` in any state: half started, half stopped, or with faults of a test still active.

down() {
  local i program
  for i in $(seq 0 15); do stop "kubelet$i" 5; done
  for program in kube-proxy kube-scheduler kube-controller-manager kube-apiserver etcd; do stop "$program" 3; done
  for i in $(seq 0 15); do
    [ -S "$(runtime_socket "$i")" ] || continue
    remove_containers "$(runtime_socket "$i")"
    stop "containerd$i" 5
  done
  unmount_everything
  remove_rules
  remove_links
  remove_cgroups
  rm -rf "$STATE"
  echo "cluster down"
}

remove_containers() { # SOCKET
  local ctr=(ctr --address "$1" --namespace k8s.io) id
  for id in $("${ctr[@]}" tasks list --quiet 2>/dev/null); do
    "${ctr[@]}" tasks kill --all --signal KILL "$id" 2>/dev/null || true
  done
  for id in $("${ctr[@]}" containers list --quiet 2>/dev/null); do
    "${ctr[@]}" tasks delete --force "$id" >/dev/null 2>&1 || true
    "${ctr[@]}" containers delete "$id" 2>/dev/null || true
  done
}

unmount_everything() { # below our directory, the deepest first; and the network namespaces of our pods
  local mounted
  awk -v below="$STATE/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort --reverse \
    | while read -r mounted; do umount --lazy "$mounted" || true; done
  for mounted in /var/run/netns/cni-*; do
    [ -e "$mounted" ] || continue
    if [[ $(ip -n "$(basename "$mounted")" -4 addr show 2>/dev/null) = *"inet 10.244."* ]]; then
      umount "$mounted" 2>/dev/null || true
      rm -f "$mounted"
    fi
  done
}

remove_rules() { # those of forwarding that `up` made, and the chains of kubelet, kube-proxy and the network plugins
  local way tables table rule chain chains
  for way in -s -d; do
    while iptables -w -D FORWARD "$way" "$POD_NETWORK" -j ACCEPT 2>/dev/null; do :; done
  done
  for tables in iptables ip6tables; do
    for table in nat filter mangle; do
      # First the rules of other chains that jump into these; eval, because a rule's comment is one word with spaces.
      rules_of "$tables" "$table" '^-A .*(KUBE-|CNI-|strandline-test)' | { grep -vE '^-A (KUBE|CNI)-' || true; } \
        | sed 's/^-A/-D/' | while read -r rule; do eval "$tables -w -t $table $rule" || true; done
      chains=$(rules_of "$tables" "$table" '^:(KUBE|CNI)-' | cut -d' ' -f1 | cut -c2-)
      for chain in $chains; do "$tables" -w -t "$table" -F "$chain"; done
      for chain in $chains; do "$tables" -w -t "$table" -X "$chain" || true; done
    done
  done
}

rules_of() { # IPTABLES TABLE PATTERN: lines of a table; none is no failure
  "$1-save" -t "$2" 2>/dev/null | grep -E "$3" || true
}

remove_links() {
  local link
  for link in /sys/class/net/"$POD_BRIDGE"[0-9]* /sys/class/net/"$HOST_BRIDGE"; do
    [ -e "$link" ] && ip link delete "$(basename "$link")"
  done
  return 0
}

remove_cgroups() {
  local round
  for round in 1 2 3; do
    find /sys/fs/cgroup -mindepth 2 -depth -type d -path "*/$CGROUP[0-9]*" -exec rmdir {} + 2>/dev/null && return 0
    sleep 0.3
  done
  return 0
}
