package monitorruns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	faultrun "corbel.dev/corbel/test/fault"
)

// MonitorCrash is A4 for the monitor plane: servers are killed under results of agents, and what is known afterwards
// is compared with what each agent sent.
type MonitorCrash struct {
	Servers, Cycles  int
	Agents, Subjects int // 6 agents of 8 subjects each
}

// MonitorReport is what a run did. Lost are results that a server had read and that are gone with it; LostLate those
// of them that had been read more than 50 ms before the kill, WorstLost the longest time.
type MonitorReport struct {
	Cycles, Results, Lost, LostLate, Missed int
	Powerless                               int // power losses
	WorstLost                               time.Duration
	Starts                                  []time.Duration // until every server answers for everything
	Back                                    []time.Duration // agents, from the loss of a session to the next one
}

// mostRuns is how many results a subject has in a cycle: fewer than a history holds, so that the history tells which
// of them counted.
const mostRuns = 18

// RunMonitorCrash does cycles on one cluster, and in the end lets an agent die while no server runs.
func RunMonitorCrash(ctx context.Context, l *faultrun.Lab, cfg MonitorCrash, seed uint64) (*MonitorReport, error) {
	if cfg.Agents == 0 {
		cfg.Agents, cfg.Subjects = 6, 8
	}
	report := &MonitorReport{}
	r, err := openMonitor(ctx, l, harness.Config{Servers: cfg.Servers, Power: true}, cfg.Agents, cfg.Subjects, scaled,
		seed)
	if err != nil {
		return report, err
	}
	defer r.close()
	rng := rand.New(rand.NewPCG(seed, 0x6e))
	for range cfg.Cycles {
		if err := r.crash(ctx, rng, report); err != nil {
			return report, fmt.Errorf("seed %d, cycle %d: %w\n%s", seed, report.Cycles, errors.Join(err, r.Damage()), r.Logs())
		}
		report.Cycles++
	}
	if err := r.deadIsFound(ctx); err != nil {
		return report, fmt.Errorf("seed %d: %w\n%s", seed, err, r.Logs())
	}
	report.Missed++
	for _, a := range r.sensors {
		report.Back = append(report.Back, a.back...)
	}
	return report, r.Damage()
}

// crashed is one kill.
type crashed struct {
	victims  []*faultrun.Server
	at       time.Time
	settled  map[*faultrun.Server]map[int]shardState // sequences when all was quiet
	promised map[*faultrun.Server]map[int]shardState // what servers said to be durable right before the kill
}

// victims are one server, the plane's or the catalog's leader among them, two, or all.
func (r *monitorRun) victims(ctx context.Context, rng *rand.Rand) []*faultrun.Server {
	perm := rng.Perm(len(r.Servers))
	switch n := rng.IntN(6); {
	case n == 0:
		return r.Servers
	case n == 1 && len(r.Servers) > 2:
		return []*faultrun.Server{r.Servers[perm[0]], r.Servers[perm[1]]}
	case n == 2:
		if leader := r.Leader(ctx); leader != nil {
			return []*faultrun.Server{leader}
		}
	}
	return []*faultrun.Server{r.Servers[perm[0]]}
}

func (r *monitorRun) crash(ctx context.Context, rng *rand.Rand, report *MonitorReport) error {
	k := crashed{settled: map[*faultrun.Server]map[int]shardState{}, promised: map[*faultrun.Server]map[int]shardState{},
		victims: r.victims(ctx, rng)}
	var err error
	for _, s := range r.Servers {
		if k.settled[s], err = r.stored(ctx, s); err != nil {
			return err
		}
	}
	r.load(mostRuns)
	if err := spawn.Sleep(ctx, time.Duration(20+rng.IntN(200))*time.Millisecond); err != nil {
		return err
	}
	for _, s := range r.Servers {
		if k.promised[s], err = r.stored(ctx, s); err != nil {
			return err
		}
	}
	k.at = time.Now()
	for _, s := range k.victims {
		_ = s.Control.Kill()
	}
	for _, s := range k.victims {
		if err := s.Crash(rng, &report.Powerless); err != nil {
			return err
		}
	}
	// Half of the time long enough for the others to take over.
	_ = spawn.Sleep(ctx, time.Duration(rng.IntN(200)+rng.IntN(2)*3000)*time.Millisecond)
	begin := time.Now()
	if err := r.Start(); err != nil {
		return err
	}
	if err := errors.Join(r.idle(ctx), r.settled(ctx, 3*time.Minute)); err != nil {
		return err
	}
	if err := r.judge(ctx, &k, report); err != nil {
		return err
	}
	report.Starts = append(report.Starts, time.Since(begin))
	return r.remember(ctx)
}

// judge compares what each server tells with what was sent.
func (r *monitorRun) judge(ctx context.Context, k *crashed, report *MonitorReport) error {
	var all map[string]*monitor.Event
	for _, s := range r.Servers {
		got, err := r.events(ctx, s)
		if err != nil {
			return err
		}
		if all != nil && len(got) != len(all) {
			return fmt.Errorf("%s tells of %d events, another server of %d", s.Name, len(got), len(all))
		}
		all = got
	}
	if err := r.noAlarm(all); err != nil {
		return err
	}
	owners := map[int]*faultrun.Server{}
	for _, s := range r.Servers {
		now, err := r.stored(ctx, s)
		if err != nil {
			return err
		}
		for n, one := range now {
			if one.Role == "owner" {
				owners[n] = s
				if floor := k.floor(n, one.Epoch); one.Sequence < floor {
					return fmt.Errorf("shard %d is at %d, and %d was said to be durable", n, one.Sequence, floor)
				}
			}
		}
	}
	for _, a := range r.sensors {
		a.mu.Lock()
		for _, s := range a.subjects {
			if err := r.judgeSubject(k, s, all[s.name+"/disk"], report); err != nil {
				a.mu.Unlock()
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		a.mu.Unlock()
	}
	return nil
}

// floor is the sequence at or below which nothing of a shard may be lost: its owner's, or what its replica had where
// that took over.
func (k *crashed) floor(shard int, epoch uint64) uint64 {
	var owner, replica uint64
	same := false
	for _, shards := range k.promised {
		switch one := shards[shard]; one.Role {
		case "owner":
			owner, same = one.Sequence, one.Epoch == epoch
		case "replica":
			replica = one.Sequence
		}
	}
	if same {
		return owner
	}
	return min(owner, replica)
}

// ownerOf is who had a shard when all was quiet.
func (k *crashed) ownerOf(shard int) (*faultrun.Server, shardState) {
	for s, shards := range k.settled {
		if one := shards[shard]; one.Role == "owner" {
			return s, one
		}
	}
	return nil, shardState{}
}

// judgeSubject finds in the history which results counted, says whether any is missing that must not be, and steps
// through them.
func (r *monitorRun) judgeSubject(k *crashed, s *subject, now *monitor.Event, report *MonitorReport) error {
	if now == nil {
		return errors.New("nothing is known any more")
	}
	before := r.before[s.name]
	state := stateOf(before)
	counted := map[int64]bool{}
	last := before.Check.Executed
	for _, run := range now.Check.History {
		if run.Executed <= before.Check.Executed {
			continue
		}
		i := slices.IndexFunc(s.sent, func(sent *sentRun) bool { return sent.number == run.Executed })
		if i < 0 || s.sent[i].status != run.Status {
			return fmt.Errorf("run %d with status %d was never sent", run.Executed, run.Status)
		}
		if run.Executed <= last {
			return fmt.Errorf("run %d counts after run %d: twice, or out of order: %s", run.Executed, last,
				s.describe(k, counted))
		}
		last = run.Executed
		counted[last] = true
		state, _ = monitor.Step(state, monitor.Result{Timestamp: last, Sequence: last, Issued: last, Executed: last,
			Status: run.Status}, monitor.Thresholds{}, nil)
	}
	want := *now.Check
	state.Fill(&want)
	want.Silenced = now.Check.Silenced
	if !reflect.DeepEqual(want, *now.Check) {
		return fmt.Errorf("what was sent makes %+v, and not %+v", want, *now.Check)
	}
	return r.judgeLoss(k, s, counted, report)
}

func (r *monitorRun) judgeLoss(k *crashed, s *subject, counted map[int64]bool, report *MonitorReport) error {
	shard := int(ingest.ShardOf("default", s.name))
	owner, quiet := k.ownerOf(shard)
	floor := k.floor(shard, quiet.Epoch)
	if slices.Contains(k.victims, owner) && len(k.victims) < len(r.Servers) { // another may have taken over
		floor = k.floor(shard, quiet.Epoch+1)
	}
	if promised := int(floor) - int(quiet.Sequence); len(counted) < promised {
		return fmt.Errorf("%d results were said to be durable, and %d count: %s", promised, len(counted),
			s.describe(k, counted))
	}
	for _, sent := range s.sent {
		report.Results++
		if counted[sent.number] || sent.taken.IsZero() {
			continue
		}
		if !slices.Contains(k.victims, owner) && !slices.Contains(k.victims, sent.to) {
			return fmt.Errorf("run %d was read by a server that lived on, as its owner did, and is lost: %s", sent.number,
				s.describe(k, counted))
		}
		report.Lost++
		if age := k.at.Sub(sent.taken); age > 50*time.Millisecond {
			report.LostLate++
			report.WorstLost = max(report.WorstLost, age)
		}
	}
	return nil
}

// describe tells of each result: when it was read, seen from the kill, by whom, and whether it counts.
func (s *subject) describe(k *crashed, counted map[int64]bool) string {
	owner, _ := k.ownerOf(int(ingest.ShardOf("default", s.name)))
	text := "owner " + owner.Name + ", killed"
	for _, v := range k.victims {
		text += " " + v.Name
	}
	for _, r := range s.sent {
		taken := "never"
		if !r.taken.IsZero() {
			taken = r.taken.Sub(k.at).Round(time.Millisecond).String()
		}
		text += fmt.Sprintf("\n  run %d to %s (session %d), read %s, counts %t", r.number, r.to.Name, r.conn, taken,
			counted[r.number])
	}
	return text
}

// stateOf is the state that an event tells of.
func stateOf(e *monitor.Event) monitor.State {
	c := e.Check
	s := monitor.State{Change: c.TotalStateChange, LastOK: c.LastOK, Occurrences: c.Occurrences, Watermark: c.Watermark}
	for _, run := range c.History {
		s.History.Add(run.Status, run.Executed)
	}
	return s
}

// deadIsFound: of all agents one dies before all servers are killed; it is missed afterwards, and nobody else.
func (r *monitorRun) deadIsFound(ctx context.Context) error {
	err := spawn.Until(ctx, time.Minute, "a session of an agent that is to die", func() error {
		c, err := dialAgent(ctx, r.Servers[0], "mortal", "")
		if err != nil {
			return err
		}
		defer c.Close()
		if err := errors.Join(beat(c, "mortal", scaled), c.Flush()); err != nil {
			return err
		}
		return spawn.Until(ctx, 5*time.Second, "its keepalive", func() error {
			return r.clients[r.Servers[0]].Get(ctx, "/api/core/v2/namespaces/default/events/mortal/keepalive", &struct{}{})
		})
	})
	if err == nil {
		err = r.settled(ctx, time.Minute)
	}
	if err != nil {
		return err
	}
	for _, s := range r.Servers {
		_ = s.Control.Kill()
	}
	for _, s := range r.Servers {
		s.Kill()
	}
	if err := r.Start(); err != nil {
		return err
	}
	last := r.Servers[len(r.Servers)-1]
	if err := spawn.Until(ctx, 2*time.Minute, "an agent that died while no server ran to be missed", func() error {
		all, err := r.events(ctx, last)
		if err != nil {
			return err
		}
		if e := all["mortal/keepalive"]; e == nil || e.Check.Status == 0 {
			return errors.New("it is not missed")
		}
		return nil
	}); err != nil {
		return err
	}
	if err := r.idle(ctx); err != nil {
		return err
	}
	all, err := r.events(ctx, last)
	return errors.Join(err, r.noAlarm(all))
}
