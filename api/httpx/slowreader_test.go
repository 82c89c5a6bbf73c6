package httpx

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/telemetry"
)

func TestSlowReadersTellLagAndCuts(t *testing.T) {
	m := telemetry.New(telemetry.Config{})
	s := newSlowReaders(m, nil)
	end, _ := s.begin(netip.MustParseAddrPort("10.0.0.7:4000"), 1)
	quick, _ := s.begin(netip.MustParseAddrPort("10.0.0.8:4000"), 1)
	quick(false)
	lag := m.Gauge("subscriber.lag_ms", "kind", "http", "who", "10.0.0.7")
	s.tell(time.Now().Add(5 * time.Second))
	if v := lag.Value(); v < 4000 || v > 60000 {
		t.Errorf("the lag is %v ms after five seconds", v)
	}
	end(true)
	s.tell(time.Now())
	if v := lag.Value(); v != 0 {
		t.Errorf("the lag is %v ms after the end", v)
	}
	if v := m.Counter("subscriber.cut", "kind", "http", "who", "10.0.0.7").Value(); v != 1 {
		t.Errorf("%d cuts are counted", v)
	}
	for i := range byte(40) { // names are bounded
		end, _ := s.begin(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, i}), 1), 1)
		end(true)
	}
	if v := m.Counter("subscriber.cut", "kind", "http", "who", "others").Value(); v != 40-(maxSlowReaders-1) {
		t.Errorf("%d cuts of others are counted", v)
	}
}

// TestReadersUnderTLSAreWatched: a write that a client does not take shows while it lasts.
func TestReadersUnderTLSAreWatched(t *testing.T) {
	m := telemetry.New(telemetry.Config{})
	s := newSlowReaders(m, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn := s.watch(raw)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, 64<<20)) // more than any socket holds
		done <- err
	}()
	lag := m.Gauge("subscriber.lag_ms", "kind", "http", "who", "127.0.0.1")
	polltest.Until(t, func() bool {
		s.tell(time.Now().Add(5 * time.Second))
		return lag.Value() >= 4000
	}, "the lag of a client that reads nothing")
	_ = client.Close()
	if err := <-done; err == nil {
		t.Error("nobody read, and the write went well")
	}
	s.tell(time.Now().Add(5 * time.Second))
	if v := lag.Value(); v != 0 {
		t.Errorf("the lag is %v ms after the write", v)
	}
	if err := conn.Close(); err != nil || len(s.open) != 0 {
		t.Errorf("close: %v, %d are watched still", err, len(s.open))
	}
}
