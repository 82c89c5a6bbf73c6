package catalogruns

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/fault/history"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// FailoverReport tells how long writes paused after the leader was killed.
type FailoverReport struct {
	Pauses []time.Duration
}

// RunFailover kills the leader n times and measures until the first write is
// acknowledged that began after the kill, by clients of the other members.
func RunFailover(ctx context.Context, l *faultrun.Lab, n int) (report FailoverReport, err error) {
	c, err := l.Open(ctx, harness.Config{Servers: 3})
	if err != nil {
		return report, err
	}
	defer c.Close()
	for range n {
		leader, err := c.AwaitLeader(ctx, 20*time.Second)
		if err != nil {
			return report, err
		}
		if err := c.Converged(ctx, 20*time.Second); err != nil {
			return report, err
		}
		leader.Kill()
		pause, err := firstWrite(ctx, c.Followers(leader), 30*time.Second)
		if err != nil {
			return report, fmt.Errorf("after %s was killed: %w\n%s", leader.Name, err, c.Logs())
		}
		report.Pauses = append(report.Pauses, pause)
		if err := c.Start(); err != nil {
			return report, err
		}
		if err := c.Ready(ctx, harness.StartLimit); err != nil {
			return report, fmt.Errorf("after the restart of %s: %w\n%s", leader.Name, err, c.Logs())
		}
	}
	return report, c.Damage()
}

// firstWrite returns how long it takes until a write through any of the servers
// is acknowledged. A client sits at each and sends again as soon as it is refused.
func firstWrite(ctx context.Context, servers []*faultrun.Server, limit time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	first := make(chan time.Duration, len(servers))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i, s := range servers {
		wg.Go(func() {
			client := faultrun.NewClient(s.HTTP)
			defer client.Close()
			client.Timeout = limit
			for n := 0; ctx.Err() == nil; n++ {
				if client.Do(ctx, "PUT", fmt.Sprintf("/v1/kv/first/%d", i), []byte(strconv.Itoa(n))).Outcome == history.OK {
					first <- time.Since(begin)
					return
				}
				_ = spawn.Sleep(ctx, 2*time.Millisecond)
			}
		})
	}
	select {
	case d := <-first:
		return d, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("no write was acknowledged within %s", limit)
	}
}

// TransferReport tells what planned changes of leader cost.
type TransferReport struct {
	// Pauses are the longest gaps between two acknowledged writes around each transfer.
	Pauses []time.Duration
	// Writes were acknowledged, Retried of them needed more than one attempt, Failed were given up.
	Writes, Retried, Failed int
}

// RunTransfer hands leadership over n times under a steady load of writes.
func RunTransfer(ctx context.Context, l *faultrun.Lab, n int) (report TransferReport, err error) {
	c, err := l.Open(ctx, harness.Config{Servers: 3})
	if err != nil {
		return report, err
	}
	defer c.Close()
	load := startSteady(ctx, c, "PUT", "/v1/kv/steady", 4)
	defer load.stop()
	for range n {
		if _, err := c.AwaitLeader(ctx, 10*time.Second); err != nil {
			return report, err
		}
		_ = spawn.Sleep(ctx, 300*time.Millisecond)
		load.longest.Store(0)
		// The one that is told to lead may refuse while it is behind: ask again.
		if err := spawn.Until(ctx, 10*time.Second, "a transfer", func() error { return c.Transfer(ctx) }); err != nil {
			return report, err
		}
		_ = spawn.Sleep(ctx, time.Second)
		report.Pauses = append(report.Pauses, time.Duration(load.longest.Load()))
	}
	load.stop()
	report.Writes, report.Retried, report.Failed = int(load.done.Load()), int(load.retried.Load()), int(load.failed.Load())
	return report, errors.Join(load.err(), c.Damage())
}

// RollingReport tells what a rolling restart cost clients that retry.
type RollingReport struct {
	Reads, Retried, Failed int
	Longest                time.Duration // gap between two answered reads, of all clients together
}

// RunRolling stops and starts each member in turn under consistent reads by clients that retry elsewhere.
func RunRolling(ctx context.Context, l *faultrun.Lab) (report RollingReport, err error) {
	c, err := l.Open(ctx, harness.Config{Servers: 3})
	if err != nil {
		return report, err
	}
	defer c.Close()
	if err := c.Converged(ctx, 20*time.Second); err != nil {
		return report, err
	}
	load := startSteady(ctx, c, "GET", "/v1/kv/converged?consistent", 4)
	defer load.stop()
	for _, s := range c.Servers {
		if err := s.Stop(); err != nil {
			return report, err
		}
		if err := s.Start(); err != nil {
			return report, err
		}
		if err := c.Ready(ctx, harness.StartLimit); err != nil {
			return report, fmt.Errorf("after the restart of %s: %w\n%s", s.Name, err, c.Logs())
		}
	}
	load.stop()
	report = RollingReport{Reads: int(load.done.Load()), Retried: int(load.retried.Load()),
		Failed:  int(load.failed.Load()),
		Longest: time.Duration(load.longest.Load())}
	return report, errors.Join(load.err(), c.Damage())
}

// steady is a load of one request sent over and over by clients that retry at
// another member at once, and give up after retryLimit.
type steady struct {
	done, retried, failed atomic.Int64
	last, longest         atomic.Int64 // since begin; a gap
	begin                 time.Time
	cancel                context.CancelFunc
	wg                    sync.WaitGroup
	firstFailure          atomic.Pointer[string]
}

// steadyPause lets a client rest after each answer: gaps of hundreds of milliseconds are looked for, and the servers
// need the CPU.
const steadyPause = 5 * time.Millisecond

// retryLimit is how long a client retries one request: what clients of the API do by default is longer.
const retryLimit = 10 * time.Second

func startSteady(ctx context.Context, c *faultrun.Cluster, method, path string, clients int) *steady {
	l := &steady{begin: time.Now()}
	ctx, l.cancel = context.WithCancel(ctx)
	for i := range clients {
		l.wg.Go(func() {
			client := faultrun.NewClient("")
			defer client.Close()
			client.Timeout = 3 * time.Second
			for n := i; ctx.Err() == nil; n++ {
				l.one(ctx, c, client, method, path, n)
				_ = spawn.Sleep(ctx, steadyPause)
			}
		})
	}
	return l
}

func (l *steady) one(ctx context.Context, c *faultrun.Cluster, client *faultrun.Client, method, path string, n int) {
	begin := time.Now()
	for attempt := 0; ; attempt++ {
		r := client.At(c.Servers[(n+attempt)%len(c.Servers)].HTTP).Do(ctx, method, path, []byte(strconv.Itoa(n)))
		switch {
		case r.Status == http.StatusOK:
			l.success(attempt)
			return
		case ctx.Err() != nil:
			return
		case time.Since(begin) > retryLimit:
			text := r.String()
			l.firstFailure.CompareAndSwap(nil, &text)
			l.failed.Add(1)
			return
		}
		_ = spawn.Sleep(ctx, 5*time.Millisecond)
	}
}

func (l *steady) success(attempt int) {
	now := int64(time.Since(l.begin))
	gap := now - l.last.Swap(now)
	for {
		old := l.longest.Load()
		if gap <= old || l.longest.CompareAndSwap(old, gap) {
			break
		}
	}
	l.done.Add(1)
	if attempt > 0 {
		l.retried.Add(1)
	}
}

func (l *steady) stop() {
	l.cancel()
	l.wg.Wait()
}

func (l *steady) err() error {
	if n := l.failed.Load(); n > 0 {
		return fmt.Errorf("%d requests failed although they were retried for %s; the first: %s", n, retryLimit,
			*l.firstFailure.Load())
	}
	if l.done.Load() == 0 {
		return errors.New("no request was answered")
	}
	return nil
}
