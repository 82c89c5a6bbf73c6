package drainwatch

import (
	"fmt"
	"net/netip"
	"testing"

	"corbel.dev/corbel/kit/sockets"
)

// TestNewConnectionsOfDrained: what was there at first, and what is there for one look alone, does not count; each
// other connection does once.
func TestNewConnectionsOfDrained(t *testing.T) {
	conn := func(port int) sockets.Conn {
		return sockets.Conn{Local: netip.MustParseAddrPort("10.0.0.1:80"),
			Remote: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.2:%d", port))}
	}
	d := &drained{}
	for i, look := range []struct {
		ports []int
		want  int
	}{{[]int{1, 2}, 0}, {[]int{1, 2, 3}, 0}, {[]int{1, 4}, 0}, {[]int{1, 4, 5}, 1}, {[]int{4, 5}, 1}, {[]int{4, 5}, 0},
		{nil, 0}, {[]int{1}, 0}, {[]int{1}, 1}} {
		var list []sockets.Conn
		for _, p := range look.ports {
			list = append(list, conn(p))
		}
		if got := d.newer(list); got != look.want {
			t.Errorf("look %d: %d new ones, want %d", i, got, look.want)
		}
	}
}
