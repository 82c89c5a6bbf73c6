package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// pair returns the two ends of a connection from host a to host b.
func pair(t *testing.T, m *Memory) (near, far net.Conn) {
	t.Helper()
	l, err := m.Host("b").Listen("")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err = m.Host("a").DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func TestMemoryDelaysOneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		near, far := pair(t, m)
		m.Delay("a", "b", time.Second)
		began := time.Now()
		near.Write([]byte("hello"))
		far.Read(make([]byte, 8))
		if took := time.Since(began); took != time.Second {
			t.Errorf("there: %s", took)
		}
		far.Write([]byte("hello"))
		near.Read(make([]byte, 8))
		if took := time.Since(began); took != time.Second {
			t.Errorf("and back: %s", took)
		}
	})
}

func TestMemoryCutHoldsAndHealDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		near, far := pair(t, m)
		m.Cut("a", "b")
		near.Write([]byte("held"))
		far.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := far.Read(make([]byte, 8)); !isTimeout(err) {
			t.Errorf("across a cut: %v", err)
		}
		far.Write([]byte("back")) // the way back is open
		if n, err := near.Read(make([]byte, 8)); n != 4 || err != nil {
			t.Errorf("the way back: %d %v", n, err)
		}
		near.Close() // the end is held as well
		far.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := far.Read(make([]byte, 8)); !isTimeout(err) {
			t.Errorf("the end across a cut: %v", err)
		}
		far.SetReadDeadline(time.Time{})
		go func() {
			<-time.After(time.Second) // in the bubble: no real time passes
			m.Heal("a", "b")
		}()
		if got, err := io.ReadAll(far); string(got) != "held" || err != nil {
			t.Errorf("after the heal: %q %v", got, err)
		}
	})
}

func TestMemoryDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		l, err := m.Host("b").Listen("b:1")
		if err != nil {
			t.Fatal(err)
		}
		dial := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			conn, err := m.Host("a").DialContext(ctx, "tcp", "b:1")
			if err == nil {
				conn.Close()
			}
			return err
		}
		if _, err := m.Host("b").Listen("b:1"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("taken: %v", err)
		}
		m.Partition([]string{"a"}, []string{"b", "c"})
		if err := dial(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("across a partition: %v", err)
		}
		m.HealAll()
		m.Stall("a", "b")
		if err := dial(); err != nil {
			t.Errorf("to a stalled process: %v", err)
		}
		l.Close()
		if err := dial(); !errors.Is(err, errRefused) {
			t.Errorf("nobody listens: %v", err)
		}
	})
}

func TestMemoryDropBreaksBothEnds(t *testing.T) {
	m := NewMemory()
	near, far := pair(t, m)
	m.Drop("b", "a")
	for _, conn := range []net.Conn{near, far} {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
		if _, err := conn.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write: %v", err)
		}
	}
	if len(m.conns) != 0 {
		t.Errorf("%d connections are remembered", len(m.conns))
	}
}

func TestMemoryBoundsWhatIsOnTheWay(t *testing.T) {
	m := NewMemory()
	near, _ := pair(t, m)
	near.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	n, err := near.Write(make([]byte, memoryWindowBytes+100))
	if n != memoryWindowBytes || !isTimeout(err) {
		t.Errorf("wrote %d, %v", n, err)
	}
}

// Whatever the link does meanwhile, the bytes arrive whole and in order.
func TestMemoryLosesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := NewMemory()
		near, far := pair(t, m)
		var want []byte
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "do") {
			case 0:
				m.Cut("a", "b")
			case 1:
				m.Stall("a", "b")
			case 2:
				m.Delay("a", "b", time.Duration(rapid.IntRange(0, 300).Draw(rt, "micros"))*time.Microsecond)
			case 3:
				m.Heal("a", "b")
			case 4:
				b := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(rt, "bytes")
				if _, err := near.Write(b); err != nil {
					rt.Fatal(err)
				}
				want = append(want, b...)
			}
		}
		near.Close()
		m.HealAll()
		if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, want) {
			rt.Fatalf("%d bytes of %d, %v", len(got), len(want), err)
		}
	})
}

func TestWireOverMemory(t *testing.T) {
	m := NewMemory()
	wires := map[string]*Wire{}
	for _, name := range []string{"a", "b"} {
		l, err := m.Host(name).Listen(name + ":8300")
		if err != nil {
			t.Fatal(err)
		}
		w, _ := runWire(t, Config{Listener: l, Dialer: m.Host(name), DialTimeout: 100 * time.Millisecond})
		echo(t, w.Listen(ProtoRPC, 0, Anyone), name)
		wires[name] = w
	}
	if err := say(t.Context(), wires["a"], "b:8300", ProtoRPC, 0, "b"); err != nil {
		t.Error(err)
	}
	m.Cut("b", "a")
	if err := say(t.Context(), wires["a"], "b:8300", ProtoRPC, 0, "b"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("across a cut: %v", err)
	}
}
