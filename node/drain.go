package node

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/notify"
)

// Drain takes the process out of use before it ends: it is not ready any more; with drain_wait the services of this
// host take no new work, and what they have is waited for; a server sends agents elsewhere and hands leadership over.
// What is asked meanwhile is answered. It returns early when ctx ends. leaves says that the process leaves the
// cluster afterwards.
func (p *localAgent) Drain(ctx context.Context, leaves bool) {
	p.doors.Ending.Store(true)
	p.mesh.SetServing(false)
	if cfg := p.Current(); cfg.Leave.DrainWait > 0 && (leaves || cfg.Given("drain_wait")) {
		p.drainServices(ctx, cfg.Leave.DrainWait)
	}
	p.doors.Planes.Quiesce(ctx)
	p.role.handOver(ctx)
}

func (p *localAgent) drainServices(ctx context.Context, wait time.Duration) {
	if !p.api.Agent.HasServices() {
		return
	}
	begin := time.Now()
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	p.Log.Info("draining this host's services; the next signal cuts it short", "drain_wait", wait)
	left, err := p.api.Agent.DrainAll(within, "the agent ends", func(id, waiting string) {
		if waiting == "" {
			p.Log.Info("a service is drained", "service", id)
			return
		}
		p.Log.Info("a service drains", "service", id, "waiting", waiting)
	})
	took := time.Since(begin).Round(time.Millisecond)
	switch {
	case err != nil:
		p.Log.Warn("the services are not drained", "error", err, "services", left, "took", took)
	case len(left) == 0:
		p.Log.Info("all services of this host are drained", "took", took)
	case ctx.Err() != nil:
		p.Log.Warn("draining was cut short: services still have work", "services", left, "took", took)
	default:
		p.Log.Warn("services still have work after drain_wait", "services", left, "took", took)
	}
}

// Health tells what the process waits for before it is ready, nothing when it is, and how far it has replayed its logs.
func (p *localAgent) Health() (h notify.Health) {
	if p.doors.Ending.Load() {
		return notify.Health{Lacks: []string{"the process ends"}}
	}
	list := p.role.missing()
	if !p.local.Answered() {
		list = append(list, "this host's registrations have not been compared with the catalog")
	}
	list = append(list, p.mesh.Lacks()...)
	if !p.warmed.Load() { // afterwards each plane speaks for itself
		list = append(list, p.doors.Planes.Lacks()...)
		h.Replayed, h.Entries = p.doors.Replay()
	}
	h.Lacks = list
	return h
}

// warmLook is how often it is looked whether the process is ready, warmSay after how long the log tells what it waits
// for.
const (
	warmLook = 100 * time.Millisecond
	warmSay  = 30 * time.Second
)

// warm says once that the process is ready, and what it waits for when that takes long. Until then the health service
// of the ports for Envoys says NOT_SERVING. A proxy that comes nevertheless waits until all is known that it needs.
func (p *localAgent) warm(ctx context.Context) error {
	defer p.role.stop()
	begin, said := p.Clock.Now(), p.Clock.Now()
	t := p.Clock.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		lacks := p.Health().Lacks
		if len(lacks) == 0 {
			break
		}
		if now := p.Clock.Now(); now.Sub(said) >= warmSay {
			said = now
			p.Log.Warn("not ready yet", "waiting", lacks, "for", now.Sub(begin).Round(time.Second))
		}
		t.Reset(warmLook)
	}
	p.warmed.Store(true)
	p.Log.Info("ready", "took", p.Clock.Since(begin).Round(time.Millisecond))
	p.mesh.SetServing(true)
	p.role.announceReady(ctx)
	<-ctx.Done()
	return nil
}
