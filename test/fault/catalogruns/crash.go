// Package catalogruns has the scenarios of the catalog: histories, crashes, broken disks, hostile clients, overload.
package catalogruns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// Crash is a run of A4: cycles of load, kill -9, restart, and a look at everything.
type Crash struct {
	Servers int // 1 or 3
	Cycles  int
	Writers int // default 6
	// Load is how long the load of a cycle lasts at most; default 400 ms.
	Load time.Duration
	// Snapshots makes servers compact all the time (A9).
	Snapshots bool
}

// CrashReport tells what a run did.
type CrashReport struct {
	Cycles, Acked, Unknown int
	Powerless              int // of the servers killed, those whose disk lost its power
	// Starts are the times from start until the cluster answered consistent reads again.
	Starts []time.Duration
}

// snapshotHCL makes a server snapshot and truncate its log all the time.
const snapshotHCL = "raft_snapshot_threshold = 64\nraft_snapshot_interval = \"1s\"\nraft_trailing_logs = 32"

// RunCrash does cycles on one cluster.
func RunCrash(ctx context.Context, l *faultrun.Lab, cfg Crash, seed uint64) (report CrashReport, err error) {
	if cfg.Writers == 0 {
		cfg.Writers = 6
	}
	if cfg.Load == 0 {
		cfg.Load = 400 * time.Millisecond
	}
	shape := harness.Config{Servers: cfg.Servers, Power: true, HCL: []string{faultrun.LinearHCL}}
	if cfg.Snapshots {
		shape.HCL = append(shape.HCL, snapshotHCL)
	}
	c, err := l.Open(ctx, shape)
	if err != nil {
		return report, err
	}
	defer c.Close()
	if err := c.Admin.RegisterNode(ctx, "clients"); err != nil {
		return report, err
	}
	rng := rand.New(rand.NewPCG(seed, 4))
	book := faultrun.NewLedger()
	load := faultrun.NewWriters(c, book, seed, cfg.Writers)
	defer load.Close()
	for range cfg.Cycles {
		took, err := crashOnce(ctx, c, cfg.Load, rng, load, book, &report.Powerless)
		if err != nil {
			return report, fmt.Errorf("cycle %d: %w\n%s", report.Cycles+1, errors.Join(err, c.Damage()), c.Logs())
		}
		report.Cycles++
		report.Starts = append(report.Starts, took)
	}
	report.Acked, report.Unknown = book.Acked, book.Unknown
	if book.Acked < cfg.Cycles {
		return report, fmt.Errorf("only %d writes were acknowledged in %d cycles: nothing was tested", book.Acked, cfg.Cycles)
	}
	return report, c.Damage()
}

// crashOnce loads, kills at a random instant, restarts, and looks. It returns the
// time from the start of the processes until consistent reads were answered.
func crashOnce(ctx context.Context, c *faultrun.Cluster, limit time.Duration, rng *rand.Rand, load *faultrun.Writers,
	book *faultrun.Ledger,
	powerless *int) (time.Duration, error) {
	load.Start(ctx)
	defer load.Stop()
	if err := spawn.Sleep(ctx, limit/8+time.Duration(rng.Int64N(int64(limit-limit/8)))); err != nil {
		return 0, err
	}
	victims := c.Servers
	if len(c.Servers) > 1 && rng.IntN(2) == 0 {
		victims = c.Servers[:0:0]
		victims = append(victims, c.Servers[rng.IntN(len(c.Servers))])
	}
	for _, s := range victims {
		_ = s.Control.Kill() // all at once
	}
	for _, s := range victims {
		if err := s.Crash(rng, powerless); err != nil {
			return 0, err
		}
	}
	if len(victims) < len(c.Servers) {
		_ = spawn.Sleep(ctx, time.Duration(rng.IntN(300))*time.Millisecond) // the others go on
	}
	load.Stop()
	begin := time.Now()
	if err := c.Start(); err != nil {
		return 0, err
	}
	if err := c.Ready(ctx, harness.StartLimit); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	return took, c.Audit(ctx, book)
}

// Quantile returns the q-quantile of durations, zero when there are none.
func Quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
