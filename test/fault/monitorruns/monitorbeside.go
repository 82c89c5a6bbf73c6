package monitorruns

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// Beside is what a slow event store costs the rest of a server: the 99th percentiles of writes of the catalog.
type Beside struct{ Quiet, Slow time.Duration }

// RunBeside measures writes to the leader of three servers while agents send results: first so, then with an
// event store there that takes 200 ms for each operation (B3).
func RunBeside(ctx context.Context, l *faultrun.Lab, writes int, seed uint64) (Beside, error) {
	m, err := openMonitor(ctx, l, harness.Config{Servers: 3}, 6, 2, scaled, seed)
	if err != nil {
		return Beside{}, err
	}
	defer m.close()
	s := m.Leader(ctx)
	if s == nil {
		return Beside{}, errors.New("no leader")
	}
	var p99 [2]time.Duration
	for i := range p99 {
		m.load(mostRuns)
		p99[i], err = writesBeside(ctx, s, writes)
		if err = errors.Join(err, m.idle(ctx)); err != nil {
			return Beside{}, fmt.Errorf("%w\n%s", err, m.Logs())
		}
		slow := fault.Command{Name: "events", Glob: filepath.Join(s.Dir, "monitor", "events") + "/**", Ops: "write,sync",
			Delay: 200 * time.Millisecond}
		if err := s.Control.Disk(ctx, slow); err != nil {
			return Beside{}, err
		}
	}
	return Beside{p99[0], p99[1]}, s.Control.Clear(ctx)
}

func writesBeside(ctx context.Context, s *faultrun.Server, n int) (time.Duration, error) {
	c := faultrun.NewClient(s.HTTP)
	defer c.Close()
	took := make([]time.Duration, n)
	for i := range took {
		at := time.Now()
		if answer := c.Do(ctx, "PUT", "/v1/kv/beside", fmt.Append(nil, i)); answer.Status != 200 {
			return 0, fmt.Errorf("the catalog beside a slow event store: %s", answer)
		}
		took[i] = time.Since(at)
	}
	slices.Sort(took)
	return took[n*99/100], nil
}
