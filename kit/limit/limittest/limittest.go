// Package limittest fills budgets in tests.
package limittest

import (
	"net/netip"
	"testing"

	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/polltest"
)

// TakeAll takes what is left of a budget, but for some bytes, until the test ends or give is called.
func TakeAll(t *testing.T, b *limit.Bytes, leave int64) (give func()) {
	t.Helper()
	polltest.Until(t, func() bool { return b.Stats().Used == 0 }, "nothing to be held")
	hold := b.Hold(netip.Addr{})
	if err := hold.Add(b.Stats().Most - leave); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hold.End)
	return hold.End
}
