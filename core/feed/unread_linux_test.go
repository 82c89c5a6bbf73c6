package feed

import (
	"net"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// A server whose bytes wait to be read is not silent: this process is slow.
func TestBytesThatWaitAreNoSilence(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	c := &Client{cfg: ClientConfig{Silence: time.Second, AnswerTimeout: time.Hour, LagLimit: time.Hour}}
	now := time.Now()
	cc := &clientConn{conn: ours, heard: now.Add(-time.Minute), began: now}
	if got := c.judgeLocked(cc, now); got != "silent" {
		t.Fatalf("a connection on which nothing came: %q, want silent", got)
	}
	if _, err := theirs.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { return unread(ours) }, "the byte arrives")
	if got := c.judgeLocked(cc, now); got != "" || !cc.heard.Equal(now) {
		t.Fatalf("a connection with bytes to be read: %q, heard %s ago", got, now.Sub(cc.heard))
	}
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	if unread(one) {
		t.Error("a pipe in memory has bytes to be read")
	}
}
