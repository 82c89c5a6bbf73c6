package compat

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are shared out as kit/testport does it, which this module cannot import: the
// libraries of the client under test and of the product do not go together. They lie
// below the kernel's own range, so that no outgoing connection takes one while its
// server is down; who listens on a block's first port has the block.
const (
	portsFrom  = 10000
	portsUpTo  = 32768
	portsBlock = 100
)

var ports struct {
	mu    sync.Mutex
	guard []net.Listener // kept until the process ends
	left  []int
}

// freePorts gives ports that nobody takes between two starts of a server.
func freePorts(n int) ([]int, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	var got []int
	for tries := 0; len(got) < n && tries < 1000; {
		if len(ports.left) == 0 {
			tries++
			first := portsFrom + portsBlock*rand.N((portsUpTo-portsFrom)/portsBlock)
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first))
			if err != nil {
				continue
			}
			ports.guard = append(ports.guard, l)
			for port := first + 1; port < first+portsBlock; port++ {
				ports.left = append(ports.left, port)
			}
		}
		port := ports.left[0]
		ports.left = ports.left[1:]
		if isFree(port) {
			got = append(got, port)
		}
	}
	if len(got) < n {
		return nil, errors.New("too few ports are free")
	}
	return got, nil
}

func isFree(port int) bool {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	t, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	defer func() { _ = t.Close() }()
	u, err := net.ListenPacket("udp", address)
	return err == nil && u.Close() == nil
}
