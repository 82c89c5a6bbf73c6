package propagation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/sidecars"
)

// explainMost bounds the hosts of which explain tells.
const explainMost = 3

// explain says of proxies that do not have a change, or had it too early, what they got and when, and what their
// hosts follow: one proxy of each host. at is when each had the change that was made at start.
func (f *propFleet) explain(ctx context.Context, at []int64, start int64) {
	proxies, hosts := suspects(f.all, at, start)
	var traces []sidecars.Trace
	if err := f.sidecars.Call(ctx, bench.CallMost, sidecars.CallTrace, proxies, &traces); err != nil {
		f.o.Say("what the proxies got: %v", err)
	}
	for _, t := range traces {
		f.o.Say("%s", traceLine(t, start))
	}
	for _, c := range f.hosts {
		var places []int
		for _, h := range hosts {
			if h >= c.First && h < c.First+c.Count {
				places = append(places, h-c.First)
			}
		}
		var lines []string
		if err := c.Call(ctx, bench.CallMost, "state", places, &lines); err != nil {
			f.o.Say("what the agents follow: %v", err)
		}
		for _, line := range lines {
			f.o.Say("%s", line)
		}
	}
}

// suspects are the first proxy of each host that lacks the change or had it before it was made, and these hosts.
func suspects(all []propHost, at []int64, start int64) (proxies, hosts []int) {
	first := 0
	for h := range all {
		n := len(all[h].Proxies)
		i := slices.IndexFunc(at[first:first+n], func(t int64) bool { return t < start }) // 0 is never
		if i >= 0 && len(hosts) < explainMost {
			proxies, hosts = append(proxies, first+i), append(hosts, h)
		}
		first += n
	}
	return proxies, hosts
}

// traceLine is what a proxy got, by the time from the change.
func traceLine(t sidecars.Trace, start int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s got:", t.Proxy, t.Node)
	for _, s := range t.Seen {
		what := "not what was waited for"
		if s.Fits {
			what = "what was waited for"
		}
		fmt.Fprintf(&b, " %s version %08x, %s (%s);", time.Duration(s.At-start).Round(time.Microsecond), s.Version, what,
			s.Marker)
	}
	if len(t.Seen) == 0 {
		b.WriteString(" nothing of the kind in two rounds")
	}
	return strings.TrimSuffix(b.String(), ";")
}
