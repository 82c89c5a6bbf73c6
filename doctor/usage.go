package doctor

import (
	"fmt"
	"math"
	"time"
)

const (
	// eventsWait is how long usage events may wait to be stored and counted.
	eventsWait = 2 * time.Second
	// aloneLong is how long a part of the usage log may have no copy: a restart of the other server takes less.
	aloneLong = time.Minute
	// drainLong is how long clients may need to let go of a cache host that drains.
	drainLong = 10 * time.Second
	// boundPart is which part of a window loads wait for their budget where it is what they are as slow as.
	boundPart = 0.5
	// unjudgedLong is how long a limit may not be judged.
	unjudgedLong = time.Minute
	// undeliveredLong is how long events may wait on an agent: servers that are rolled are away for less.
	undeliveredLong = 30 * time.Second
	// missedPart is which part of the accesses to a cache are too many misses, missesOfNote how many in a window.
	missedPart, missesOfNote = 0.2, 100
	// coldFor is how long after a start misses are its consequence.
	coldFor = 15 * time.Minute
)

// usageBacklog finds events that wait to be counted.
func usageBacklog(v *view) []Finding {
	oldest := v.one("usage.counter.oldest_age")
	if oldest == nil || oldest.Now.Value < millisOf(eventsWait) {
		return nil
	}
	f := Finding{Severity: Warning, cause: cause{layer: layerWork, effect: true}, Plane: "usage", Stage: "queue",
		Culprit: "counter of " + v.Member, Since: v.ago(oldest.Now.Value),
		Title: fmt.Sprintf("%s: usage events have waited for %s to be counted", v.Member, millis(oldest.Now.Value)),
		Evidence: []Line{{Key: oldest.Key(), Text: fmt.Sprintf("the oldest batch waits for %s%s", millis(oldest.Now.Value),
			usually(oldest))}},
		Do: []string{"Look at the disk and at the server with the copy first: each event is on both before it is counted.",
			"If senders send more than this server counts, add a server with usage.enabled and PUT /v1/usage/servers."}}
	if s := v.one("usage.counter.backlog"); s != nil {
		f.Evidence = append(f.Evidence, Line{Key: s.Key(), Text: fmt.Sprintf("%.1f MiB wait", s.Now.Value/(1<<20))})
	}
	for _, name := range []string{"usage.log.append", "usage.counter.apply"} {
		if s := v.one(name); s != nil && s.Now.Count >= fewest {
			f.Evidence = append(f.Evidence, Line{Key: s.Key(), Text: fmt.Sprintf("%s takes %s on average, %s at the 99th "+
				"percentile", name, millis(s.Now.Mean), millis(s.Now.P99))})
		}
	}
	return []Finding{f}
}

// usageAgentBehind finds agents whose buffer grows since no server takes their events.
func usageAgentBehind(v *view) []Finding {
	oldest := v.one("usage.agent.oldest_ms")
	if oldest == nil || oldest.Now.Value < millisOf(undeliveredLong) {
		return nil
	}
	f := Finding{Severity: Warning, cause: cause{layer: layerWork, effect: true}, Plane: "usage", Stage: "queue",
		Culprit: "buffer of " + v.Member, Since: v.ago(oldest.Now.Value),
		Title: fmt.Sprintf("%s: usage events have waited for %s on this agent's disk", v.Member,
			millis(oldest.Now.Value)),
		Evidence: []Line{{Key: oldest.Key(), Text: fmt.Sprintf("the oldest event waits for %s%s",
			millis(oldest.Now.Value), usually(oldest))}},
		Do: []string{"The agent's log says why servers do not take its events: they are away, or its token " +
			"(acl.tokens.agent) has no usage:write on their tenants.",
			"Nothing is lost while the buffer has room (usage.agent.buffer_bytes); then senders get 429."}}
	if s := v.one("usage.agent.buffer_bytes"); s != nil {
		f.Evidence = append(f.Evidence, Line{Key: s.Key(), Text: fmt.Sprintf("the buffer has %.1f MiB",
			s.Now.Value/(1<<20))})
	}
	if s := v.one("usage.agent.failed"); s != nil && s.Now.Sum >= 1 {
		f.Evidence = append(f.Evidence, Line{Key: s.Key(), Text: fmt.Sprintf("%.0f deliveries failed in %s", s.Now.Sum,
			v.Window)})
	}
	if s := v.one("usage.agent.refused"); s != nil && s.Now.Sum >= 1 {
		f.Severity = Critical
		f.Evidence = append(f.Evidence, Line{Key: s.Key(), Text: fmt.Sprintf("the buffer is full: %.0f events were "+
			"refused in %s", s.Now.Sum, v.Window)})
	}
	return []Finding{f}
}

// usageDropped finds events that are refused, or lost where a door cannot refuse them.
func usageDropped(v *view) []Finding {
	var out []Finding
	for _, k := range []struct {
		name, what string
		severity   Severity
	}{{"usage.statsd.dropped", "metrics of the dogstatsd door were lost: nobody sends them again", Critical},
		{"usage.events.refused", "usage events were refused: senders send them again", Warning}} {
		s := v.one(k.name)
		if s == nil || s.Now.Sum < 1 {
			continue
		}
		out = append(out, Finding{Severity: k.severity, cause: cause{layer: layerSymptom, effect: true}, Plane: "usage",
			Stage: "queue", Culprit: k.name + " of " + v.Member, subject: k.name, Since: s.Since,
			Title:    fmt.Sprintf("%s: %.0f %s", v.Member, s.Now.Sum, k.what),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%s rose by %.0f in %s", k.name, s.Now.Sum, v.Window)}},
			Do: []string{"See above what slows the counters; if nothing does, corbel usage top names who sends most.",
				"A tenant has a quarter of usage.queue_bytes: raise it, or have senders send larger batches less often."}})
	}
	return out
}

// usagePartUnplaced finds parts of the log of events that no server can lead.
func usagePartUnplaced(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("usage.parts.unplaced_ms") {
		part := s.Label("part")
		has := "no copy"
		if other := s.Label("copy"); other != "" {
			has = "its copy on " + other + ", which is silent too"
		}
		out = append(out, Finding{Severity: Critical, cause: cause{layer: layerWork, effect: true}, Plane: "usage",
			Stage: "place", Culprit: "part " + part, subject: everywhere + part, Since: v.ago(s.Now.Value),
			Title: fmt.Sprintf("nobody can take over part %s of the usage log: its events are refused", part),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("its lead %s has been silent for %s, and it has %s",
				s.Label("lead"), millis(s.Now.Value), has)}},
			Do: []string{"Bring back one of its servers: its disk has what was acknowledged.",
				"If both disks are lost, PUT /v1/usage/servers without it: what it counted is missing from then on."}})
	}
	return out
}

// usagePartAlone finds parts whose events are on one disk.
func usagePartAlone(v *view) []Finding {
	age, _ := v.value("usage.parts.alone_ms")
	if age < millisOf(aloneLong) {
		return nil
	}
	parts, _ := v.value("usage.parts.alone")
	return []Finding{{Severity: Warning, cause: cause{layer: layerWork, effect: true}, Plane: "usage", Stage: "place",
		Culprit: "copies of " + v.Member, Since: v.ago(age),
		Title: fmt.Sprintf("%s: %.0f parts of the usage log have had no copy for %s: the loss of this disk loses events",
			v.Member, max(parts, 1), millis(age)),
		Evidence: []Line{{Key: "usage.parts.alone_ms", Text: "no other server has had a copy since then"}},
		Do: []string{"Bring back the server that had the copy, or add another one: it is copied to by itself.",
			"The log of this server says why a server that is there does not become the copy."}}}
}

// usageWarmupBound finds servers whose shards load no faster than the budget for that lets them. To save the state
// slowly is no matter.
func usageWarmupBound(v *view) []Finding {
	waited := 0.0
	var lines []Line
	var since time.Time
	for _, s := range v.all("usage.warmup.waited_ms") {
		of := s.Label("of")
		if of == "saving" || s.Now.Sum <= 0 {
			continue
		}
		waited += s.Now.Sum
		what := "loads from the " + of
		switch of {
		case "server":
			what = "what this server gives to others that load"
		case "misses":
			what = "single keys"
		case "s3", "postgresql":
			what = "loads from " + of
		}
		lines = append(lines, Line{Key: s.Key(), Text: fmt.Sprintf("%s waited for %s of %s", what, millis(s.Now.Sum),
			v.Window)})
		if since.IsZero() || s.Since.Before(since) {
			since = s.Since
		}
	}
	if waited < boundPart*millisOf(v.Window) {
		return nil
	}
	f := Finding{Severity: Warning, cause: cause{layer: layerWork, effect: true}, Plane: "usage", Stage: "network",
		Culprit: "warm-up budget of " + v.Member, Since: since,
		Title: v.Member + ": usage shards load as slowly as their budget says: until they are warm, estimates are lower " +
			"bounds, or parts have no copy",
		Evidence: lines,
		Do: []string{"Wait, if it is a rollout and intake is quiet: that is what the budget is for.",
			"Raise usage.log.warmup_bytes where the link has room; by default it is 30 % of the speed of the card, or of an " +
				"unknown card 64 MiB a second."}}
	if budget, ok := v.value("usage.warmup.budget"); ok {
		f.Evidence = append(f.Evidence, Line{Key: "usage.warmup.budget", Text: fmt.Sprintf("the budget is %.1f MiB a second",
			budget/(1<<20))})
	}
	if shards, _ := v.value("usage.warmup.shards"); shards > 0 {
		f.Evidence = append(f.Evidence, Line{Key: "usage.warmup.shards", Text: fmt.Sprintf("%.0f shards are loading here",
			shards)})
	}
	return []Finding{f}
}

// usageDrainWaits finds clients that go on to use a cache host that has said that it goes.
func usageDrainWaits(v *view) []Finding {
	age, _ := v.value("usage.drain.ms")
	waiting := v.one("usage.drain.waiting")
	if waiting == nil || waiting.Now.Value < 1 || age < millisOf(drainLong) {
		return nil
	}
	f := Finding{Severity: Warning, cause: cause{layer: layerWork, explains: []reach{{member: v.Member, plane: "usage"}}},
		Plane: "usage", Stage: "network", Culprit: "terminating cache host " + v.Member, Since: v.ago(age),
		Title: fmt.Sprintf("%s: its cache has drained for %s, and %.0f clients still send it requests", v.Member,
			millis(age), waiting.Now.Value),
		Evidence: []Line{{Key: waiting.Key(), Text: fmt.Sprintf("%.0f connections, not counting health checks",
			waiting.Now.Value)}},
		Do: []string{"Have the client's proxy check the host with EXISTS of the maintenance key (mesh: protocol = redis), " +
			"or the client itself: their requests fail at the ceiling.",
			"corbel usage drain shows whom it waits for; usage.drain.ceiling ends the wait."}}
	for _, s := range v.all("usage.drain.client") {
		if s.Now.Value > 0 {
			f.Evidence = append(f.Evidence, Line{Key: s.Key(), Text: fmt.Sprintf("%s has %.0f of them", s.Label("client"),
				s.Now.Value)})
		}
	}
	return []Finding{f}
}

// usageLimitUnjudged finds limits whose crossing nobody would be told of.
func usageLimitUnjudged(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("usage.limits.unjudged_ms") {
		if s.Now.Value < millisOf(unjudgedLong) {
			continue
		}
		name := s.Label("limit")
		why := "its usage cannot be asked for"
		do := "Ask for it: corbel usage estimates PRODUCT --tenant TENANT says why."
		switch s.Label("reason") {
		case "undefined":
			why = "its product is not defined"
			do = "Define the product, or delete the limit: corbel usage limits delete " + name + "."
		case "incomplete":
			why = "a server does not answer, so that its usage is a lower bound"
			do = "Bring the server back: completeness of any estimate names it."
		}
		out = append(out, Finding{Severity: Warning, cause: cause{layer: layerWork, effect: true}, Plane: "usage",
			Stage: "judge", Culprit: "limit " + name, subject: everywhere + name, Since: v.ago(s.Now.Value),
			Title: fmt.Sprintf("the usage limit %s cannot be judged: %s", name, why),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("not for %s; a crossing would be told late, or not",
				millis(s.Now.Value))}},
			Do: []string{do}})
	}
	return out
}

// usageSenderClock finds senders whose clock is wrong.
func usageSenderClock(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("usage.sender.clock_ms") {
		who, off := s.Label("sender"), s.Now.Value
		if off == 0 {
			continue
		}
		way := "ahead of"
		evidence := "its newest events are of a time that has not come; more than ten minutes ahead are refused"
		if off < 0 {
			way = "behind"
			evidence = "even its newest events are that old, by the same in every batch"
		}
		out = append(out, Finding{Severity: Warning, cause: cause{layer: layerWork}, Plane: "usage", Stage: "intake",
			Culprit: "clock of sender " + who, subject: everywhere + who, Since: s.Since,
			Title:    fmt.Sprintf("the clock of the usage sender %s is %s %s this server's", who, millis(math.Abs(off)), way),
			Evidence: []Line{{Key: s.Key(), Text: evidence}},
			Do: []string{"Check the time service of the sender's host: chronyc tracking, timedatectl.",
				"Its usage counts in the wrong minutes; corbel usage correct can replace them."}})
	}
	return out
}

// usageIdentitiesExplode finds products that suddenly have many times as many identities.
func usageIdentitiesExplode(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("usage.identities.growth") {
		product, field := s.Label("product"), s.Label("field")
		if s.Now.Value <= 1 {
			continue
		}
		what := "identities"
		if field != "" {
			what = "values of " + field
		}
		out = append(out, Finding{Severity: Warning, cause: cause{layer: layerLoad}, Plane: "usage", Stage: "intake",
			Culprit: "identities of " + product, subject: product, Since: s.Since,
			Title: fmt.Sprintf("%s: the product %s has %.0f times as many %s as before", v.Member, product, s.Now.Value, what),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%s: %.0f times those of the last half hour, in the five "+
				"minutes of now", what, s.Now.Value)}},
			Do: []string{"Find who sends it: corbel usage top " + product + "; a request id or a time in that field is usual.",
				"Take the field out of the product's identity or tags, and void what was counted: corbel usage correct."}})
	}
	return out
}

// cacheAccess is what a host's cache was asked for in the window.
func (v *view) cacheAccess() (hits, misses, evicted float64) {
	sum := func(name string) float64 {
		if s := v.one(name); s != nil {
			return s.Now.Sum
		}
		return 0
	}
	return sum("usage.cache.hit"), sum("usage.cache.miss"), sum("usage.cache.evicted")
}

// usageCacheSmall finds a cache that drops what is asked for again.
func usageCacheSmall(v *view) []Finding {
	hits, misses, evicted := v.cacheAccess()
	if misses < missesOfNote || evicted < missesOfNote || misses < missedPart*(hits+misses) {
		return nil
	}
	limit, _ := v.value("usage.cache.limit")
	return []Finding{{Severity: Warning, cause: cause{layer: layerWork}, Plane: "usage", Stage: "cache",
		Culprit: "cache of " + v.Member, Since: v.one("usage.cache.evicted").Since,
		Title: fmt.Sprintf("%s: the cache is too small: %.0f %% of accesses miss, and live keys are dropped for room",
			v.Member, 100*misses/(hits+misses)),
		Evidence: []Line{{Key: "usage.cache.evicted", Text: fmt.Sprintf("%.0f keys were evicted in %s, with %.0f MiB in all",
			evicted, v.Window, limit/(1<<20))},
			{Key: "usage.cache.miss", Text: fmt.Sprintf("%.0f hits, %.0f misses", hits, misses)}},
		Do: []string{"Raise usage.cache.max_bytes, or add cache hosts.",
			"Look at usage.cache.tenant_bytes first: one tenant's keys without a time to live look like this."}}}
}

// usageCacheCold finds misses that come from a start and not from the cache's size.
func usageCacheCold(v *view) []Finding {
	hits, misses, evicted := v.cacheAccess()
	s := v.one("usage.cache.miss")
	if misses < missesOfNote || misses < missedPart*(hits+misses) || evicted >= missesOfNote ||
		s.Usual.Known() && s.times() < usualTimes {
		return nil
	}
	var fresh []string
	for i := range v.cluster.Members {
		if m := &v.cluster.Members[i]; !m.Began.IsZero() && m.At.Sub(m.Began) < coldFor {
			fresh = append(fresh, m.Member)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return []Finding{{Severity: Warning, cause: cause{layer: layerWork, effect: true}, Plane: "usage", Stage: "cache",
		Culprit: "rollout of " + some(fresh, 3), subject: "cold", Since: s.Since,
		Title: fmt.Sprintf("%s: %.0f %% of accesses to the cache miss while a rollout goes on", v.Member,
			100*misses/(hits+misses)),
		Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%.0f misses in %s%s; nothing was evicted, so the cache is not "+
			"too small", misses, v.Window, usually(s))},
			{Text: "started within the last quarter of an hour: " + some(fresh, 3)}},
		Do: []string{"Wait, or roll fewer hosts at once: misses end when the local caches are warm.",
			"A larger cache does not help."}}}
}

// cacheLarge says that a cache is not too small, and by how much less would do.
func cacheLarge(v *view) (Line, bool) {
	hits, misses, evicted := v.cacheAccess()
	limit, _ := v.value("usage.cache.limit")
	bytes, ok := v.value("usage.cache.bytes")
	if hits+misses < missesOfNote || evicted > 0 || !ok || limit <= 0 || bytes < 4<<20 {
		return Line{}, false
	}
	text := fmt.Sprintf("the cache is not too small: nothing was evicted, %.0f of %.0f MiB are in use", bytes/(1<<20),
		limit/(1<<20))
	if by := limit / max(2*bytes, 1<<20); by >= 2 {
		text += fmt.Sprintf("; a %.0fth of it would do, with as much again to spare", math.Floor(by))
	}
	return Line{Key: "usage.cache.bytes", Text: text}, true
}
