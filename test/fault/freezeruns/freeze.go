// Package freezeruns has the scenarios of frozen servers, and what the doctor says of faults.
package freezeruns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// Freezes says how RunFreezes stops processes.
type Freezes struct {
	// Rounds are freezes, each of one process: the leader, a follower, the agent, another one right after it.
	Rounds int
	// Least and Most bound a freeze.
	Least, Most time.Duration
	// Limit is how long any answer of a process that is not frozen may take.
	Limit time.Duration
}

// FreezesReport is what clients of the other processes saw.
type FreezesReport struct {
	Reads, Writes, Unknown int
	// Slowest is the longest that an answer took, and Slow what it was.
	Slowest time.Duration
	Slow    string
}

// RunFreezes freezes (SIGSTOP) the processes of three servers and a client agent in turns, while a client of each of
// them writes a counter of its own and reads it back. Whoever asks a process that runs gets an answer in time, a
// write that is acknowledged is read, and one whose outcome is unknown says so.
func RunFreezes(ctx context.Context, l *faultrun.Lab, cfg Freezes, seed uint64) (*FreezesReport, error) {
	c, err := l.Open(ctx, harness.Config{Servers: 3})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	agent, err := c.StartAgent()
	if err != nil {
		return nil, err
	}
	defer agent.Kill()
	r := &freezeRun{cfg: cfg, report: &FreezesReport{}, thawed: map[*faultrun.Server]time.Time{},
		rng: rand.New(rand.NewPCG(seed, 14))}
	everyone := append(slices.Clone(c.Servers), agent)
	if err := spawn.Until(ctx, harness.StartLimit, "the agent to answer", func() error {
		if got := c.Admin.At(agent.HTTP).Do(ctx, "GET", "/v1/catalog/nodes", nil); got.Status != 200 {
			return errors.New(got.String())
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, agent.Log())
	}
	load, stop := context.WithCancel(ctx)
	defer stop()
	var clients sync.WaitGroup
	errs := make([]error, len(everyone))
	for i, s := range everyone {
		clients.Go(func() {
			if errs[i] = r.client(load, s); errs[i] != nil {
				stop()
			}
		})
	}
	var driver error
	for round := 0; round < cfg.Rounds && load.Err() == nil; round++ {
		if driver = r.freeze(load, c, agent, round); driver != nil {
			break
		}
	}
	stop()
	clients.Wait()
	if load.Err() != nil && ctx.Err() == nil && errors.Is(driver, context.Canceled) {
		driver = nil // a client ended the run, and says why
	}
	if err := errors.Join(append(errs, driver, c.Damage(), agent.Damage(), ctx.Err())...); err != nil {
		return r.report, fmt.Errorf("seed %d: %w\n%s%s", seed, err, c.Logs(), agent.Log())
	}
	return r.report, nil
}

type freezeRun struct {
	cfg Freezes
	rng *rand.Rand

	mu     sync.Mutex // guards all below
	report *FreezesReport
	frozen *faultrun.Server
	thawed map[*faultrun.Server]time.Time
}

// freeze stops one process for a while; the next follows at once in each second round.
func (r *freezeRun) freeze(ctx context.Context, c *faultrun.Cluster, agent *faultrun.Server, round int) error {
	leader, err := c.AwaitLeader(ctx, harness.StartLimit)
	if err != nil {
		return err
	}
	followers := c.Followers(leader)
	victim := []*faultrun.Server{leader, followers[r.rng.IntN(2)], agent, leader, followers[0], followers[1]}[round%6]
	if err := r.stop(victim); err != nil {
		return err
	}
	d := r.cfg.Least + time.Duration(r.rng.Int64N(int64(r.cfg.Most-r.cfg.Least)+1))
	waitErr := spawn.Sleep(ctx, d)
	if err := errors.Join(waitErr, r.goOn(victim)); err != nil {
		return err
	}
	if round%2 == 0 {
		if err := spawn.Sleep(ctx, 2*time.Second); err != nil {
			return err
		}
	}
	return nil
}

func (r *freezeRun) stop(s *faultrun.Server) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = s
	return s.Freeze()
}

func (r *freezeRun) goOn(s *faultrun.Server) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = nil
	err := s.Thaw()
	r.thawed[s] = time.Now()
	return err
}

// excused reports whether s itself stood still at any time since begin.
func (r *freezeRun) excused(s *faultrun.Server, begin time.Time, was bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return was || r.frozen == s || r.thawed[s].After(begin)
}

// client writes and reads a counter of its own through one process until ctx ends.
func (r *freezeRun) client(ctx context.Context, s *faultrun.Server) error {
	c := faultrun.NewClient(s.HTTP)
	c.Timeout = 40 * time.Second
	defer c.Close()
	key := "/v1/kv/freeze/" + s.Name
	acked, sent := 0, 0
	for spawn.Sleep(ctx, 50*time.Millisecond) == nil {
		begin, was := time.Now(), r.excused(s, time.Now(), false)
		sent++
		put := c.Do(ctx, "PUT", key, []byte(strconv.Itoa(sent)))
		if err := r.note(s, "write", put, r.excused(s, begin, was)); err != nil && ctx.Err() == nil {
			return err
		}
		if put.Status == 200 {
			acked = sent
		} else if ctx.Err() == nil {
			r.count(func(rep *FreezesReport) { rep.Unknown++ })
		}
		begin, was = time.Now(), r.excused(s, time.Now(), false)
		get := c.Do(ctx, "GET", key+"?raw", nil)
		if err := r.note(s, "read", get, r.excused(s, begin, was)); err != nil && ctx.Err() == nil {
			return err
		}
		if get.Status != 200 {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(get.Body))); err != nil || n < acked || n > sent {
			return fmt.Errorf("%s: read %q, acknowledged were %d, sent %d", s.Name, get.Body, acked, sent)
		}
	}
	return nil
}

// note judges one answer of a process: excused where that stood still itself.
func (r *freezeRun) note(s *faultrun.Server, what string, got faultrun.Reply, excused bool) error {
	r.count(func(rep *FreezesReport) {
		if what == "read" {
			rep.Reads++
		} else {
			rep.Writes++
		}
		if !excused && got.Took > rep.Slowest {
			rep.Slowest, rep.Slow = got.Took, fmt.Sprintf("a %s through %s: %s", what, s.Name, got)
		}
	})
	if !excused && got.Took > r.cfg.Limit {
		return fmt.Errorf("a %s through %s took %s: %s", what, s.Name, got.Took, got)
	}
	return nil
}

func (r *freezeRun) count(f func(*FreezesReport)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.report)
}
