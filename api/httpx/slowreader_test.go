package httpx

import (
	"net/netip"
	"testing"
	"time"

	"corbel.dev/corbel/telemetry"
)

func TestSlowReadersTellLagAndCuts(t *testing.T) {
	m := telemetry.New(telemetry.Config{})
	s := newSlowReaders(m)
	end := s.begin(netip.MustParseAddrPort("10.0.0.7:4000"))
	quick := s.begin(netip.MustParseAddrPort("10.0.0.8:4000"))
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
		s.begin(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, i}), 1))(true)
	}
	if v := m.Counter("subscriber.cut", "kind", "http", "who", "others").Value(); v != 40-(maxSlowReaders-1) {
		t.Errorf("%d cuts of others are counted", v)
	}
}
