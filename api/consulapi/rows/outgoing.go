package rows

import (
	"net/http"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

// outgoing bounds and counts what a client agent sends to the servers.
type outgoing struct {
	rate                   atomic.Pointer[limit.Rate] // nil: no limit
	sent, failed, exceeded *telemetry.Counter
}

func (o *outgoing) meter(m *telemetry.Registry) {
	o.sent, o.failed, o.exceeded = m.Counter("client.rpc"), m.Counter("client.rpc.failed"), m.Counter("client.rpc.exceeded")
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
