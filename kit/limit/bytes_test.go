package limit

import (
	"net/netip"
	"testing"

	"corbel.dev/corbel/kit/errkind"
)

// TestBytesAreRefusedBeyondTheBudget holds, refuses and gives back, of all and of one address.
func TestBytesAreRefusedBeyondTheBudget(t *testing.T) {
	b := NewBytes(100, nil)
	one, two, three := b.Hold(netip.MustParseAddr("10.0.0.1")), b.Hold(netip.MustParseAddr("::ffff:10.0.0.1")),
		b.Hold(netip.MustParseAddr("10.0.0.2"))
	if err := one.Add(40); err != nil {
		t.Fatal(err)
	}
	if err := two.Add(11); !errkind.Is(err, errkind.Unavailable) {
		t.Fatalf("one address got more than half of the budget: %v", err)
	}
	if err := three.Grow(50); err != nil {
		t.Fatal(err)
	}
	if err := three.Grow(50); err != nil || b.Stats().Used != 90 {
		t.Fatalf("growing to what is held: %v, %+v", err, b.Stats())
	}
	none := b.Hold(netip.Addr{})
	if none.Add(11) == nil || none.Add(10) != nil {
		t.Fatalf("the whole budget: %+v", b.Stats())
	}
	for _, h := range []*Hold{&one, &two, &three, &none} {
		h.End()
		h.End()
	}
	if got, want := b.Stats(), (BytesStats{Most: 100, High: 100, Refused: 2}); got != want || len(b.who) != 0 {
		t.Fatalf("afterwards: %+v, want %+v, %d addresses", got, want, len(b.who))
	}
}

// TestNoBudgetRefusesNothing holds of none.
func TestNoBudgetRefusesNothing(t *testing.T) {
	var b *Bytes
	h := b.Hold(netip.Addr{})
	if err := h.Add(1 << 60); err != nil || b.Stats() != (BytesStats{}) {
		t.Fatal(err, b.Stats())
	}
	h.End()
}
