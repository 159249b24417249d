# Volumes are directories of this machine, each bound to a node like a local disk; a released one is not used again.

make_volumes() { # COUNT [MIB]
  local i mib=${2:-1024} name
  for i in $(seq 0 $((${1:?how many volumes} - 1))); do
    name=$(basename "$(mktemp --directory "$STATE/volumes/XXXXXXXX")")
    chmod 0755 "$STATE/volumes/$name"
    echo ---
    fill volume.yaml NAME="local-${name,,}" DIRECTORY="$STATE/volumes/$name" MIB="$mib" NODE="node$((i % NODES))"
  done | kubectl create -f - >/dev/null
  make_shared_volume
  echo "made $1 volumes of $mib MiB"
}

make_shared_volume() { # one that every node sees, for what the services export
  [ ! -d "$STATE/volumes/shared" ] || return 0
  mkdir "$STATE/volumes/shared"
  chmod 0777 "$STATE/volumes/shared" # owners do not apply to a directory of the host
  fill shared-volume.yaml DIRECTORY="$STATE/volumes/shared" | kubectl apply -f - >/dev/null
}
