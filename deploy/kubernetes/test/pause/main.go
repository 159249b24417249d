// Command pause is the first process of a pod: it holds the pod's namespaces and reaps what is orphaned there.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
	}
}

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)
	for received := range signals {
		if received != syscall.SIGCHLD {
			os.Exit(0)
		}
		reap()
	}
}
