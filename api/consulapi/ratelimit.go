package consulapi

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/kit/limit"
)

// RequestLimits is limits.request_limits: how many requests a second this server takes.
type RequestLimits struct {
	// Mode is disabled (the zero value too), permissive (counts and logs only) or enforcing.
	Mode string
	// ReadRate and WriteRate are per second; below zero is no limit. Ten times as many may come at once.
	ReadRate, WriteRate float64
}

// burstFactor is the contract's.
const burstFactor = 10

// limiter is RequestLimits at work.
type limiter struct {
	set         RequestLimits
	enforcing   bool
	read, write *limit.Bucket
	start       time.Time
}

// requestLimits counts all requests that reach this server, whoever passed them on. What asks for the
// agent itself or for who leads is not limited: health checks and operators need it most under load.
type requestLimits struct {
	now atomic.Pointer[limiter] // nil: disabled
	// lines lets few refusals be logged: a flood must not become one of the log.
	lines   *limit.Bucket
	started time.Time
}

// logPerSecond bounds the log lines about requests over the limit.
const logPerSecond = 10

// SetRequestLimits puts other limits in force; unchanged ones keep what was taken.
func (a *API) SetRequestLimits(l RequestLimits) {
	old := a.limits.now.Load()
	switch {
	case l.Mode == "" || l.Mode == "disabled":
		a.limits.now.Store(nil)
	case old == nil || old.set != l:
		a.limits.now.Store(&limiter{set: l, enforcing: l.Mode == "enforcing", start: a.cfg.Clock.Now(),
			read:  limit.NewBucket(l.ReadRate, int(l.ReadRate*burstFactor)),
			write: limit.NewBucket(l.WriteRate, int(l.WriteRate*burstFactor))})
	}
}

func (l *limiter) bucket(c class) *limit.Bucket {
	if c == write {
		return l.write
	}
	return l.read
}

// exempt rows are never limited.
func (r *route) exempt() bool { return r.class == own || strings.HasPrefix(r.pattern, "/v1/status/") }

// admit takes one request of the class, or refuses it with the contract's error. op names it
// in metrics and the log; taken is where it was taken from.
func (a *API) admit(c class, op func() string, remote string) (taken *limit.Bucket, err error) {
	l := a.limits.now.Load()
	if l == nil {
		return nil, nil
	}
	if b := l.bucket(c); b.Take(a.cfg.Clock.Since(l.start)) {
		return b, nil
	}
	return nil, a.exceeded(l, c, op(), remote)
}

// exceeded counts and logs a request over the limit; the error is nil in permissive mode.
func (a *API) exceeded(l *limiter, c class, name, remote string) error {
	kind, mode := "global/read", "permissive"
	if c == write {
		kind = "global/write"
	}
	if l.enforcing {
		mode = "enforcing"
	}
	a.cfg.Metrics.Counter("rpc.rate_limit.exceeded", "limit_type", kind, "op", name, "mode", mode).Add(1)
	if a.limits.lines.Take(a.cfg.Clock.Since(a.limits.started)) {
		a.cfg.Logger.Warn("a request exceeds the rate limit", "op", name, "source_addr", remote, "limit_type", kind, "limit_enforced", l.enforcing)
	} else {
		a.logDropped.Add(1)
	}
	if !l.enforcing {
		return nil
	}
	if c == write && a.leads(context.Background()) {
		return overLimit(http.StatusServiceUnavailable) // no other server can do it
	}
	return overLimit(http.StatusTooManyRequests)
}

// AdmitWrite is admit for what agents write past the HTTP API; op names it.
func (a *API) AdmitWrite(op, remote string) error {
	_, err := a.admit(write, func() string { return op }, remote)
	return err
}

// AdmitRead is AdmitWrite for reads.
func (a *API) AdmitRead(op, remote string) error {
	_, err := a.admit(read, func() string { return op }, remote)
	return err
}

const textOverLimit = "rate limit exceeded, try again later or against a different server"

func overLimit(status int) error {
	return &answer.Error{Status: status, Text: textOverLimit, Retry: true}
}
