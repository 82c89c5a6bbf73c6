package sockets

import (
	"maps"
	"net"
	"slices"
	"testing"

	"corbel.dev/corbel/kit/polltest"
)

// Each tells of the same socket from both ends, with what was sent.
func TestEach(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		polltest.Until(t, func() bool {
			var near, far Socket
			err := Each(Which{Figures: true}, func(s *Socket) {
				switch {
				case s.Local.String() == c.LocalAddr().String() && s.Remote.String() == c.RemoteAddr().String():
					near = *s
				case s.Local.String() == c.RemoteAddr().String() && s.Remote.String() == c.LocalAddr().String():
					far = *s
				}
			})
			return err == nil && near.Established && far.Established && near.DataOut == 1 && near.Out > 1 &&
				near.Cookie != far.Cookie && far.DataIn == 1 && far.DataOut == 0
		}, "both ends of the connection")
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(append([]byte{100, 0, 0, 0, sockDiagByFamily, 0, 2, 0}, make([]byte, 92)...))
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		_, _ = messages(b, func(*Socket) { n++ })
		if n*messageBytes > len(b) {
			t.Fatalf("%d sockets in %d bytes", n, len(b))
		}
	})
}

// The kernel tells of those that a filter in Go would keep.
func TestWhich(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mine := map[uint64]bool{} // sockets of this test: others come and go
	port := func(a net.Addr) uint16 { return uint16(a.(*net.TCPAddr).Port) }
	var ports []uint16
	ends := map[string]bool{}
	for range 20 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ports = append(ports, port(c.LocalAddr()))
		ends[c.LocalAddr().String()] = true
	}
	var all []Socket
	if err := Each(Which{}, func(s *Socket) {
		if s.Established && (ends[s.Local.String()] || ends[s.Remote.String()]) {
			all, mine[s.Cookie] = append(all, *s), true
		}
	}); err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 { // the other ends may not be accepted
		t.Fatalf("%d sockets", len(all))
	}
	low, high := min(ports[3], ports[9]), max(ports[3], ports[9])
	for _, which := range []Which{{Ports: ports[:1]}, {Ports: ports[2:9]}, {Ports: []uint16{port(l.Addr())}},
		{From: low, To: high}, {From: low, To: high, Ports: ports[:12]},
		{Ports: ports, Figures: true}, {From: 1, To: 2}} {
		want := map[uint64]bool{}
		for _, s := range all {
			local, remote := s.Local.Port(), s.Remote.Port()
			if (which.To == 0 || local >= which.From && local <= which.To) && (len(which.Ports) == 0 ||
				slices.Contains(which.Ports, local) || slices.Contains(which.Ports, remote)) {
				want[s.Cookie] = true
			}
		}
		got := map[uint64]bool{}
		err := Each(which, func(s *Socket) {
			if mine[s.Cookie] {
				got[s.Cookie] = true
			}
			if which.Figures != (s.Out > 0) && s.Established && ends[s.Local.String()] {
				t.Errorf("%+v: figures %+v", which, s)
			}
		})
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%+v: %d sockets, want %d, %v", which, len(got), len(want), err)
		}
	}
}

func BenchmarkEach(b *testing.B) {
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := Each(Which{}, func(*Socket) { n++ }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/float64(b.N), "sockets")
}
