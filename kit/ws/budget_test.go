package ws

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"testing"

	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/polltest"
)

// masked is a frame as a client sends it, under a mask of zeros, with the length that it claims.
func masked(first byte, claims int, payload []byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{first, 0xff}, uint64(claims))
	return append(append(b, 0, 0, 0, 0), payload...)
}

// TestLargeMessagesTakeRoom: a message beyond limit.FreeBytes is read where the budget has room, and gives it back;
// small ones are read whatever is held.
func TestLargeMessagesTakeRoom(t *testing.T) {
	for _, secure := range []bool{false, true} {
		budget := limit.NewBytes(16<<20, nil)
		ended := make(chan error, 1)
		c := dial(t, loop(t, secure, LoopConfig{Limits: Limits{Bytes: budget}}, func() *taker {
			h := echoing()
			h.ended = ended
			return h
		}))
		echo := func(n int) {
			t.Helper()
			if err := c.Write(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Read(nil); err != nil || len(got) != n {
				t.Fatalf("TLS %v, %d bytes: %d came back, %v", secure, n, len(got), err)
			}
		}
		echo(1 << 20)
		if s := budget.Stats(); s.High < 2<<20 || s.High > 4<<20 {
			t.Fatalf("TLS %v, a message of 1 MiB: %+v", secure, s)
		}
		echo(10) // with TLS the next message ends what the last one held
		polltest.Until(t, func() bool { return budget.Stats().Used == 0 }, "what was held to be given back")
		rest := budget.Hold(netip.Addr{})
		if err := rest.Add(16 << 20); err != nil {
			t.Fatal(err)
		}
		echo(60 << 10)
		_ = c.Write(make([]byte, 1<<20)) // the connection may end before all of it is written
		var closed *CloseError
		if err := polltest.Get(t, ended, "the connection to end"); !errors.As(err, &closed) || closed.Code != CloseTryAgain {
			t.Fatalf("TLS %v, without room: %v", secure, err)
		}
		rest.End()
		if s := budget.Stats(); s.Used != 0 || s.Refused != 1 {
			t.Fatalf("TLS %v, afterwards: %+v", secure, s)
		}
	}
}

// TestMessagesThatAreRefusedSayWhy: what a client reads when there is no room, whether the message comes in one frame
// or in many; a length that is claimed takes nothing by itself.
func TestMessagesThatAreRefusedSayWhy(t *testing.T) {
	budget := limit.NewBytes(4<<20, nil)
	url := loop(t, false, LoopConfig{Limits: Limits{Bytes: budget}}, echoing)
	claim := upgraded(t, url)
	if _, err := claim.Write(masked(0x82, 8<<20, make([]byte, 30<<10))); err != nil {
		t.Fatal(err)
	}
	rest := budget.Hold(netip.Addr{})
	if err := rest.Add(4 << 20); err != nil {
		t.Fatalf("a claim took room: %v", err)
	}
	defer rest.End()
	parts := masked(0x02, 30<<10, make([]byte, 30<<10))
	for range 2 {
		parts = append(parts, masked(0x00, 30<<10, make([]byte, 30<<10))...)
	}
	for name, b := range map[string][]byte{"a frame": masked(0x82, 8<<20, make([]byte, 128<<10)), "parts": parts} {
		nc := upgraded(t, url)
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(nc, got); err != nil || got[0] != 0x88 || !bytes.Equal(got[2:], []byte{0x03, 0xf5}) {
			t.Errorf("%s: % x, %v; want a close with %d", name, got, err, CloseTryAgain)
		}
	}
}

// TestSmallMessagesTakeNoBudget: reading what agents send all day costs no allocation and no lock of the budget's.
func TestSmallMessagesTakeNoBudget(t *testing.T) {
	l := (&Limits{Bytes: limit.NewBytes(0, nil)}).orDefaults()
	g, asked := &gathering{}, false
	who := func() netip.Addr { asked = true; return netip.Addr{} }
	if n := testing.AllocsPerRun(100, func() {
		if err := g.admit(limit.FreeBytes, &l, who); err != nil {
			t.Error(err)
		}
	}); n != 0 || asked {
		t.Errorf("%v allocations, asked who it is: %v", n, asked)
	}
	if err := g.admit(limit.FreeBytes+1, &l, who); err == nil {
		t.Error("a large one was admitted where there is no room")
	}
}
