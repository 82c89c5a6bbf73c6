package catalogruns

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/fault/history"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// OverloadReport tells what ten times too many clients did.
type OverloadReport struct {
	// Before, During and After are acknowledged writes per second; Shed were refused with 429 or 503, Unknown and Other
	// had no such answer.
	Before, During, After float64
	Shed, Unknown, Other  int64
	// RSSBefore and RSSDuring are in bytes.
	RSSBefore, RSSDuring int64
}

// burst is one phase's counts.
type burst struct {
	done, shed, withoutRetryAfter, unknown, other atomic.Int64
}

// RunOverload is B7: clients that write without a pause, then ten times as many, then
// as many as before. The server refuses what it cannot do, and is itself again after.
func RunOverload(ctx context.Context, l *faultrun.Lab, clients int, phase time.Duration) (report OverloadReport,
	err error) {
	c, err := l.Open(ctx, harness.Config{Servers: 1})
	if err != nil {
		return report, err
	}
	defer c.Close()
	s := c.Servers[0]
	before := startBurst(ctx, c, clients, phase)
	report.Before, report.RSSBefore = float64(before.done.Load())/phase.Seconds(), s.RSS()
	during := startBurst(ctx, c, 10*clients, phase)
	report.During, report.RSSDuring = float64(during.done.Load())/phase.Seconds(), s.RSS()
	report.Shed, report.Unknown, report.Other = during.shed.Load(), during.unknown.Load(), during.other.Load()
	after := startBurst(ctx, c, clients, phase)
	report.After = float64(after.done.Load()) / phase.Seconds()
	switch {
	case before.done.Load() == 0:
		err = errors.New("no write was acknowledged")
	case during.withoutRetryAfter.Load() > 0:
		err = fmt.Errorf("%d refusals without Retry-After", during.withoutRetryAfter.Load())
	case after.shed.Load()+after.unknown.Load()+after.other.Load() > 0:
		err = fmt.Errorf("after the overload %d writes were refused, %d without an answer",
			after.shed.Load()+after.other.Load(), after.unknown.Load())
	}
	return report, errors.Join(err, c.Damage())
}

func startBurst(ctx context.Context, c *faultrun.Cluster, clients int, d time.Duration) *burst {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	b := &burst{}
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			client := faultrun.NewClient(c.Servers[0].HTTP)
			defer client.Close()
			for n := 0; ctx.Err() == nil; n++ {
				b.count(ctx, client.Do(ctx, "PUT", fmt.Sprintf("/v1/kv/burst/%d/%d", i, n%16), make([]byte, 256)))
			}
		})
	}
	wg.Wait()
	return b
}

func (b *burst) count(ctx context.Context, r faultrun.Reply) {
	switch {
	case r.Outcome == history.OK:
		b.done.Add(1)
	case ctx.Err() != nil: // cut off by the end of the phase
	case r.Status == http.StatusTooManyRequests || r.Status == http.StatusServiceUnavailable:
		b.shed.Add(1)
		if r.Header.Get("Retry-After") == "" {
			b.withoutRetryAfter.Add(1)
		}
	case r.Outcome == history.Unknown:
		b.unknown.Add(1)
	default:
		b.other.Add(1)
	}
}
