package hothttp

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"corbel.dev/corbel/kit/polltest"
)

// TestClientsThatPipelineAndLeaveAreNoticed parks requests of 500 clients that send more behind them, up to what the
// connection's own buffer cannot take, and leave. Bytes that nobody has read yet must not hide that: each call's
// onGone runs, and no connection stays.
func TestClientsThatPipelineAndLeaveAreNoticed(t *testing.T) {
	const clients = 500
	h, addr := start(t)
	var wg sync.WaitGroup
	for i := range clients {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer nc.Close()
			first := fmt.Sprintf("GET /park/%d HTTP/1.1\r\nHost: x\r\n\r\n", i)
			more := strings.Repeat("GET /hot HTTP/1.1\r\nHost: x\r\n\r\n", 1+i%2*1500) // of every other client more than fits
			if _, err := nc.Write([]byte(first + more)); err != nil {
				t.Error(err)
			}
			<-h.event // it, or another one, is parked
		})
	}
	wg.Wait()
	polltest.Until(t, func() bool {
		h.mu.Lock()
		gone := len(h.gone)
		h.mu.Unlock()
		h.server.mu.Lock()
		open := len(h.server.conns)
		h.server.mu.Unlock()
		return gone == clients && open == 0
	}, "the clients that left to be noticed")
}

// TestPipelinedBehindParkedIsServedWhenItIsAnswered answers a parked call that more waits behind.
func TestPipelinedBehindParkedIsServedWhenItIsAnswered(t *testing.T) {
	h, addr := start(t)
	nc, br := dial(t, addr)
	for i := range 20 {
		path := fmt.Sprintf("/park/%d", i)
		send(t, nc, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\nGET /hot?"+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		<-h.event
		h.wake(path, []byte("woken"))
		expect(t, read(t, br), "woken")
		expect(t, read(t, br), "1 "+path+"  ")
	}
}

// TestRepeatedTokenIsNotJudgedHere declines a second token, also behind an empty one: net/http's first one counts.
func TestRepeatedTokenIsNotJudgedHere(t *testing.T) {
	for _, name := range []string{"X-Consul-Token", "X-Vault-Token", "X-Nomad-Token"} {
		for _, values := range [][2]string{{"", "full"}, {" ", "full"}, {"full", ""}, {"a", "b"}} {
			raw := fmt.Sprintf("GET /a HTTP/1.1\r\nHost: x\r\n%s:%s\r\n%s: %s\r\n\r\n", name, values[0], name, values[1])
			var r Request
			if _, v := parse([]byte(raw), &r); v != unusual {
				t.Errorf("%q was taken: token %q, %q", raw, r.Token, r.VaultToken)
			}
		}
	}
}
