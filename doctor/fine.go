package doctor

import (
	"fmt"
	"slices"
)

// innocent says, for one member, what a suspect was measured to be when it is in order; "" when it was not measured
// or is not.
type innocent struct {
	// codes are the findings that would accuse the suspect.
	codes []string
	say   func(*view) (Line, bool)
}

var innocents = []innocent{
	{[]string{"disk-stalled", "disk-slow"}, func(v *view) (Line, bool) {
		var worst *Series
		for _, s := range v.all("group.append") {
			if s.Now.Count > 0 && (worst == nil || s.Now.P99 > worst.Now.P99) {
				worst = s
			}
		}
		if worst == nil || worst.Now.Mean > v.fsyncBound()/2 {
			return Line{}, false
		}
		return Line{Key: worst.Key(), Text: fmt.Sprintf("the disk is fine: appends including the sync take %s at the 99th "+
			"percentile", millis(worst.Now.P99))}, true
	}},
	{[]string{"cpu-throttled"}, func(v *view) (Line, bool) {
		busy, ok := v.value("host.cpu.busy")
		if !ok || busy > 0.85 {
			return Line{}, false
		}
		switch throttled, seen := v.value("host.cgroup.throttled", "who", "self"); {
		case throttled > 0.02:
			return Line{}, false
		case !seen: // what is not measured is never called fine
			return Line{Key: "host.cpu.busy", Text: fmt.Sprintf("the host's CPU is %.0f %% busy; whether a quota stops this "+
				"process was not seen", 100*busy)}, true
		}
		return Line{Key: "host.cpu.busy", Text: fmt.Sprintf("the CPU is fine: %.0f %% busy, not throttled", 100*busy)}, true
	}},
	{[]string{"packet-loss", "allowance-exceeded", "one-transmit-queue", "packets-dropped"}, func(v *view) (Line, bool) {
		segments, again := v.rate("host.tcp.segments"), v.rate("host.tcp.retransmits")
		if segments*v.Window.Seconds() < 50 || again/segments > 0.002 {
			return Line{}, false
		}
		return Line{Key: "host.tcp.retransmits",
			Text: fmt.Sprintf("the network is fine: %.2f %% of segments to peers were retransmitted", 100*again/segments)}, true
	}},
	{[]string{"garbage-collection"}, func(v *view) (Line, bool) {
		share, ok := v.value("runtime.gc_cpu")
		if !ok || share > 0.2 {
			return Line{}, false
		}
		return Line{Key: "runtime.gc_cpu", Text: fmt.Sprintf("garbage collection is fine: %.0f %% of the CPU time",
			100*share)}, true
	}},
	{[]string{"clock-skew"}, func(v *view) (Line, bool) {
		all := v.all("peer.clock_offset_ms")
		if len(all) == 0 || v.offsetBy() > 0 {
			return Line{}, false
		}
		return Line{Key: "peer.clock_offset_ms", Text: fmt.Sprintf("the clocks are fine: %d peers agree with this one",
			len(all))}, true
	}},
	{[]string{"usage-cache-small"}, cacheLarge},
}

// exonerate says what a finding is not: suspects on the members that it concerns that were measured and are in order,
// and loads that go on beside it without being the cause.
func exonerate(f *Finding, causes []Finding, views []*view) []Line {
	var out []Line
	members := []string{f.Member}
	for _, c := range f.Causes {
		if !slices.Contains(members, c.Member) {
			members = append(members, c.Member)
		}
	}
	for _, member := range members {
		v := viewOf(views, member)
		if v == nil {
			continue
		}
		for _, in := range innocents {
			if slices.Contains(in.codes, f.Code) ||
				slices.ContainsFunc(causes, func(o Finding) bool {
					return o.Member == member && slices.Contains(in.codes, o.Code)
				}) {
				continue
			}
			if line, ok := in.say(v); ok {
				if len(members) > 1 {
					line.Text = member + ": " + line.Text
				}
				out = append(out, line)
			}
		}
	}
	for _, c := range f.Causes {
		if c.Code == "revocation-storm" || c.Code == "noisy-tenant" {
			out = append(out, Line{Text: "not the cause, but slowed by it: " + c.Title})
		}
	}
	return out
}

// fine lists what was measured on all members and is in order.
func fine(causes []Finding, views []*view) []string {
	var out []string
	for _, v := range views {
		for _, in := range innocents {
			if slices.ContainsFunc(causes, func(o Finding) bool {
				return o.Member == v.Member && slices.Contains(in.codes, o.Code)
			}) {
				continue
			}
			if line, ok := in.say(v); ok {
				out = append(out, v.Member+": "+line.Text)
			}
		}
	}
	return out
}
