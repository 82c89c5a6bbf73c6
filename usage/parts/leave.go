package parts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/definitions"
)

const (
	// leaveWithin bounds what a stop waits for copies of the parts that this server leads alone.
	leaveWithin = 10 * time.Second
	// readyWithin bounds what a start waits for copies of all parts.
	readyWithin = 2 * time.Minute
	// maxAway bounds the servers that are known to be away.
	maxAway = 64
)

// Leave tells the others that this server is about to be stopped by plan, so that its parts wait for it to come back,
// and waits until each part that it leads has a copy to which it can be handed over: while there is another server that
// may have one, until ctx ends, and no longer than leaveWithin. Events are taken all the while.
func (p *Parts) Leave(ctx context.Context) {
	if p.leaving.Swap(true) || p.cfg.Shared {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	tellLeave(ctx, p)
	began, told := p.cfg.Clock.Now(), false
	for p.alone() > 0 && othersStay(ctx, p) {
		if !told {
			told = true
			p.cfg.Log.Info("usage: this server leads parts that have no copy, and makes them before it stops", "parts",
				p.alone())
		}
		changed := p.cfg.Definitions.Changed()
		t := p.cfg.Clock.NewTimer(look)
		select {
		case <-ctx.Done():
			t.Stop()
			p.cfg.Log.Warn("usage: this server stops with parts that nobody else has: they wait for it", "parts", p.alone())
			return
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
	if told {
		p.cfg.Log.Info("usage: this server leads no part alone any more", "after", p.cfg.Clock.Since(began))
	}
}

// tellLeave tells all others that this server leaves. Who does not hear it makes copies elsewhere at once.
func tellLeave(ctx context.Context, p *Parts) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range p.cfg.Voters() {
		if s != p.cfg.Self {
			wg.Go(func() {
				_, err := p.cfg.Call(ctx, s, MethodLeaves, pack.String(nil, p.cfg.Self))
				if err != nil && ctx.Err() == nil {
					p.cfg.Log.Debug("usage: a server was not told that this one leaves", "server", s, "error", err)
				}
			})
		}
	}
}

// othersStay says whether another server is there that does not leave, too.
func othersStay(ctx context.Context, p *Parts) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, s := range p.cfg.Voters() {
		if s == p.cfg.Self {
			continue
		}
		reply, err := p.cfg.Call(ctx, s, MethodPing, nil)
		if r := pack.Read(reply); err == nil && !(r.More() && r.Bool()) {
			return true
		}
	}
	return false
}

// serveLeaves notes that a server is about to be stopped by plan.
func (p *Parts) serveLeaves(_ context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	server := r.String()
	if err := p.check(r.Err(), server); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Clock.Now()
	maps.DeleteFunc(p.away, func(_ string, a absence) bool { return a.over(p.cfg, now) })
	if _, is := p.away[server]; is || len(p.away) < maxAway {
		p.away[server] = absence{since: now, table: p.cfg.Definitions.View()}
	}
	return nil, nil
}

// absence is that of a server that was stopped by plan.
type absence struct {
	since, back time.Time         // since when, and until when: zero while it is not back
	table       *definitions.View // as it was when the server said that it leaves
}

// over says that the server is not waited for any more.
func (a absence) over(cfg Config, now time.Time) bool { return now.Sub(a.since) >= cfg.Return }

// waitsFor says whether a part that a server lost at a moment waits for it. One that came back and is gone again did
// not say that it would be.
func waitsFor(p *Parts, server string, lost time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, is := p.away[server]
	return is && !a.over(p.cfg, p.cfg.Clock.Now()) && (a.back.IsZero() || !lost.After(a.back))
}

func names(part definitions.Part, server string) bool {
	return part.Lead == server || part.Copy == server
}

// returned notes who is back: the table names it for a part that it had not, or had when it left.
func returned(p *Parts, part string, was, now definitions.Part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, server := range []string{now.Lead, now.Copy} {
		a, is := p.away[server]
		if !is || !a.back.IsZero() || names(was, server) {
			continue
		}
		left := a.table.Part(part)
		if now.Epoch > left.Epoch && (was.Lead != "" && was.Epoch >= left.Epoch || !names(left, server)) {
			a.back = p.cfg.Clock.Now()
			p.away[server] = a
		}
	}
}

// watch notes who had the part beside this server.
func (t *part) watch(now definitions.Part) {
	was := t.seen
	if t.seen = now; was == now {
		return
	}
	returned(t.p, t.name, was, now)
	switch self := t.p.cfg.Self; {
	case now.Copy != "" || now.Lead != self:
		t.missing = ""
	case was.Lead == self && was.Copy != "":
		t.missing, t.lost = was.Copy, t.p.cfg.Clock.Now()
	case was.Copy == self:
		t.missing, t.lost = was.Lead, t.p.cfg.Clock.Now()
	}
}

// awaited is the server for which a part without a copy waits before another one gets it: it was stopped by plan not
// long ago, and has all but the last records. "" is none. A server that leaves itself does not wait.
func (t *part) awaited(now definitions.Part, voters []string) string {
	if now.Copy != "" || t.missing == "" || t.p.leaving.Load() || !slices.Contains(voters, t.missing) {
		return ""
	}
	if !waitsFor(t.p, t.missing, t.lost) {
		return ""
	}
	return t.missing
}

// yieldWithin bounds what a lead is waited for that is asked to give a part up: it waits for an append and for the Raft
// group.
const yieldWithin = turnWithin + heldWithin

// askYield has the lead of a part give it to its copy: with no append under way, so that nobody is left in doubt. A
// former version does not know how.
func askYield(ctx context.Context, p *Parts, name string, was, next definitions.Part) error {
	within, cancel := context.WithTimeout(ctx, yieldWithin)
	defer cancel()
	req := pack.String(pack.Uint(pack.String(nil, name), was.Epoch), next.Lead)
	var err error
	if was.Lead == p.cfg.Self {
		_, err = p.serveYield(within, req)
	} else {
		_, err = p.cfg.Call(within, was.Lead, MethodYield, req)
	}
	if err != nil && ctx.Err() == nil {
		p.cfg.Log.Info("usage: a lead does not give its part up", "part", name, "lead", was.Lead, "error", err)
	}
	return err
}

// serveYield gives a part that this server leads to its copy, and stays as the copy.
func (p *Parts) serveYield(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	name, epoch, next := r.String(), r.Uint(), r.String()
	if err := p.check(r.Err(), name); err != nil {
		return nil, err
	}
	t := p.find(name)
	if t == nil {
		return nil, errNoPart
	}
	now := t.now()
	if now.Epoch != epoch || now.Lead != p.cfg.Self || now.Copy != next || next == "" || p.draining.Load() {
		return nil, errkind.Errorf(errkind.Conflict, "usage: part %s is at epoch %d, not at %d", name, now.Epoch, epoch)
	}
	if err := t.there(ctx, next); err != nil {
		return nil, err
	}
	began := p.cfg.Clock.Now()
	err := t.hand(ctx, now, next, now.Lead)
	if err == nil {
		p.cfg.Log.Info("usage: a part is handed over", "part", name, "from", p.cfg.Self, "to", next, "after",
			p.cfg.Clock.Since(began))
	}
	return nil, err
}

// heldWithin bounds how long appends wait until it is decided that another server leads their part. Where that takes
// longer this server goes on, until the table says that it leads no more.
const heldWithin = time.Second

// still waits for an append that is under way.
func still(ctx context.Context, t *part) error {
	ctx, cancel := context.WithTimeout(ctx, turnWithin)
	defer cancel()
	return t.Counter.Share().Still(ctx)
}

// hand gives a part that this server leads to another server, with no append under way.
func (t *part) hand(ctx context.Context, was definitions.Part, lead, other string) error {
	wait, cancel := context.WithTimeout(ctx, turnWithin)
	defer cancel()
	return t.Counter.Share().Yield(wait, was.Epoch+1, func() error {
		ctx, cancel := context.WithTimeout(ctx, heldWithin)
		defer cancel()
		return t.change(ctx, was, lead, other)
	})
}

// takesWithin is how long events wait where they came, while this server becomes the lead of their part.
const takesWithin = 250 * time.Millisecond

// Await returns when a part that this server leads takes events, when another one leads it, or after a moment.
func (p *Parts) Await(ctx context.Context, name string) {
	c := p.Local(name)
	if c == nil || c.Leads() {
		return
	}
	limit := p.cfg.Clock.NewTimer(takesWithin)
	defer limit.Stop()
	for c != nil && !c.Leads() {
		changed := p.cfg.Definitions.Changed()
		select {
		case <-c.Share().Opened():
			return
		case <-changed:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
		c = p.Local(name)
	}
}

// Lacks is what a start waits for, so that who stops one server after the other may stop the next one: it is known
// which parts this server has, those that it leads take events, and each part has a copy. After readyWithin it waits no
// more, for it may be another server that is at fault.
func (p *Parts) Lacks() (list []string) {
	p.mu.Lock()
	began := p.began
	p.mu.Unlock()
	switch {
	case p.cfg.Copies < 2 || !began.IsZero() && p.cfg.Clock.Since(began) > readyWithin:
		return nil
	case !p.settled.Load(): // the table may be an old one, or empty
		return []string{"usage plane: it is not known yet which parts this server has"}
	case len(p.cfg.Voters()) < 2:
		return nil
	}
	view := p.cfg.Definitions.View()
	for _, name := range view.Owners {
		switch now := view.Part(name); {
		case now.Lead == p.cfg.Self && !p.find(name).warm():
			list = append(list, fmt.Sprintf("usage plane: part %.60s is being loaded", name))
		case now.Copy == "":
			list = append(list, fmt.Sprintf("usage plane: part %.60s has no copy", name))
		}
	}
	return list
}
