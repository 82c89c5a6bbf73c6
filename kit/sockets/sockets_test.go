package sockets

import (
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
)

func TestBusy(t *testing.T) {
	const quiet = 2 * time.Second
	for _, test := range []struct {
		name           string
		sent, received time.Duration
		unanswered     bool
		busy           bool
	}{
		{"asked, not answered", time.Minute, 30 * time.Second, false, true},
		{"answered long ago", 30 * time.Second, time.Minute, false, false},
		{"answered just now", time.Second, 3 * time.Second, false, true},
		{"nothing ever", time.Minute, time.Minute, false, false},
		{"asked as it began, not answered", time.Minute, time.Minute, true, true},
	} {
		if got := (Conn{Sent: test.sent, Received: test.received,
			Unanswered: test.unanswered}).Busy(quiet); got != test.busy {
			t.Errorf("%s: busy = %t", test.name, got)
		}
	}
}

// TestAskedAtOnce: a question that comes with the connection, within one tick of the kernel's clock, is seen too.
func TestAskedAtOnce(t *testing.T) {
	if runtime.GOOS != "linux" {
		loud.Skip(t, "the kernel's list is read on Linux alone")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	remotes := map[string]bool{}
	for range 200 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		remotes[c.LocalAddr().String()] = true
	}
	polltest.Until(t, func() bool {
		list, err := Established(port)
		busy := 0
		for _, c := range list {
			if remotes[c.Remote.String()] && c.Busy(0) {
				busy++
			}
		}
		return err == nil && busy == len(remotes)
	}, "every connection to be in use")
}

// TestEstablished sees a real connection come, be asked, be answered, and go.
func TestEstablished(t *testing.T) {
	if runtime.GOOS != "linux" {
		loud.Skip(t, "the kernel's list is read on Linux alone")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	// the port may be used at another address
	stranger := func(c Conn) bool { return c.Remote.String() != client.LocalAddr().String() }
	one := func() Conn {
		t.Helper()
		list, err := Established(port)
		if list = slices.DeleteFunc(list, stranger); err != nil || len(list) != 1 {
			t.Fatalf("%v, %v; want one connection", list, err)
		}
		return list[0]
	}
	if c := one(); c.Remote.String() != client.LocalAddr().String() || c.Local.String() != server.LocalAddr().String() {
		t.Errorf("seen as %+v", c)
	}
	buf := make([]byte, 1)
	polltest.Until(t, func() bool { return !one().Busy(20 * time.Millisecond) }, "the connection is quiet")
	if _, err := client.Write(buf); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(buf); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { c := one(); return c.Received < c.Sent && c.Received > 20*time.Millisecond },
		"a question without an answer is told from age alone")
	if !one().Busy(20 * time.Millisecond) {
		t.Error("a question without an answer counts as quiet")
	}
	if _, err := server.Write(buf); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { return !one().Busy(20 * time.Millisecond) }, "the answered connection is quiet")
	client.Close()
	polltest.Until(t, func() bool {
		list, err := Established(port)
		return err == nil && len(slices.DeleteFunc(list, stranger)) == 0
	}, "the connection is gone")
}
