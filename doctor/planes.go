package doctor

import (
	"fmt"
	"time"
)

// noLeader finds a group that nobody leads.
func noLeader(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("group.leaderless_ms") {
		if s.Now.Value < 3000 {
			continue
		}
		group := s.Label("group")
		out = append(out, Finding{Severity: Critical,
			cause: cause{layer: layerCommit, effect: true, explains: []reach{{plane: group}}},
			Plane: group, Stage: "replicate",
			Culprit: "group " + group, subject: "cluster:" + group, Since: v.ago(s.Now.Value),
			Title: fmt.Sprintf("group %s has no leader: its plane accepts no writes", group),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%s has not seen a leader for %s; %d members did not answer the "+
				"doctor", v.Member,
				millis(s.Now.Value), len(v.cluster.Silent))}},
			Do: []string{"Bring back enough members for a majority; this report names those that did not answer.",
				"If their disks are lost for good, docs/backup.md explains how to recover with peers.json."}})
	}
	return out
}

// storageSlow finds a storage behind a plane that takes most of its requests' time, or fails.
func storageSlow(v *view) []Finding {
	var out []Finding
	for _, d := range v.Depends {
		if d.Kind == "raft" {
			continue // the group's own rules tell more
		}
		if f, ok := v.storageOf(d); ok {
			out = append(out, f)
		}
	}
	return out
}

func (v *view) storageOf(d Dependency) (Finding, bool) {
	var calls, sum, failed float64
	var worst *Series
	for _, s := range v.all("storage.call", "plane", d.Plane, "backend", d.Kind) {
		calls, sum = calls+s.Now.Count, sum+s.Now.Sum
		if s.Now.Count > 0 && (worst == nil || s.Now.Mean > worst.Now.Mean) {
			worst = s
		}
	}
	errors := v.one("storage.errors", "plane", d.Plane, "backend", d.Kind)
	if errors != nil {
		failed = errors.Now.Sum
	}
	inflight, _ := v.value("storage.inflight_ms", "plane", d.Plane, "backend", d.Kind)
	limit := secretsLimit * 0.8
	if d.Plane == "monitor" {
		limit = eventLimit * 0.8
	}
	tooSlow := worst != nil && worst.Now.Count >= fewest && (worst.Now.Mean > limit ||
		(worst.times() >= usualTimes && worst.Now.Mean > limit/4))
	if tooSlow && v.cpuScarce() && worst.Now.Mean < 3*limit {
		tooSlow = false // its callers wait for the CPU, as those of a disk do
	}
	if !tooSlow && failed < 3 && inflight < stallLimit {
		return Finding{}, false
	}
	f := Finding{Severity: Warning,
		cause: cause{layer: layerStorage, effect: true, explains: []reach{{member: v.Member, plane: d.Plane}}},
		Plane: d.Plane, Stage: "storage", Culprit: d.Kind + " storage of " + d.Plane, subject: d.Plane + d.Kind}
	f.Title = fmt.Sprintf("%s: the %s storage behind %s is slow", v.Member, d.Kind, d.Plane)
	if tooSlow {
		f.Title = fmt.Sprintf("%s: the %s storage behind %s takes %s for a %s", v.Member, d.Kind, d.Plane,
			millis(worst.Now.Mean), worst.Label("op"))
		f.Evidence = append(f.Evidence, Line{Key: worst.Key(),
			Text: fmt.Sprintf("%s: %s on average, %s at the 99th percentile%s, over %.0f calls", worst.Label("op"),
				millis(worst.Now.Mean), millis(worst.Now.P99), usually(worst), worst.Now.Count)})
		f.Since = worst.Since
	}
	if inflight >= stallLimit {
		f.Title = fmt.Sprintf("%s: the %s storage behind %s has not answered for %s", v.Member, d.Kind, d.Plane,
			millis(inflight))
		f.Severity = Critical
		f.Evidence = append(f.Evidence, Line{Key: "storage.inflight_ms",
			Text: fmt.Sprintf("one call has been in flight for %s", millis(inflight))})
	}
	if failed > 0 {
		f.Severity = Critical
		f.Evidence = append(f.Evidence, Line{Key: errors.Key(), Text: fmt.Sprintf("%.0f calls failed in %s", failed,
			v.Window)})
		if f.Since.IsZero() {
			f.Since = errors.Since
		}
	}
	if reads := v.one("storage.call", "plane", d.Plane, "backend", d.Kind, "op", "read"); tooSlow && reads != nil &&
		reads != worst && reads.Now.Count >= fewest && reads.Now.Mean < worst.Now.Mean/5 {
		f.Evidence = append(f.Evidence, Line{Key: reads.Key(), Text: fmt.Sprintf("reads take %s over the same "+
			"connections: neither the network nor the storage's CPU is slow, but its disk", millis(reads.Now.Mean))})
		f.Culprit = "disk under the " + f.Culprit
	}
	if tooSlow && failed == 0 && inflight < stallLimit && worst.Usual.Known() && worst.Usual.Rate > 0 &&
		worst.Now.Rate > 3*worst.Usual.Rate {
		// It is asked several times as often as usual: whoever asks explains it, not the other way round.
		f.layer, f.explains = layerSymptom, nil
		f.Evidence = append(f.Evidence, Line{Key: worst.Key(),
			Text: fmt.Sprintf("it gets %.0f calls per second, %s its usual rate", worst.Now.Rate,
				timesWord(worst.Now.Rate/worst.Usual.Rate))})
	}
	f.Do = storageSteps(d)
	return f, true
}

func storageSteps(d Dependency) []string {
	switch d.Kind {
	case "postgresql":
		return []string{"Check the PostgreSQL server's disk and waits: SELECT wait_event_type, wait_event, count(*) " +
			"FROM pg_stat_activity GROUP BY 1, 2.",
			"WALSync or WALWrite means its disk; Lock means that another session holds a lock."}
	case "consul":
		return []string{"Ask the doctor of that cluster: corbel doctor --http-addr of one of its servers, or add it with " +
			"--also.",
			"Check that it has a leader: GET /v1/status/leader."}
	case "s3", "gcs":
		return []string{"Check the provider's status and the bucket's request limits; storage.errors counts 429 and " +
			"503.",
			"An object store takes tens of milliseconds at best; the Raft storage takes one."}
	default:
		return []string{"Check the device under the storage's folder: iostat -x 1, PSI io."}
	}
}

// amplifiedFrom is from how many storage operations a request on a kind costs too much. One batch is enough for
// nearly all; what makes something outside needs two, an intent before it and the result after it (a role of a
// database with its lease).
const amplifiedFrom = 2.5

// storageAmplified finds a kind of request that costs more storage operations than it needs.
func storageAmplified(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("request.storage_ops") {
		plane, kind := s.Label("plane"), s.Label("kind")
		total := v.one("request.total", "plane", plane, "kind", kind)
		if total == nil || total.Now.Count < 4*fewest {
			continue
		}
		per := s.Now.Sum / total.Now.Count
		if per < amplifiedFrom {
			continue
		}
		out = append(out, Finding{Severity: Warning,
			cause: cause{layer: layerWork, explains: []reach{{member: v.Member, plane: plane}}},
			Plane: plane, Stage: "storage", Culprit: plane + " " +
				kind, subject: plane + kind, Since: s.Since,
			Title: fmt.Sprintf("%s: each %s of %s takes %.1f storage operations; one is enough", v.Member, kind,
				plane, per),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%.0f storage operations for %.0f requests in %s", s.Now.Sum,
				total.Now.Count, v.Window)},
				{Key: total.Key(), Text: fmt.Sprintf("a request takes %s on average%s", millis(total.Now.Mean), usually(total))}},
			Do: []string{"See what these requests do differently: corbel doctor --json shows the slowest with their stages.",
				"If it began with an upgrade or a plugin, roll back and report it: the number per request is part of " +
					"Corbel's contract."}})
	}
	return out
}

// revocationStorm finds so many leases to revoke that they are a load of their own.
func revocationStorm(v *view) []Finding {
	pending := v.one("expire.num_revoking")
	if pending == nil || pending.Now.Value < 1000 {
		return nil
	}
	done := v.rate("expire.revoked")
	failed := v.rate("expire.revoke_failed")
	// A storm that passes at its own pace, while requests keep their limits, is no finding.
	if !v.suffers("secrets") && failed <= done {
		return nil
	}
	eta := "no progress"
	if done > 0 {
		eta = "at this rate they are done in " + (time.Duration(pending.Now.Value/done) * time.Second).String()
	}
	return []Finding{{Severity: Warning,
		cause: cause{layer: layerLoad, effect: true, explains: []reach{{member: v.Member, plane: "secrets"}}},
		Plane: "secrets", Culprit: "revocation of leases",
		Since: pending.Since,
		Title: fmt.Sprintf("%s: %.0f leases are waiting to be revoked; %s", v.Member, pending.Now.Value, eta),
		Evidence: []Line{{Key: pending.Key(), Text: fmt.Sprintf("%.0f pending, %.0f revoked and %.0f failed per second%s",
			pending.Now.Value, done, failed, usually(pending))}},
		Do: []string{"See what they are and what they wait for: corbel secrets leases status; a slow target (a " +
			"database) delays only its own queue.",
			"Pause them while you need the capacity: corbel secrets leases pause; then " +
				"corbel secrets leases resume."}}}
}

// tenantShare is from which part of a plane's requests on one who asks is called noisy.
const tenantShare = 0.6

// noisyTenant finds one who asks for most while others wait or are turned away.
func noisyTenant(v *view) []Finding {
	totals := map[string]float64{}
	for _, s := range v.all("tenant.requests") {
		totals[s.Label("plane")] += s.Now.Rate
	}
	var out []Finding
	for _, s := range v.all("tenant.requests") {
		plane, who := s.Label("plane"), s.Label("tenant")
		if who == "others" || s.Now.Rate < 100 || s.Now.Rate/totals[plane] < tenantShare {
			continue
		}
		// Nobody else asks who could wait for it? One request in a window is enough: those who are starved get few through.
		if (totals[plane]-s.Now.Rate)*v.Window.Seconds() < 1 {
			continue
		}
		if !v.harmed(plane) {
			continue
		}
		shed := v.shedOf(plane)
		out = append(out, Finding{Severity: Warning,
			cause: cause{layer: layerLoad, effect: true, explains: []reach{{member: v.Member, plane: plane}}},
			Plane: plane, Stage: "queue",
			Culprit: who, subject: plane + who, Since: s.Since,
			Title: fmt.Sprintf("%s: %s sends %.0f %% of the requests to %s, and others wait for it", v.Member, who,
				100*s.Now.Rate/totals[plane], plane),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%.0f of %.0f requests per second%s", s.Now.Rate, totals[plane],
				usually(s))},
				{Text: fmt.Sprintf("%.1f requests per second were rejected for lack of capacity", shed)}},
			Do: []string{"Limit it: a rate-limit quota (secrets), limits{} or request_limits (catalog), for its " +
				"token or address.", "Ask its owner what it does: a loop without back-off looks like this."}})
	}
	return out
}

// harmed reports whether requests of a plane are slow or turned away on this member.
func (v *view) harmed(plane string) bool {
	if v.shedOf(plane) > 0 {
		return true
	}
	for _, y := range v.symptoms() {
		if y.plane == plane {
			return true
		}
	}
	return false
}

// suffers reports whether requests of a plane ("" is any) are slow on this member beyond what a used up CPU excuses.
func (v *view) suffers(plane string) bool {
	for _, y := range v.symptoms() {
		if (plane == "" || y.plane == plane) && !excused(v, &y) {
			return true
		}
	}
	return false
}

// shedOf is how many requests a second of a plane are turned away because a queue is full.
func (v *view) shedOf(plane string) float64 {
	return v.rate("group.shed", "group", plane) + v.rate("request.shed", "plane", plane)
}

// overloaded finds a plane that turns requests away.
func overloaded(v *view) []Finding {
	var out []Finding
	for _, plane := range []string{"catalog", "mesh", "secrets", "monitor"} {
		shed := v.shedOf(plane)
		if shed*v.Window.Seconds() < 20 {
			continue
		}
		f := Finding{Severity: Warning,
			cause: cause{layer: layerSymptom, effect: true},
			Plane: plane, Stage: "queue",
			Culprit: "queue of " + plane, subject: plane,
			Title: fmt.Sprintf("%s: %s rejects %.0f requests per second: its queue is full", v.Member, plane, shed),
			Evidence: []Line{{Key: "request.shed", Text: fmt.Sprintf("%.0f requests in %s got 429 or 503 with Retry-After",
				shed*v.Window.Seconds(), v.Window)}},
			Do: []string{"See above what slows the plane; if nothing does, the load exceeds what this cluster can handle: " +
				"add CPU, or limit the busiest client."}}
		if s := v.one("group.shed", "group", plane); s != nil {
			f.Since = s.Since
		}
		out = append(out, f)
	}
	return out
}

// handlerHangs finds a handler whose workers are all busy with something that does not end.
func handlerHangs(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("pipeline.oldest_ms") {
		name := s.Label("handler")
		queued, _ := v.value("pipeline.queued", "handler", name)
		lost := v.one("pipeline.merged", "handler", name)
		if s.Now.Value < 5000 || (queued < 1 && s.Now.Value < 20000) {
			continue
		}
		f := Finding{Severity: Warning,
			cause: cause{layer: layerWork, explains: []reach{{member: v.Member, plane: "monitor", stage: "handler"}}},
			Plane: "monitor", Stage: "handler", Culprit: "handler " + name,
			subject: name, Since: v.ago(s.Now.Value),
			Title: fmt.Sprintf("%s: the handler %s hangs: it has been running its oldest event for %s", v.Member, name,
				millis(s.Now.Value)),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("its oldest run has taken %s; %.0f events wait behind it",
				millis(s.Now.Value), queued)}},
			Do: []string{"Check what it runs or connects to, and give it a timeout: docs/monitor.md covers handlers and " +
				"their timeouts.",
				"Other handlers continue; the queue of this one keeps the newest event of each check."}}
		if lost != nil && lost.Now.Sum > 0 {
			f.Evidence = append(f.Evidence, Line{Key: lost.Key(),
				Text: fmt.Sprintf("%.0f events were merged into newer ones of the same check in %s", lost.Now.Sum, v.Window)})
		}
		out = append(out, f)
	}
	return out
}

// subscriberSlow finds a subscriber that does not read what it asked for.
func subscriberSlow(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("subscriber.lag_ms") {
		kind, who := s.Label("kind"), s.Label("who")
		if s.Now.Value < 2000 {
			continue
		}
		out = append(out, Finding{Severity: Warning,
			cause: cause{layer: layerWork},
			Stage: "write", Culprit: kind + " subscriber " + who,
			subject: kind + who, Since: v.ago(s.Now.Value),
			Title: fmt.Sprintf("%s: the %s subscriber %s is not reading: it is %s behind", v.Member, kind, who,
				millis(s.Now.Value)),
			Evidence: []Line{{Key: s.Key(),
				Text: fmt.Sprintf("data for it has been waiting for %s; others are not held up", millis(s.Now.Value))}},
			Do: []string{"Look at that process: is it stopped, swapping, or busy in one thread? It is disconnected " +
				"automatically and starts again from a snapshot."},
		})
	}
	if cut := v.one("subscriber.cut"); cut != nil && cut.Now.Sum >= 1 && len(out) == 0 {
		out = append(out, Finding{Severity: Warning,
			cause: cause{layer: layerWork},
			Stage: "write", Culprit: cut.Label("kind") +
				" subscriber " + cut.Label("who"), subject: "cut", Since: cut.Since,
			Title: fmt.Sprintf("%s: a %s subscriber was disconnected because it did not read: %s", v.Member, cut.Label("kind"),
				cut.Label("who")),
			Evidence: []Line{{Key: cut.Key(), Text: fmt.Sprintf("%.0f times in %s", cut.Now.Sum, v.Window)}},
			Do: []string{"Look at that process and its host; it starts again from a snapshot each time, which costs " +
				"more than keeping up."},
		})
	}
	return out
}

// terminatingInstance finds requests to an instance that has said that it goes.
func terminatingInstance(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("drain.new_connections") {
		if s.Now.Sum < 1 {
			continue
		}
		what := s.Label("service")
		out = append(out, Finding{Severity: Warning,
			cause: cause{layer: layerWork, explains: []reach{{member: v.Member, plane: "mesh"}}},
			Plane: "mesh", Stage: "network",
			Culprit: "terminating instance " + what, subject: what, Since: s.Since,
			Title: fmt.Sprintf("%s: %s is draining and still gets new connections", v.Member, what),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%.0f new connections in %s, after all proxies that watch it "+
				"had confirmed", s.Now.Sum, v.Window)}},
			Do: []string{"Find clients that bypass the catalog (ss -tn on this host shows their addresses): they keep DNS " +
				"answers beyond their TTL, or have addresses in their configuration.",
				"Let the instance wait before it stops: corbel services drain --wait, as a pre-stop hook."}})
	}
	return out
}

// configRefused finds configuration that proxies refuse.
func configRefused(v *view) []Finding {
	nacks := v.one("xds.nacks")
	if nacks == nil || nacks.Now.Sum < 1 {
		return nil
	}
	return []Finding{{Severity: Warning,
		cause: cause{layer: layerWork},
		Plane: "mesh", Culprit: "configuration of proxies",
		Since:    nacks.Since,
		Title:    fmt.Sprintf("%s: proxies reject their configuration and keep the last good one", v.Member),
		Evidence: []Line{{Key: nacks.Key(), Text: fmt.Sprintf("%.0f rejections in %s", nacks.Now.Sum, v.Window)}},
		Do: []string{"Read Envoy's message: corbel mesh status lists the rejections, corbel mesh proxy NAME shows the " +
			"last one."}}}
}

// Goroutines are too many from growsFrom on when they become so many more a second over the longest history kept:
// growsSlowly (a thousand in five minutes) far beyond what is usual, growsFast where nobody knows yet what that is.
const (
	growsFrom   = 10_000
	growsSlowly = 1000.0 / 300
	growsFast   = 50
)

// goroutinesGrow finds a process whose goroutines only become more.
func goroutinesGrow(v *view) []Finding {
	s := v.one("runtime.num_goroutines")
	if s == nil || s.Now.Value < growsFrom || s.Now.Slope < growsSlowly ||
		(s.times() < 3 && (s.Usual.Known() || s.Now.Slope < growsFast)) {
		return nil
	}
	f := Finding{Severity: Warning,
		cause:   cause{layer: layerWork},
		Culprit: "goroutines of " + v.Member, Since: s.Since,
		Title: fmt.Sprintf("%s: the number of goroutines keeps growing: %.0f now, %.0f per minute", v.Member, s.Now.Value,
			60*s.Now.Slope),
		Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%.0f goroutines%s", s.Now.Value, usually(s))}},
		Do: []string{"Save an archive (corbel debug) and report it: its goroutine profile shows where they are.",
			"Restarting this member buys time; the others carry on."}}
	for _, st := range v.Stacks {
		if st.Kind == StackWaiting && st.Share > 0.3 {
			f.Evidence = append(f.Evidence, Line{Text: st.words()})
			break
		}
	}
	return []Finding{f}
}

// garbageCollection finds a process that spends its CPU on collecting.
func garbageCollection(v *view) []Finding {
	share, ok := v.value("runtime.gc_cpu")
	if !ok || share < 0.4 {
		return nil
	}
	s := v.one("runtime.gc_cpu")
	return []Finding{{Severity: Warning,
		cause:   cause{layer: layerMachine, explains: []reach{{member: v.Member}}},
		Culprit: "garbage collection", Since: s.Since,
		Title: fmt.Sprintf("%s: garbage collection uses %.0f %% of its CPU", v.Member, 100*share),
		Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%.0f %% of the CPU time that this process had%s", 100*share,
			usually(s))}},
		Do: []string{"It is close to its memory limit: raise GOMEMLIMIT or the container's limit.",
			"The heap profile of corbel debug shows what holds the memory."}}}
}
