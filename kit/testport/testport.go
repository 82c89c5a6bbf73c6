// Package testport gives ports to server processes that tests start, kill and start again.
//
// A port that the kernel chose and that was closed again may be taken before the server
// binds it, or while it is down: by another test, or by any outgoing connection, as those
// take theirs from the same range. The ports here lie below that range. Test processes
// that run side by side share them out by blocks: who listens on a block's first port
// has it until the process ends. A port is given out once in a process.
//
// Free is safe for concurrent use.
package testport

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
)

const (
	lowest     = 10000
	blockPorts = 100
	// kernelLow is where the kernel's own range begins when nothing says otherwise (Linux).
	kernelLow = 32768
)

var (
	mu    sync.Mutex // guards what follows
	left  []int      // of the newest block, not given out yet
	guard []net.Listener
)

// errNone says that all blocks are taken, or what they hold is in use.
var errNone = errors.New("testport: no free ports")

// Free returns n ports that are free for TCP and UDP on 127.0.0.1.
func Free(n int) ([]int, error) {
	mu.Lock()
	defer mu.Unlock()
	var ports []int
	for len(ports) < n {
		if len(left) == 0 {
			if err := takeBlockLocked(); err != nil {
				return nil, err
			}
		}
		port := left[0]
		left = left[1:]
		if free(port) {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

// takeBlockLocked finds a block that no other process has.
func takeBlockLocked() error {
	blocks := (rangeEnd() - lowest) / blockPorts
	for _, i := range rand.Perm(max(blocks, 0)) {
		first := lowest + i*blockPorts
		l, err := net.Listen("tcp", address(first))
		if err != nil {
			continue
		}
		guard = append(guard, l) // until the process ends
		for port := first + 1; port < first+blockPorts; port++ {
			left = append(left, port)
		}
		return nil
	}
	return errNone
}

// rangeEnd is where the kernel's own range begins.
func rangeEnd() int {
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return kernelLow
	}
	fields := strings.Fields(string(data))
	if len(fields) != 2 {
		return kernelLow
	}
	low, err := strconv.Atoi(fields[0])
	if err != nil || low < lowest+blockPorts { // everything is the kernel's: then luck has to do
		return kernelLow
	}
	return low
}

func free(port int) bool {
	t, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	defer func() { _ = t.Close() }()
	u, err := net.ListenPacket("udp", address(port))
	if err != nil {
		return false
	}
	return u.Close() == nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
