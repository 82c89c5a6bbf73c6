package secretsruns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn"
	faultrun "corbel.dev/corbel/test/fault"
)

// SecretsRollReport is what clients that try again saw while each of three servers was stopped and started.
type SecretsRollReport struct {
	Writes, Retried int
	// Longest is the longest that a write took with all its tries, and StepDown that while the active server only gave
	// way.
	Longest, StepDown time.Duration
}

// rollWrite is how long a client tries one write: shorter than clients of Vault's API do.
const rollWrite = 15 * time.Second

// RunSecretsRoll has the active one of three servers give way, and then stops and starts each as an operator does,
// under writes.
func RunSecretsRoll(ctx context.Context, l *faultrun.Lab, seed uint64) (*SecretsRollReport, error) {
	return rollThrough(ctx, l, seed, l.Binary)
}

// RunSecretsUpgrade is RunSecretsRoll from the last release's program to the lab's and back.
func RunSecretsUpgrade(ctx context.Context, l *faultrun.Lab, last string, seed uint64) (*SecretsRollReport, error) {
	old := *l
	old.Binary = last
	return rollThrough(ctx, &old, seed, l.Binary, last)
}

// rollThrough starts servers with the lab's program, and replaces each with the others in their order.
func rollThrough(ctx context.Context, l *faultrun.Lab, seed uint64, programs ...string) (*SecretsRollReport, error) {
	r, err := OpenSecrets(ctx, l, Secrets{Servers: 3})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	load := &rolling{r: r, programs: programs}
	report, err := load.run(ctx, seed)
	if err != nil {
		return report, r.Explain(err)
	}
	return report, nil
}

// rolling is the load of RunSecretsRoll.
type rolling struct {
	r        *SecretsRun
	programs []string

	mu      sync.Mutex // guards what follows
	report  SecretsRollReport
	longest time.Duration // since it was last taken
	failed  error
}

func (l *rolling) run(ctx context.Context, seed uint64) (*SecretsRollReport, error) {
	r := l.r
	writing, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for w := range r.cfg.Writers {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		clients.Go(func() {
			for n := 1; writing.Err() == nil; n++ {
				l.write(ctx, fmt.Sprintf("roll/%d", w), n, rng)
			}
		})
	}
	end := func() { stop(); clients.Wait() }
	defer end()
	err := errors.Join(spawn.Sleep(ctx, 200*time.Millisecond), l.giveWay(ctx))
	l.report.StepDown = l.take()
	for _, r.binary = range l.programs {
		for _, s := range r.Servers {
			if err == nil {
				err = errors.Join(s.Stop(), s.Start(), l.back(ctx, s))
			}
		}
	}
	end()
	l.take()
	if err = errors.Join(err, l.failed); err == nil {
		err = r.compare(ctx)
	}
	return &l.report, err
}

// take returns the longest write since it was last asked.
func (l *rolling) take() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := l.longest
	l.report.Longest, l.longest = max(l.report.Longest, longest), 0
	return longest
}

// giveWay asks the active server to step down and waits for another.
func (l *rolling) giveWay(ctx context.Context) error {
	old, err := l.r.Active(ctx)
	if err != nil {
		return err
	}
	if code, body, err := l.r.Do(ctx, old, "PUT", "sys/step-down", l.r.Token, nil); err != nil ||
		code != http.StatusNoContent {
		return fmt.Errorf("sys/step-down: status %d, %s, %w", code, body, err)
	}
	return spawn.Until(ctx, time.Minute, "another server to be active", func() error {
		now, err := l.r.Active(ctx)
		if err == nil && now == old {
			err = errors.New("it is the same")
		}
		return err
	})
}

// back waits until a server stands by again, or is active, and autopilot counts all as healthy: then the next
// may go.
func (l *rolling) back(ctx context.Context, s *faultrun.Server) error {
	return spawn.Until(ctx, time.Minute, s.Name+" to be back", func() error {
		if code, _, err := l.r.Do(ctx, s, "GET", "sys/health?standbyok=true", "", nil); err != nil || code != http.StatusOK {
			return fmt.Errorf("health: status %d, %w", code, err)
		}
		code, body, err := l.r.Do(ctx, s, "GET", "sys/storage/raft/autopilot/state", l.r.Token, nil)
		if err != nil || code != http.StatusOK || !bytes.Contains(body, fmt.Appendf(nil, `"failure_tolerance":%d`, (len(l.r.Servers)-1)/2)) {
			return fmt.Errorf("autopilot: status %d, %s, %w", code, body, err)
		}
		return nil
	})
}

// write tries one write, at one server after another, until it is acknowledged.
func (l *rolling) write(ctx context.Context, key string, n int, rng *rand.Rand) {
	r, began := l.r, time.Now()
	r.mu.Lock()
	r.sent[key] = n
	r.mu.Unlock()
	at, tries := rng.IntN(len(r.Servers)), 0
	err := spawn.Until(ctx, rollWrite, "a write", func() error {
		tries++
		code, body, err := r.Do(ctx, r.Servers[(at+tries)%len(r.Servers)], "PUT", "secret/"+key, r.Token,
			map[string]any{"n": n})
		if err == nil && code >= 300 {
			err = fmt.Errorf("status %d, %s", code, body)
		}
		return err
	})
	took := time.Since(began)
	if err == nil {
		r.mu.Lock()
		r.acked[key] = n
		r.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Writes++
	l.report.Retried += tries - 1
	l.longest = max(l.longest, took)
	l.failed = errors.Join(l.failed, err)
}
