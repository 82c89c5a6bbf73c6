package scheduler

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/hub"
)

const (
	revealEvery = 30 * time.Second // values of secrets are this old at most
	revealTime  = 10 * time.Second // for those of one check
	revealing   = 8                // checks at once
)

// revealed are the variables of a check's secrets, or why they are not known.
type revealed struct {
	env []string
	err error
}

// reveals reports whether the check's secrets are for its agents, as far as certificates say who these are.
func (r *Scheduler) reveals(c *check) bool { return len(c.config.Secrets) > 0 && r.cfg.Secrets != nil }

// message makes what agents get of a request. Secrets are for those alone that are known by a certificate: while the
// values are not known these get nothing, since a check without its secrets tells nothing of what it looks at.
func (r *Scheduler) message(c *check, q *monitor.CheckRequest) *hub.Message {
	m := hub.NewMessage(hub.KindCheckRequest, q)
	if !r.reveals(c) {
		return m
	}
	r.mu.Lock()
	known := c.secrets
	r.mu.Unlock()
	if known == nil || known.err != nil {
		m.ForCertified(nil)
		return m
	}
	with := *q
	with.Secrets = known.env
	m.ForCertified(&with)
	return m
}

// reveal finds the values of a check's secrets.
func (r *Scheduler) reveal(ctx context.Context, c *check) {
	ctx, cancel := context.WithTimeout(ctx, revealTime)
	defer cancel()
	now := new(revealed)
	now.env, now.err = r.cfg.Secrets(ctx, c.key.namespace, c.config.Secrets)
	r.mu.Lock()
	before := c.secrets
	c.secrets = now
	r.mu.Unlock()
	if now.err != nil && ctx.Err() != context.Canceled && (before == nil || before.err == nil) {
		r.cfg.Log.Warn("cannot resolve the secrets of a check; not sending it to agents with certificates", "namespace",
			c.key.namespace, "check", c.key.name, "error", now.err)
	}
	if now.err == nil && before != nil && before.err != nil {
		r.cfg.Log.Info("resolved the secrets of a check again", "namespace", c.key.namespace, "check", c.key.name)
	}
}

// refresh keeps the values of planned checks' secrets fresh, until ctx ends.
func (r *Scheduler) refresh(ctx context.Context) error {
	if r.cfg.Secrets == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(revealEvery)
	defer tick.Stop()
	for {
		var due []*check
		r.mu.Lock()
		for _, c := range r.checks {
			if len(c.config.Secrets) > 0 {
				due = append(due, c)
			}
		}
		r.mu.Unlock()
		var all sync.WaitGroup
		turns := make(chan struct{}, revealing)
		for _, c := range due {
			turns <- struct{}{}
			all.Go(func() {
				r.reveal(ctx, c)
				<-turns
			})
		}
		all.Wait()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.reread:
		}
	}
}

// rereads has the values of secrets looked at anew.
func (r *Scheduler) rereads() {
	select {
	case r.reread <- struct{}{}:
	default:
	}
}
