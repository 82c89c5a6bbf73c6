package monitorload

import (
	"context"
	"fmt"
	"time"

	"corbel.dev/corbel/bench"
)

// kill ends a server with SIGKILL, and waits until all its agents are elsewhere.
func (r *MonitorResult) kill(ctx context.Context, p *Plane) error {
	for i, s := range p.cluster.Servers {
		if (s.HTTP == p.cluster.HTTP) == (p.o.Kill == "leader") {
			p.dead = i
			break
		}
	}
	if p.dead < 0 {
		return fmt.Errorf("no %s to kill", p.o.Kill)
	}
	before, err := p.counts(ctx)
	if err != nil {
		return err
	}
	dead := p.dead
	p.dead = -1
	if _, err := p.Figures(ctx); err != nil { // what it tells last
		return err
	}
	p.dead = dead
	p.o.Say("killing %s ...", p.apis[p.dead])
	begin := time.Now()
	r.Kill = &Killed{Who: p.o.Kill, AlarmsAfter: p.Follow.alarms.Load(), at: begin}
	p.cluster.Servers[p.dead].Kill()
	// Agents see the end of their connection at once: first some are lost, then all are back.
	for deadline := begin.Add(killMost); ; bench.Settle(ctx, 10*time.Millisecond) {
		now, err := p.counts(ctx)
		if err != nil {
			return err
		}
		if r.Kill.Sessions = now.Lost - before.Lost; now.Sessions == int64(p.o.Agents) && (r.Kill.Sessions > 0 ||
			time.Since(begin) > time.Second) {
			break
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("only %d of %d sessions %s after the kill: %s", now.Sessions, p.o.Agents, killMost, now.Reason)
		}
	}
	r.Kill.BackSeconds = time.Since(begin).Seconds()
	return nil
}

// killMost bounds the wait for agents after a kill.
const killMost = 2 * time.Minute
