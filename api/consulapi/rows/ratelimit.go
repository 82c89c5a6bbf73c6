package rows

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
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
	set                   RequestLimits
	enforcing             bool
	ClassRead, ClassWrite *limit.Bucket
	start                 time.Time
}

// requestLimits counts all requests that reach this server, whoever passed them on. What asks for the
// agent itself or for who leads is not limited: health checks and operators need it most under load.
type requestLimits struct {
	now atomic.Pointer[limiter] // nil: disabled
	// lines lets few refusals be logged: a flood must not become one of the log.
	lines   *limit.Bucket
	started time.Time
	// dropped counts refusals that were not logged.
	dropped *telemetry.Counter
}

func newRequestLimits(m *telemetry.Registry, c clock.Clock) requestLimits {
	return requestLimits{lines: limit.NewBucket(logPerSecond, logPerSecond), started: c.Now(),
		dropped: m.Counter("rpc.rate_limit.log_dropped")}
}

// logPerSecond bounds the log lines about requests over the limit.
const logPerSecond = 10

// SetRequestLimits puts other limits in force; unchanged ones keep what was taken.
func (a *Core) SetRequestLimits(l RequestLimits) {
	old := a.admission.now.Load()
	switch {
	case l.Mode == "" || l.Mode == "disabled":
		a.admission.now.Store(nil)
	case old == nil || old.set != l:
		a.admission.now.Store(&limiter{set: l, enforcing: l.Mode == "enforcing", start: a.Clock.Now(),
			ClassRead:  limit.NewBucket(l.ReadRate, int(l.ReadRate*burstFactor)),
			ClassWrite: limit.NewBucket(l.WriteRate, int(l.WriteRate*burstFactor))})
	}
}

// Limited tells whether requests are counted against limits.
func (a *Core) Limited() bool { return a.admission.now.Load() != nil }

func (l *limiter) bucket(c Class) *limit.Bucket {
	if c == ClassWrite {
		return l.ClassWrite
	}
	return l.ClassRead
}

// Exempt rows are never limited.
func (r *Row) Exempt() bool {
	return r.Class == ClassOwn || strings.HasPrefix(r.Pattern, "/v1/status/")
}

// Admit takes one request of the class, or refuses it with the contract's error. the method and the
// pattern name it in metrics and the log; taken is where it was taken from.
func (a *Core) Admit(c Class, method, pattern, remote string) (taken *limit.Bucket, err error) {
	l := a.admission.now.Load()
	if l == nil {
		return nil, nil
	}
	if b := l.bucket(c); b.Take(a.Clock.Since(l.start)) {
		return b, nil
	}
	return nil, a.exceeded(l, c, strings.TrimSpace(method+" "+pattern), remote)
}

// exceeded counts and logs a request over the limit; the error is nil in permissive mode.
func (a *Core) exceeded(l *limiter, c Class, name, remote string) error {
	kind, mode := "global/read", "permissive"
	if c == ClassWrite {
		kind = "global/write"
	}
	if l.enforcing {
		mode = "enforcing"
	}
	a.Metrics.Counter("rpc.rate_limit.exceeded", "limit_type", kind, "op", name, "mode", mode).Add(1)
	if a.admission.lines.Take(a.Clock.Since(a.admission.started)) {
		a.Logger.Warn("a request exceeds the rate limit", "op", name, "source_addr", remote, "limit_type", kind,
			"limit_enforced", l.enforcing)
	} else {
		a.admission.dropped.Add(1)
	}
	if !l.enforcing {
		return nil
	}
	if c == ClassWrite && a.Leads(context.Background()) {
		return overLimit(http.StatusServiceUnavailable) // no other server can do it
	}
	return overLimit(http.StatusTooManyRequests)
}

// AdmitWrite is admit for what agents write past the HTTP API; op names it.
func (a *Core) AdmitWrite(op, remote string) error {
	_, err := a.Admit(ClassWrite, "", op, remote)
	return err
}

// AdmitRead is AdmitWrite for reads.
func (a *Core) AdmitRead(op, remote string) error {
	_, err := a.Admit(ClassRead, "", op, remote)
	return err
}

const textOverLimit = "rate limit exceeded, try again later or against a different server"

func overLimit(status int) error {
	return &answer.Error{Status: status, Text: textOverLimit, Retry: true}
}

// outgoing bounds and counts what a client agent sends to the servers.
type outgoing struct {
	rate                   atomic.Pointer[limit.Rate] // nil: no limit
	sent, failed, exceeded *telemetry.Counter
}

func (o *outgoing) meter(m *telemetry.Registry) {
	o.sent, o.failed, o.exceeded = m.Counter("client.rpc"), m.Counter("client.rpc.failed"),
		m.Counter("client.rpc.exceeded")
}

var errForwardRate = answer.Fail(http.StatusTooManyRequests, "RPC rate limit exceeded")

// take counts a request that goes out, and refuses it past the rate.
func (o *outgoing) take() error {
	o.sent.Add(1)
	if r := o.rate.Load(); r != nil {
		if ok, _ := r.Allow(""); !ok {
			o.exceeded.Add(1)
			return errForwardRate
		}
	}
	return nil
}

// SetForwardRate bounds how many requests a client agent sends to the servers: limits.rpc_rate
// and rpc_max_burst. A rate that is not positive is no limit.
func (a *Core) SetForwardRate(perSecond float64, burst int) {
	if perSecond <= 0 || a.Registry != nil {
		a.outgoing.rate.Store(nil)
		return
	}
	a.outgoing.rate.Store(limit.NewRate(limit.RateConfig{PerSecond: perSecond, Burst: burst, MaxKeys: 64, Clock: a.Clock}))
}

// SetDiscoveryMaxStale changes discovery_max_stale; 0 is none.
func (a *Core) SetDiscoveryMaxStale(d time.Duration) { a.discoveryStale.Store(int64(d)) }
