# Images come from docker, or are made of one static program; none is pulled.

load_images() { # IMAGE...: each into every node, unless the node has this very image already
  local image i identity note
  for image in "$@"; do
    identity=$(docker image inspect --format '{{.Id}}' "$image")
    for i in $(nodes); do
      note=$STATE/run/image$i-${image//[\/:]/-}
      [ "$(cat "$note" 2>/dev/null)" != "$identity" ] || continue
      docker save "$image" | ctr --address "$(runtime_socket "$i")" --namespace k8s.io images import - >/dev/null
      echo "$identity" >"$note"
    done
    echo "loaded $image into $NODES nodes"
  done
}

image_of_program() { # NODE IMAGE PROGRAM: an image that holds this one file
  python3 "$here/files/image_of_program.py" "$2" "$3" \
    | ctr --address "$(runtime_socket "$1")" --namespace k8s.io images import - >/dev/null
}
