package sensuapi

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/monitor/users"
)

// rawAgent connects, sends a keepalive, and leaves nothing but a descriptor on this side.
func rawAgent(t testing.TB, url, name string) (fd int) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: "+
		"13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+
		"Accept: application/octet-stream\r\nSensu-AgentName: %s\r\nSensu-Subscriptions: linux,"+
		"entity:%s\r\nAuthorization: Basic %s\r\n\r\n",
		name, name, base64.StdEncoding.EncodeToString([]byte("agent:"+users.AgentPassword)))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(err, r)
	}
	body := append([]byte("keepalive\n"), marshal(t, keepalive(t, name, 1))...)
	frame := append(binary.BigEndian.AppendUint16([]byte{0x82, 0x80 | 126}, uint16(len(body))), 0, 0, 0, 0)
	if _, err := c.Write(append(frame, body...)); err != nil {
		t.Fatal(err)
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// BenchmarkSessionBytes holds sessions at rest, and tells what is alive of each in the server: the session, its
// entity's configuration and state, its keepalive, on a server of its own; and how many goroutines.
func BenchmarkSessionBytes(b *testing.B) {
	const sessions = 500
	back := newBackend(b)
	alive := func() (bytes uint64, goroutines int) {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse, runtime.NumGoroutine()
	}
	was, before := alive()
	n := 0
	for b.Loop() {
		for range sessions {
			fd := rawAgent(b, back.url, fmt.Sprintf("bench-%06d", n))
			defer unix.Close(fd)
			n++
			for len(back.published) > 0 {
				<-back.published
			}
		}
	}
	polltest.Until(b, func() bool {
		for len(back.published) > 0 {
			<-back.published
		}
		return len(back.ingest.List("default", "")) == n
	}, "all keepalives")
	is, after := alive()
	b.ReportMetric(float64(int64(is)-int64(was))/float64(n), "bytes/session")
	b.ReportMetric(float64(after-before)/float64(n), "goroutines/session")
}
