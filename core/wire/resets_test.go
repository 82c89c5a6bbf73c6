package wire

import (
	"io"
	"net"
	"testing"

	"corbel.dev/corbel/telemetry"
)

// TestResetsAreCounted: a connection that is reset counts once, by its peer; one that is closed does not.
func TestResetsAreCounted(t *testing.T) {
	m := telemetry.New(telemetry.Config{})
	w := &Wire{resets: resets{metrics: m, peers: map[string]*telemetry.Counter{}}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, tc := range []struct {
		reset bool
		want  uint64
	}{{false, 0}, {true, 1}} {
		theirs, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ours := w.admit(raw, ProtoRPC, nil, nil)
		if tc.reset {
			_ = theirs.(*net.TCPConn).SetLinger(0)
		}
		_ = theirs.Close()
		if _, err := io.ReadAll(ours); (err != nil) != tc.reset {
			t.Errorf("reset %t: read gave %v", tc.reset, err)
		}
		_, _ = ours.Write([]byte("x"))
		var got uint64
		m.NewCursor().Each(func(r *telemetry.Reading) {
			if r.Series.Name == "host.tcp.peer_resets" {
				got += uint64(r.Sum)
			}
		})
		if got != tc.want {
			t.Errorf("reset %t: %d are counted, want %d", tc.reset, got, tc.want)
		}
		_ = ours.Close()
	}
}
