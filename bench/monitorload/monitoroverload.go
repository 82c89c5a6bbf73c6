package monitorload

import (
	"context"
	"fmt"
	"time"

	"corbel.dev/corbel/bench"
)

// Flooded is what ten times too many results did. A result that was offered was sent, or held back by its agent since
// its server took nothing; one that was sent was stored, or counted as dropped, or is lost (MonitorResult).
type Flooded struct {
	Limit   float64 `json:"limit_per_second"`   // stored, when one of ten agents sends as fast as it can
	Offered float64 `json:"offered_per_second"` // during the overload
	Stored  float64 `json:"stored_per_second"`
	Goodput float64 `json:"goodput"` // of the limit
	Held    int64   `json:"held"`    // during the overload
	Dropped int64   `json:"dropped"`
	// Resident bytes of all servers: the most at the limit, and during the overload.
	RSSBefore int64 `json:"rss_before_bytes"`
	RSSPeak   int64 `json:"rss_peak_bytes"`
	// BackSeconds is how long after the overload, with half of the limit offered, nothing was held back, all was stored
	// as it came and no more waited than before the overload; as long as was waited for it at most, when it did not
	// come.
	BackSeconds float64 `json:"back_seconds"`
	Back        bool    `json:"back"`
}

const (
	overloadBy = 10
	// overloadPhase is how long the limit, and half of it, are measured at most.
	overloadPhase = 15 * time.Second
	overloadLook  = 250 * time.Millisecond
	backMost      = time.Minute
)

// span is what happened in a part of the run.
type span struct {
	seconds      float64
	stored, sent float64
	held         int64
	dropped      float64
	pending, rss float64 // the most
}

// look watches for a while.
func (p *Plane) look(ctx context.Context, d time.Duration) (s span, err error) {
	begin := time.Now()
	from, err := p.Figures(ctx)
	if err != nil {
		return s, err
	}
	sent, err := p.counts(ctx)
	if err != nil {
		return s, err
	}
	to := from
	for time.Since(begin) < d && ctx.Err() == nil {
		bench.Settle(ctx, min(overloadLook, d))
		if to, err = p.Figures(ctx); err != nil {
			return s, err
		}
		s.pending, s.rss = max(s.pending, to.pending), max(s.rss, float64(p.Usage().rss))
	}
	now, err := p.counts(ctx)
	if err != nil {
		return s, err
	}
	s.seconds = time.Since(begin).Seconds()
	s.stored, s.dropped = to.Stored-from.Stored, to.dropped-from.dropped
	s.sent, s.held = float64(now.Events-sent.Events), now.Held-sent.Held
	return s, ctx.Err()
}

// overload finds the limit with a tenth of the agents, has all of them send ten times as much, and then half of the
// limit.
func (r *MonitorResult) overload(ctx context.Context, p *Plane) error {
	first, err := p.Figures(ctx)
	if err != nil {
		return err
	}
	if err := p.Checks(ctx); err != nil {
		return err
	}
	f := &Flooded{}
	r.Overload = f
	phase := min(p.o.Duration, overloadPhase)
	if err := p.pace(ctx, 0, overloadBy); err != nil {
		return err
	}
	p.o.Say("one of ten agents sends as fast as it can, %s to warm up and %s measured ...", phase/5, phase)
	bench.Settle(ctx, phase/5)
	limit, err := p.look(ctx, phase)
	if err != nil {
		return err
	}
	f.Limit, f.RSSBefore = limit.stored/limit.seconds, int64(limit.rss)
	if f.Limit <= 0 {
		return fmt.Errorf("no result was stored in %s", phase)
	}
	p.o.Say("the limit is %.0f/s; half of it for %s ...", f.Limit, phase)
	if err := p.pace(ctx, f.Limit/2, 0); err != nil {
		return err
	}
	bench.Settle(ctx, phase/5)
	usual, err := p.look(ctx, phase)
	if err != nil {
		return err
	}
	p.o.Say("all agents send as fast as they can, and have ten times the limit to send, for %s ...", p.o.Duration)
	if err := p.pace(ctx, overloadBy*f.Limit, 1); err != nil {
		return err
	}
	p.Follow.Record(true)
	much, err := p.look(ctx, p.o.Duration)
	if err != nil {
		return err
	}
	p.Follow.Record(false)
	f.Stored, f.Offered = much.stored/much.seconds, (much.sent+float64(much.held))/much.seconds
	f.Goodput, f.Held, f.Dropped, f.RSSPeak = f.Stored/f.Limit, much.held, int64(much.dropped), int64(much.rss)
	r.EventsPerSecond, r.OfferedPerSecond = f.Stored, f.Offered
	if err := r.back(ctx, p, usual); err != nil {
		return err
	}
	now, err := p.counts(ctx)
	if err != nil {
		return err
	}
	r.Sessions, r.Reconnects = now.Sessions, now.Lost
	return r.finish(ctx, p, first)
}

// back offers half of the limit, and waits until all is as it was.
func (r *MonitorResult) back(ctx context.Context, p *Plane, usual span) error {
	f := r.Overload
	if err := p.pace(ctx, f.Limit/2, 0); err != nil {
		return err
	}
	p.o.Say("half of the limit again ...")
	begin, good := time.Now(), time.Time{}
	for time.Since(begin) < backMost {
		at := time.Now()
		s, err := p.look(ctx, 2*overloadLook)
		if err != nil {
			return err
		}
		switch {
		case s.held > usual.held || s.stored < 0.8*s.sent || s.pending > 2*usual.pending+1<<20:
			good = time.Time{}
		case good.IsZero():
			good = at
		case time.Since(good) > 4*overloadLook:
			f.Back, f.BackSeconds = true, good.Sub(begin).Seconds()
			return nil
		}
	}
	f.BackSeconds = time.Since(begin).Seconds()
	return nil
}

// text says whether what is promised of an overload was kept.
func (f *Flooded) text(r *MonitorResult) string {
	verdict := "kept"
	if f.Goodput < 0.9 || f.RSSPeak >= 2*f.RSSBefore || !f.Back || f.BackSeconds >= 10 || r.Lost != 0 {
		verdict = "NOT kept"
	}
	return fmt.Sprintf("  overload limit %.0f/s; offered %.0f/s, stored %.0f/s: %.0f %% of the limit; %d held back by "+
		"agents, %d dropped by servers, %d lost\n"+
		"           servers %.0f MiB at the limit, at most %.0f MiB (%.2f times) in the overload; as usual %.2f s after "+
		"(%v); what is promised is %s\n",
		f.Limit, f.Offered, f.Stored, 100*f.Goodput, f.Held, f.Dropped, r.Lost, float64(f.RSSBefore)/(1<<20),
		float64(f.RSSPeak)/(1<<20),
		float64(f.RSSPeak)/float64(max(f.RSSBefore, 1)), f.BackSeconds, f.Back, verdict)
}
