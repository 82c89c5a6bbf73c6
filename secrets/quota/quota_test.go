package quota

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

func set(rules ...Rule) *Set {
	var list []*Quota
	for _, r := range rules {
		list = append(list, New(r))
	}
	return NewSet(Settings{}, list)
}

func rate(name, path, role string) Rule {
	return Rule{Name: name, Type: RateLimit, Path: path, Role: role, Rate: 1, Interval: time.Hour}
}

func TestMostSpecificCounts(t *testing.T) {
	s := set(rate("all", "", ""), rate("mount", "kv/", ""), rate("below", "kv/a*", ""), rate("longer", "kv/app*", ""),
		rate("exact", "kv/app/x", ""), rate("role", "auth/jwt/", "ci"))
	for place, want := range map[string]string{"other/x": "all", "kv/x": "mount", "kv/ax": "below", "kv/app/y": "longer",
		"kv/app/x": "exact", "kv/app/x/": "exact"} {
		mount := ""
		if place[:3] == "kv/" {
			mount = "kv/"
		}
		if got := s.of(RateLimit, Place{Path: place, Mount: mount}); got == nil || got.Name != want {
			t.Errorf("%s: %v, want %s", place, got, want)
		}
	}
	for role, want := range map[string]string{"ci": "role", "cd": "all", "": "all"} {
		if got := s.of(RateLimit, Place{Path: "auth/jwt/login", Mount: "auth/jwt/",
			Role: func() string { return role }}); got.Name != want {
			t.Errorf("role %q: %s, want %s", role, got.Name, want)
		}
	}
	var none *Set
	if none.Admit(Place{Path: "x"}, netip.Addr{}) != nil || none.of(LeaseCount, Place{}) != nil ||
		s.of(LeaseCount, Place{}) != nil {
		t.Error("a rule counts that is not there")
	}
}

func TestRate(t *testing.T) {
	one, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:10.0.0.2")
	s := NewSet(Settings{Headers: true, Exempt: []string{"free/*"}},
		[]*Quota{New(Rule{Name: "r", Type: RateLimit, Rate: 3, Interval: time.Hour, Block: time.Minute})})
	for i := range 5 {
		err := s.Admit(Place{Path: "x"}, one)
		if (err == nil) != (i < 3) {
			t.Errorf("request %d: %v", i, err)
		}
		var e *Exceeded
		if i >= 3 && (!errkind.Is(err, errkind.Overloaded) || !errors.As(err, &e) || !e.Headers || e.Limit != 3 ||
			e.RetryAfter <= 0 || e.RetryAfter > time.Minute ||
			errkind.Text(err) != `request path "x": rate limit quota exceeded`) {
			t.Errorf("request %d: %+v", i, err)
		}
	}
	for path, from := range map[string]netip.Addr{"x": other, "sys/health": one, "free/x": one} {
		if err := s.Admit(Place{Path: path}, from); err != nil {
			t.Errorf("%s from %s: %v", path, from, err)
		}
	}
	if n := s.Find(RateLimit, "r").Violations.Load(); n != 2 {
		t.Errorf("%d violations", n)
	}
	absolute := NewSet(Settings{AbsoluteExempt: []string{"x"}}, []*Quota{New(rate("r", "", ""))})
	for range 2 {
		if absolute.Admit(Place{Path: "x"}, one) != nil {
			t.Error("an exempt path was counted")
		}
	}
	if absolute.Admit(Place{Path: "sys/health"}, one); absolute.Admit(Place{Path: "sys/health"}, one) == nil {
		t.Error("absolute exemptions are beside those of old")
	}
}

// However many ask at once, no more leases live than may.
func TestLeases(t *testing.T) {
	s := set(Rule{Name: "l", Type: LeaseCount, Path: "db/", MaxLeases: 100})
	p := Place{Path: "db/creds/x", Mount: "db/"}
	var got, refused atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if back, err := s.Lease(p); err == nil && back != nil {
					got.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	if got.Load() != 100 || refused.Load() != 300 {
		t.Errorf("%d leases, %d refused", got.Load(), refused.Load())
	}
	s.Gone(p)
	back, err := s.Lease(p)
	if err != nil {
		t.Fatal(err)
	}
	back()
	for range 200 {
		s.Gone(p)
	}
	if n := s.Find(LeaseCount, "l").Leases.Load(); n != 0 {
		t.Errorf("%d leases are left of none", n)
	}
	if back, err := s.Lease(Place{Path: "other"}); back != nil || err != nil {
		t.Error("a lease elsewhere was counted")
	}
}

func TestCheck(t *testing.T) {
	for i, r := range []Rule{{Name: "", Type: RateLimit, Rate: 1, Interval: time.Second},
		{Name: "a b", Type: RateLimit, Rate: 1, Interval: time.Second}, {Name: "a", Type: RateLimit, Interval: time.Second},
		{Name: "a", Type: RateLimit, Rate: math.NaN(), Interval: time.Second},
		{Name: "a", Type: RateLimit, Rate: -1, Interval: time.Second},
		{Name: "a", Type: RateLimit, Rate: 1, Interval: time.Millisecond},
		{Name: "a", Type: RateLimit, Rate: 1, Interval: time.Second, Block: -1}, {Name: "a", Type: LeaseCount},
		{Name: "a", Type: LeaseCount, MaxLeases: -1}, {Name: "a", Type: RateLimit, Rate: math.Inf(1),
			Interval: time.Second}} {
		if err := r.Check(); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if err := (&Rule{Name: "a", Type: RateLimit, Rate: 0.5, Interval: time.Second}).Check(); err != nil {
		t.Error(err)
	}
}

func BenchmarkAdmit(b *testing.B) {
	s := set(Rule{Name: "r", Type: RateLimit, Rate: 1e9, Interval: time.Second})
	addrs := make([]netip.Addr, 64)
	for i := range addrs {
		addrs[i] = netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if err := s.Admit(Place{Path: "secret/a", Mount: "secret/"}, addrs[i%64]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
