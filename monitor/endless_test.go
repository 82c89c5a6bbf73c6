package monitor

import (
	"fmt"
	"math"
	"testing"
)

// TestTimesThatCannotBeAddedAreRefused: a silence or a check's ttl whose end is no number any more would be over at
// once.
func TestTimesThatCannotBeAddedAreRefused(t *testing.T) {
	for _, n := range []int64{math.MaxInt64, math.MaxInt64 - 1_700_000_000, 1 << 60, maxSeconds + 1} {
		for name, s := range map[string]*Silenced{"expire": {Expire: n}, "begin": {Begin: n, Expire: 60},
			"expire_at": {ExpireAt: n}, "before 1970": {Begin: -n}} {
			s.Subscription = "linux"
			s.Complete(nil, "me", 1_700_000_000)
			if err := s.Validate(); err == nil {
				t.Errorf("a silence with %s %d: no error, it ends at %d", name, n, s.ExpireAt)
			}
		}
		c := &CheckConfig{Meta: Meta{Name: "c", Namespace: "default"}, Interval: 10, TTL: n, Publish: true}
		if err := c.Validate(); err == nil {
			t.Errorf("a check with ttl %d: no error", n)
		}
		e := &Event{Entity: &Entity{Meta: Meta{Name: "e", Namespace: "default"}, Class: "agent"},
			Check: &Check{Meta: Meta{Name: "c", Namespace: "default"}, Interval: 10, TTL: n}}
		if err := e.Validate(); err == nil {
			t.Errorf("an event with ttl %d: no error", n)
		}
	}
	c := &CheckConfig{Meta: Meta{Name: "c", Namespace: "default"}, Interval: 10, TTL: math.MaxUint32, Publish: true,
		Command: "true", Subscriptions: []string{"a"}}
	s := &Silenced{Subscription: "linux", Expire: 100 * 365 * 86400}
	s.Complete(nil, "me", 1_700_000_000)
	for name, err := range map[string]error{fmt.Sprint("ttl ", c.TTL): c.Validate(), "a century": s.Validate()} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
