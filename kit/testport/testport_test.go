package testport

import (
	"net"
	"sync"
	"testing"
)

// TestFree: no port comes twice, each can be bound, and none is of the kernel's range.
func TestFree(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ports, err := Free(40)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range ports {
				if seen[p] {
					t.Errorf("port %d came twice", p)
				}
				seen[p] = true
				if p < lowest || p >= rangeEnd() {
					t.Errorf("port %d is of the kernel's range", p)
				}
				l, err := net.Listen("tcp", address(p))
				if err != nil {
					t.Error(err)
					continue
				}
				_ = l.Close()
			}
		})
	}
	wg.Wait()
}
