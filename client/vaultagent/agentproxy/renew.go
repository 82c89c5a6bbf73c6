package agentproxy

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// renewals is how many leases are renewed at a time.
	renewals = 8
	// renewTime bounds one renewal.
	renewTime = 30 * time.Second
)

// renew keeps what is in the cache alive until ctx ends.
func (p *Proxy) renew(ctx context.Context) {
	var token string
	var changed <-chan struct{}
	if p.cfg.Tokens != nil {
		token, changed = p.cfg.Tokens.Get()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			before := token
			token, changed = p.cfg.Tokens.Get()
			p.cache.dropToken(before)
		case <-p.cache.notify:
		case <-timer.C:
		}
		due, then := p.cache.next(time.Now(), renewals)
		var wait sync.WaitGroup
		for _, j := range due {
			wait.Go(func() { p.renewOne(ctx, j) })
		}
		wait.Wait()
		if len(due) == renewals {
			then = time.Now() // there may be more
		}
		timer.Stop()
		if !then.IsZero() {
			timer.Reset(time.Until(then))
		}
	}
}

// renewOne renews a lease or a token, or takes out what cannot be.
func (p *Proxy) renewOne(ctx context.Context, j job) {
	k := j.k
	if !j.life.renewable {
		p.cache.ends(k)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	target, token, body := "/v1/sys/leases/renew", j.token, map[string]any{"lease_id": k.lease,
		"increment": int(j.life.full.Seconds())}
	if k.made != "" {
		target, token, body = "/v1/auth/token/renew-self", k.made, map[string]any{}
	}
	text, err := json.Marshal(body)
	if err != nil {
		p.cache.ends(k)
		return
	}
	header := http.Header{"X-Vault-Token": {token}, "X-Vault-Request": {"true"}, "Content-Type": {"application/json"}}
	if k.namespace != "" {
		header.Set("X-Vault-Namespace", k.namespace)
	}
	resp, err := p.client.Forward(ctx, http.MethodPut, target, header, text)
	var e envelope
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode >= 400 && resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
			p.log.Info("a lease ended: the server does not renew it", "path", k.path, "status", resp.StatusCode)
			p.cache.ends(k)
			return
		}
		err = json.NewDecoder(io.LimitReader(resp.Body, maxKept)).Decode(&e)
	}
	now := time.Now()
	seconds, renewable := e.LeaseDuration, e.Renewable
	if k.made != "" && e.Auth != nil {
		seconds, renewable = e.Auth.LeaseDuration, e.Auth.Renewable
	}
	if err != nil || resp.StatusCode >= 400 || seconds <= 0 {
		next, ends := j.life.failed(now)
		if ends {
			p.cache.ends(k)
			return
		}
		p.cache.lives(k, next)
		return
	}
	p.cache.lives(k, j.life.given(now, time.Duration(seconds)*time.Second, renewable))
}
