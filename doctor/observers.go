package doctor

import (
	"fmt"
	"strings"
)

// sinkBlocks finds code that should only look on and is waited for: a sink of metrics, logs or traces that is called
// on the way of requests. Two proofs: time that callers spent in it, as it was timed at the seam; and stacks that
// wait in a package of that purpose.
func sinkBlocks(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("telemetry.tap") {
		waited := s.Now.Sum / 1000 / max(v.Window.Seconds(), 1) // seconds of callers' time in each second
		// A call that takes long now and then, as any that the scheduler interrupts, blocks nobody: what counts is the sum,
		// or the mean of several.
		if waited < 0.05 && (s.Now.Mean < 1 || s.Now.Count < fewest) || s.Now.Max < 2 {
			continue
		}
		name := s.Label("sink")
		f := Finding{Severity: Warning,
			cause:   cause{layer: layerObserver, explains: []reach{{member: v.Member}}},
			subject: name, Stage: "observe", Culprit: "metrics sink " +
				name, Since: s.Since,
			Title: fmt.Sprintf("%s: the metrics sink %s blocks its callers for %s each time: the slow code waits "+
				"for its own metrics", v.Member, name, millis(s.Now.Mean)),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%.0f calls of the sink in %s took %s on average and at most "+
				"%s: callers spend %.0f ms of every second in it",
				s.Now.Count, v.Window, millis(s.Now.Mean), millis(s.Now.Max), 1000*waited)}}}
		if s.Now.Mean > 100 {
			f.Severity = Critical
		}
		f.Evidence = append(f.Evidence, v.observing()...)
		f.Do = []string{
			fmt.Sprintf("Turn off the sink %s, or point it to an address that reads, and reload (SIGHUP): latency recovers "+
				"at once.", name),
			"Then find out why its receiver does not read: a stopped process, a full socket buffer, an unresolved name?",
		}
		// What waits in a group's own loop slows the group on all members.
		for _, st := range v.Stacks {
			if isObserver(st.Package) && st.Plane != "" {
				f.explains = append(f.explains, reach{plane: st.Plane})
			}
		}
		if leads := v.leads(); len(leads) > 0 {
			for _, plane := range leads {
				f.explains = append(f.explains, reach{plane: plane})
			}
		}
		out = append(out, f)
	}
	return out
}

// observing words the stacks that wait in observers.
func (v *view) observing() []Line {
	var out []Line
	for _, st := range v.Stacks {
		if (st.Kind == StackBlocked || st.Kind == StackWaiting) && isObserver(st.Package) && st.Share >= 0.1 && len(out) < 3 {
			out = append(out, Line{Text: st.words(), Key: string(st.Kind)})
		}
	}
	return out
}

// isObserver reports whether a package only looks on.
func isObserver(pkg string) bool {
	for _, part := range []string{"telemetry", "go-metrics", "dogstatsd", "statsd", "log/slog"} {
		if strings.Contains(pkg, part) {
			return true
		}
	}
	return false
}

// words is a stack in a sentence.
func (st *Stack) words() string {
	what := map[StackKind]string{StackCPU: "of the CPU time", StackBlocked: "of the blocked time",
		StackMutex:   "of the time waiting for locks",
		StackWaiting: "of the samples of waiting goroutines", StackHeap: "of the memory in use"}[st.Kind]
	under := ""
	if st.Plane != "" {
		under = " under " + st.Plane
		if st.Stage != "" {
			under += " " + st.Stage
		}
	}
	in := "package " + st.Package
	if st.Function != "" {
		in += " (" + st.Function + ")"
	}
	return fmt.Sprintf("%.0f %% %s is in %s%s", 100*st.Share, what, in, under)
}

// leads are the groups that this member leads.
func (v *view) leads() []string {
	var out []string
	for _, s := range v.all("group.leader") {
		if s.Now.Value > 0 {
			out = append(out, s.Label("group"))
		}
	}
	return out
}

// lockContended finds a lock that requests wait for most of the time, while they are slow: requests that must follow
// each other by their nature (logins with one secret id) wait at a lock too, as many as a client has connections, and
// keep their limits. A queue at a lock is where other things show as well, from a stalled disk below it to a flood
// above it, so it stands under any of them.
func lockContended(v *view) []Finding {
	var out []Finding
	for _, st := range v.Stacks {
		// More than two goroutines of every moment wait at this one place.
		if st.Kind != StackMutex || st.Share < 0.5 || st.Seconds < 2 || !v.suffers(st.Plane) {
			continue
		}
		out = append(out, Finding{Severity: Warning,
			cause: cause{layer: layerSymptom, effect: true, explains: []reach{{member: v.Member, plane: st.Plane}}},
			Plane: st.Plane, Culprit: st.Package,
			subject:  st.Package + st.Function,
			Title:    fmt.Sprintf("%s: requests wait for one lock in %s", v.Member, st.Package),
			Evidence: []Line{{Text: st.words()}, {Text: fmt.Sprintf("on average, %.1f goroutines wait there", st.Seconds)}},
			Do: []string{"Save an archive (corbel debug) and report it: a lock that requests queue for is a defect in Corbel.",
				"Until then, move clients to other members."}})
	}
	return out
}
