module strandline.example/interop

go 1.23

require google.golang.org/grpc v1.85.0
