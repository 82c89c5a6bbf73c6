package catalogruns

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/fault/history"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// DiskOps are the operations that RunDiskErrors breaks, one after the other.
var DiskOps = []string{"open", "write", "sync", "truncate", "preallocate", "rename", "remove", "list",
	"stat", "syncdir"}

// DiskErrorReport tells what a run did.
type DiskErrorReport struct {
	Sites, Refused, Reads int
	// Resumed is the longest time from the end of a fault to the first acknowledged write.
	Resumed time.Duration
}

// RunDiskErrors is A7: every kind of disk operation fails with every error on a
// running server of one, after skip operations that go well. Writes then are
// answered, in time and not silently; stale reads never stop; afterwards writes
// resume without a restart and nothing acknowledged is lost. It compacts all the
// time, so that snapshots meet the errors too.
func RunDiskErrors(ctx context.Context, l *faultrun.Lab, skip int) (report DiskErrorReport, err error) {
	c, err := l.Open(ctx, harness.Config{Servers: 1, HCL: []string{faultrun.LinearHCL, snapshotHCL}})
	if err != nil {
		return report, err
	}
	defer c.Close()
	if err := c.Admin.RegisterNode(ctx, "clients"); err != nil {
		return report, err
	}
	book := faultrun.NewLedger()
	load := faultrun.NewWriters(c, book, uint64(skip), 3)
	defer load.Close()
	for _, w := range load.List {
		w.Pace = 8 * time.Millisecond // each site is met many times in its window all the same
	}
	for _, code := range []string{"ENOSPC", "EIO"} {
		for _, op := range DiskOps {
			rule := fault.Command{Name: "broken", Ops: op, Error: code, Glob: c.Servers[0].Dir + "/**", Skip: skip}
			if err := diskErrorOnce(ctx, c, rule, load, book, &report); err != nil {
				return report, fmt.Errorf("%s on %s: %w\n%s", code, op, err, c.Logs())
			}
			report.Sites++
		}
	}
	return report, errors.Join(c.Damage(), c.Audit(ctx, book))
}

// diskErrorOnce breaks one kind of operation under load for a while, heals, and waits for writes.
func diskErrorOnce(ctx context.Context, c *faultrun.Cluster, rule fault.Command, load *faultrun.Writers,
	book *faultrun.Ledger,
	report *DiskErrorReport) error {
	s := c.Servers[0]
	load.Start(ctx)
	defer load.Stop()
	if err := s.Control.Disk(ctx, rule); err != nil {
		return err
	}
	end := time.Now().Add(250 * time.Millisecond)
	probe := faultrun.NewClient(s.HTTP)
	defer probe.Close()
	for time.Now().Before(end) {
		if r := probe.Do(ctx, "GET", "/v1/kv/ledger/?keys&stale", nil); r.Status != http.StatusOK &&
			r.Status != http.StatusNotFound {
			return fmt.Errorf("a stale read stopped: %s", r)
		}
		report.Reads++
		r := probe.Do(ctx, "PUT", "/v1/kv/probe", []byte("x"))
		if r.Outcome != history.OK {
			if len(strings.TrimSpace(string(r.Body))) == 0 {
				return fmt.Errorf("a write was refused without a word: %s", r)
			}
			report.Refused++
		}
		_ = spawn.Sleep(ctx, 2*time.Millisecond)
	}
	if err := s.Control.Clear(ctx); err != nil {
		return err
	}
	begin := time.Now()
	err := spawn.Until(ctx, 25*time.Second, "writes to resume", func() error {
		if !s.Running() {
			return spawn.Hopeless(errors.New("the server ended"))
		}
		if r := probe.Do(ctx, "PUT", "/v1/kv/probe", []byte("y")); r.Outcome != history.OK {
			return errors.New(r.String())
		}
		return nil
	})
	report.Resumed = max(report.Resumed, time.Since(begin))
	load.Stop()
	return errors.Join(err, c.Audit(ctx, book))
}

// StallReport tells what a hanging disk cost.
type StallReport struct {
	// Leader is the time from the stall of the leader's disk to the next acknowledged write, Follower the
	// longest gap between writes while a follower's disk hung, CaughtUp the longest it took a healed member to have the
	// newest write.
	Leader, CaughtUp []time.Duration
	Follower         []time.Duration
}

// RunStall is A8: the disk of the leader, then of a follower, hangs for each of
// the durations; nobody is restarted.
func RunStall(ctx context.Context, l *faultrun.Lab, durations ...time.Duration) (report StallReport, err error) {
	c, err := l.Open(ctx, harness.Config{Servers: 3})
	if err != nil {
		return report, err
	}
	defer c.Close()
	var pids []int
	for _, s := range c.Servers {
		pids = append(pids, s.Control.PID())
	}
	for _, d := range durations {
		if err := stallOnce(ctx, c, d, &report); err != nil {
			return report, fmt.Errorf("a stall of %s: %w\n%s", d, err, c.Logs())
		}
	}
	for i, s := range c.Servers {
		if !s.Running() || s.Control.PID() != pids[i] {
			return report, fmt.Errorf("%s did not live through it:\n%s", s.Name, s.Log())
		}
	}
	return report, c.Damage()
}

func StallRule(s *faultrun.Server) fault.Command {
	return fault.Command{Name: "stall", Ops: "write,sync,syncdir,preallocate", Glob: s.Dir + "/**", Stall: true}
}

func stallOnce(ctx context.Context, c *faultrun.Cluster, d time.Duration, report *StallReport) error {
	leader, err := c.AwaitLeader(ctx, 20*time.Second)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := leader.Control.Disk(ctx, StallRule(leader)); err != nil {
		return err
	}
	pause, err := firstWrite(ctx, c.Followers(leader), 60*time.Second)
	if err != nil {
		return err
	}
	report.Leader = append(report.Leader, pause)
	_ = spawn.Sleep(ctx, d-time.Since(begin))
	if err := heals(ctx, c, leader, report); err != nil {
		return err
	}
	leader, err = c.AwaitLeader(ctx, 20*time.Second)
	if err != nil {
		return err
	}
	follower := c.Followers(leader)[0]
	load := startSteady(ctx, c, "PUT", "/v1/kv/steady", 2)
	defer load.stop()
	_ = spawn.Sleep(ctx, 100*time.Millisecond)
	load.longest.Store(0)
	if err := follower.Control.Disk(ctx, StallRule(follower)); err != nil {
		return err
	}
	_ = spawn.Sleep(ctx, d)
	report.Follower = append(report.Follower, time.Duration(load.longest.Load()))
	load.stop()
	return errors.Join(heals(ctx, c, follower, report), load.err())
}

func heals(ctx context.Context, c *faultrun.Cluster, s *faultrun.Server, report *StallReport) error {
	if err := s.Control.Clear(ctx); err != nil {
		return err
	}
	begin := time.Now()
	if err := c.Converged(ctx, 30*time.Second); err != nil {
		return fmt.Errorf("%s does not catch up: %w", s.Name, err)
	}
	report.CaughtUp = append(report.CaughtUp, time.Since(begin))
	return nil
}

// RunTorn cuts cut bytes off the written end of the newest log segment of a member that was
// killed under load, starts it again, and looks that the three together lost nothing.
func RunTorn(ctx context.Context, l *faultrun.Lab, cut int64, seed uint64) error {
	c, book, load, err := loaded(ctx, l, harness.Config{Servers: 3, HCL: []string{faultrun.LinearHCL}}, seed)
	if err != nil {
		return err
	}
	defer c.Close()
	defer load.Close()
	victim := c.Servers[seed%3]
	load.Start(ctx)
	_ = spawn.Sleep(ctx, 400*time.Millisecond)
	victim.Kill()
	load.Stop()
	if err := tear(victim.Dir, cut); err != nil {
		return err
	}
	if err := victim.Start(); err != nil {
		return err
	}
	if err := errors.Join(c.Converged(ctx, harness.StartLimit), c.Audit(ctx, book), c.Damage()); err != nil {
		return fmt.Errorf("%d bytes cut: %w\n%s", cut, err, c.Logs())
	}
	// Now the torn member has to carry the quorum.
	for _, s := range c.Servers {
		if s != victim {
			s.Kill()
			break
		}
	}
	if err := errors.Join(c.Ready(ctx, harness.StartLimit), c.Audit(ctx, book), c.Damage()); err != nil {
		return fmt.Errorf("%d bytes cut, one more down: %w\n%s", cut, err, c.Logs())
	}
	return nil
}

// loaded opens a cluster with a node for sessions, a ledger and idle writers.
func loaded(ctx context.Context, l *faultrun.Lab, shape harness.Config, seed uint64) (*faultrun.Cluster,
	*faultrun.Ledger, *faultrun.Writers, error) {
	c, err := l.Open(ctx, shape)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := c.Admin.RegisterNode(ctx, "clients"); err != nil {
		c.Close()
		return nil, nil, nil, err
	}
	book := faultrun.NewLedger()
	return c, book, faultrun.NewWriters(c, book, seed, 4), nil
}

// tear truncates the newest segment below dir, cut bytes before its last byte that is not zero.
func tear(dir string, cut int64) error {
	var newest string
	var newestTime time.Time
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".seg") {
			return err
		}
		info, err := d.Info()
		if err == nil && !info.ModTime().Before(newestTime) {
			newest, newestTime = path, info.ModTime()
		}
		return err
	})
	if err != nil {
		return err
	}
	if newest == "" {
		return fmt.Errorf("no log segment below %s", dir)
	}
	data, err := os.ReadFile(newest)
	if err != nil {
		return err
	}
	end := len(data)
	for end > 0 && data[end-1] == 0 {
		end--
	}
	return os.Truncate(newest, max(0, int64(end)-cut))
}

// RunWiped replaces a member that lost everything: it is removed, started with an
// empty folder, and must become a voter with all the data that carries a quorum.
// It returns how long that took.
func RunWiped(ctx context.Context, l *faultrun.Lab, seed uint64) (time.Duration, error) {
	c, book, load, err := loaded(ctx, l, harness.Config{Servers: 3, HCL: []string{faultrun.LinearHCL,
		faultrun.StableHCL}}, seed)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer load.Close()
	load.Start(ctx)
	_ = spawn.Sleep(ctx, 400*time.Millisecond)
	victim := c.Servers[seed%3]
	victim.Kill()
	if err := removePeer(ctx, c, victim); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, c.Logs())
	}
	if err := os.RemoveAll(victim.Dir); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := victim.Start(); err != nil {
		return 0, err
	}
	if err := spawn.Until(ctx, 60*time.Second, "three voters", func() error { return c.Voters(ctx, 3) }); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, c.Logs())
	}
	took := time.Since(begin)
	load.Stop()
	if err := errors.Join(c.Converged(ctx, harness.StartLimit), c.Audit(ctx, book)); err != nil {
		return took, fmt.Errorf("%w\n%s", err, c.Logs())
	}
	for _, s := range c.Servers { // the new one must carry the quorum
		if s != victim {
			s.Kill()
			break
		}
	}
	if err := errors.Join(c.Ready(ctx, harness.StartLimit), c.Audit(ctx, book), c.Damage()); err != nil {
		return took, fmt.Errorf("with the new one in the quorum: %w\n%s", err, c.Logs())
	}
	return took, nil
}

func removePeer(ctx context.Context, c *faultrun.Cluster, victim *faultrun.Server) error {
	return spawn.Until(ctx, 20*time.Second, "removing "+victim.Name, func() error {
		others := c.Followers(victim)
		if len(others) == 0 {
			return errors.New("nobody runs")
		}
		return c.Expel(ctx, others[0], victim)
	})
}

// Outlives returns nil when the groups of all planes outlive the loss of one more server.
func Outlives(ctx context.Context, c *faultrun.Cluster) error {
	leader := c.Leader(ctx)
	if leader == nil {
		return errors.New("no leader")
	}
	var answer struct{ FailureTolerance int }
	if err := c.Admin.At(leader.HTTP).List(ctx, "/v1/operator/autopilot/state", &answer); err != nil {
		return err
	}
	if answer.FailureTolerance == 0 {
		return errors.New("the failure tolerance is 0")
	}
	return nil
}
