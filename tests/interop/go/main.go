// Serves grpc-go's interoperability service on loopback and prints its port: grpc-go's own server listens everywhere.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

func main() {
	certificate := flag.String("certificate", "", "certificate chain, for TLS")
	key := flag.String("key", "", "key of the certificate")
	flag.Parse()
	var options []grpc.ServerOption
	if *certificate != "" {
		secret, err := credentials.NewServerTLSFromFile(*certificate, *key)
		if err != nil {
			log.Fatal(err)
		}
		options = append(options, grpc.Creds(secret))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(options...)
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(server.Serve(listener))
}
