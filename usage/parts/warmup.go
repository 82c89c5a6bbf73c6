package parts

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage/route"
)

// warmup tells how far this server is with what it has to count, in shards: a part has those of which it is the owner
// by rendezvous, as the router sends their events.
type warmup struct {
	p       *Parts
	shares  atomic.Pointer[shares]
	seconds *telemetry.Gauge
	since   time.Time // since when shards have been loaded; zero while none are. Run alone uses it
}

// shares are how many shards each part has.
type shares struct {
	names []string
	of    map[string]int
}

func newWarmup(p *Parts) *warmup {
	w := &warmup{p: p, seconds: p.cfg.Metrics.Gauge("usage.warmup.seconds")}
	m := p.cfg.Metrics
	m.Declare(telemetry.KindGauge, "usage.warmup.seconds", "How long this server has been loading what it has to count, "+
		"or took the last time.")
	for name, row := range map[string]struct {
		help string
		of   func(t *part, leads bool) bool
	}{
		"usage.shards.owned": {"Shards, of 4,096, whose events this server counts.",
			func(_ *part, leads bool) bool { return leads }},
		"usage.shards.warm": {"Of these, those that have counted what is stored, and take events.",
			func(t *part, leads bool) bool { return leads && t.warm() }},
		"usage.warmup.shards": {"Shards that this server is loading: it counts them, or is to have their copy.",
			func(t *part, _ bool) bool { return !t.warm() }},
	} {
		m.Declare(telemetry.KindGauge, name, row.help)
		m.GaugeFunc(name, func() float64 { return float64(w.count(row.of)) })
	}
	return w
}

// count adds up the shards of the parts of this server that are so.
func (w *warmup) count(is func(t *part, leads bool) bool) (n int) {
	view := w.p.cfg.Definitions.View()
	names := w.p.Names()
	now := w.shares.Load()
	if now == nil || !slices.Equal(now.names, names) {
		now = &shares{names, route.Shares(names)}
		w.shares.Store(now)
	}
	for _, name := range names {
		has := view.Part(name)
		if has.Lead != w.p.cfg.Self && has.Copy != w.p.cfg.Self {
			continue
		}
		if is(w.p.find(name), has.Lead == w.p.cfg.Self) {
			n += now.of[name]
		}
	}
	return n
}

// look notes how long shards have been loaded, and returns when to look again.
func (w *warmup) look() time.Duration {
	now := w.p.cfg.Clock.Now()
	loading := w.count(func(t *part, _ bool) bool { return !t.warm() }) > 0
	switch {
	case loading && w.since.IsZero():
		w.since = now
	case !w.since.IsZero():
		w.seconds.Set(now.Sub(w.since).Seconds())
	}
	if !loading {
		w.since = time.Time{}
		return time.Second
	}
	return look / 2
}

// warm says whether a part has counted all that it has and, where this server leads it, takes events; nil has not.
func (t *part) warm() bool {
	if t == nil || !t.Counter.Warm() {
		return false
	}
	return t.Counter.Leads() || t.now().Lead != t.p.cfg.Self
}

// loads says whether records that come are a part's past: this server is to have its copy, or is named as that and its
// disk is new. A log of which nothing was trimmed comes that way, from its first record on, and not as a state.
func (t *part) loads(ctx context.Context) bool {
	if now := t.now(); now.Lead != t.p.cfg.Self && now.Copy != t.p.cfg.Self {
		return true
	}
	whole, err := t.Counter.Share().Whole(ctx)
	return err == nil && !whole
}

// received notes bytes that came from another server, by its budget, for a part that is not warm.
func (p *Parts) received(bytes int) {
	p.lane.Loaded(bytes)
}
