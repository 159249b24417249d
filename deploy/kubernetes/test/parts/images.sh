# Images come from docker, or from one static program; nothing is pulled.

load_images() { # IMAGE...
  local image i
  for image in "$@"; do
    for i in $(nodes); do
      docker save "$image" | ctr --address "$(runtime_socket "$i")" --namespace k8s.io images import - >/dev/null
    done
    echo "loaded $image into $NODES nodes"
  done
}

image_of_program() { # NODE IMAGE PROGRAM: an image that holds this one file
  python3 "$here/files/image_of_program.py" "$2" "$3" \
    | ctr --address "$(runtime_socket "$1")" --namespace k8s.io images import - >/dev/null
}
