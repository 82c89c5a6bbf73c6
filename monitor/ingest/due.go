package ingest

import (
	"context"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/frame"
)

// Results that hold for a time only are listed by the second at which they end. A new result moves its end
// without touching the list: whoever finds it there looks whether it is still due. Seconds are counted from
// this process's start by a clock that nobody sets, so a jump of the machine's time ends nothing. It stands still
// while agents are refused, who cannot be heard then: of a server that knows no leader for long, living agents that
// look for another one are not missed.

// alarms says which results are missed.
type alarms struct{ *Ingest }

// seconds returns how long this process has run and could be reached.
func (in alarms) seconds() int64 {
	return int64((in.cfg.Now().Sub(in.started) - time.Duration(in.deaf.Load())) / time.Second)
}

// hears has the clock of deadlines stand still where nobody can be heard. One goroutine calls it.
func (in alarms) hears() {
	now := in.cfg.Now()
	if !in.cfg.Policy.Hears() {
		in.deaf.Add(int64(now.Sub(in.lastLook)))
	}
	in.lastLook = now
}

// heard says that a result of k came now. The lock is held.
func (in alarms) heard(s *shard, k *key) {
	if k.kind.Lifetime.Warn == 0 {
		k.due = 0
		return
	}
	k.heard = in.seconds()
	s.list(k, k.heard+k.kind.Lifetime.Next(0))
}

// hearEarly counts a keepalive that has to wait for the disk as heard already: an agent is not missed since results
// of checks are in its way.
func (in alarms) hearEarly(namespace string, f *frame.Frame) {
	if string(f.Check) != monitor.KeepaliveCheck {
		return
	}
	s := &in.shards[shardOf(namespace, f.Parts.Name)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byName[name{namespace, string(f.Parts.Name)}]; e != nil && s.takes() {
		if k := find(e.checks, monitor.KeepaliveCheck); k != nil {
			in.heard(s, k)
		}
	}
}

// list notes when k is due.
func (s *shard) list(k *key, at int64) {
	k.due = at
	if k.listed == 0 || at < k.listed {
		k.listed = at
		s.due[at] = append(s.due[at], k.n)
	}
}

// Watch raises alarms for what was not heard of in time, until ctx ends. Whoever runs Run runs it beside.
func (in *Ingest) Watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			alarms{in}.alarm(ctx)
		}
	}
}

// alarm looks at everything that is due by now.
func (in alarms) alarm(ctx context.Context) {
	in.hears()
	now := in.seconds()
	for i := range in.shards {
		s := &in.shards[i]
		s.mu.Lock()
		if !s.owned {
			s.looked = now
		}
		if s.frozen {
			s.mu.Unlock()
			continue
		}
		for ; s.looked < now; s.looked++ {
			at := s.looked + 1
			list := s.due[at]
			delete(s.due, at)
			for _, n := range list {
				in.look(s, n, at, now)
			}
		}
		s.mu.Unlock()
		if (intake(in)).admit(ctx) != nil { // a storm of alarms waits for the disk as results do
			return
		}
	}
}

// look decides on one that was listed for at. The lock is held.
func (in alarms) look(s *shard, n uint32, at, now int64) {
	k := s.keys[n]
	if k == nil || k.listed != at { // gone, or listed anew for sooner
		return
	}
	k.listed = 0
	e := s.byName[name{k.res.Namespace, k.res.Entity}]
	silent := now - k.heard
	switch {
	case k.due == 0:
	case k.due > now:
		s.list(k, k.due)
	case k.res.Check != monitor.KeepaliveCheck && e.absent():
		s.list(k, now+int64(k.kind.Lifetime.Warn)) // its agent's own alarm says it all
	case k.res.Check == monitor.KeepaliveCheck && in.cfg.Policy.Deregisters(e.namespace, e.entity):
		k.due = 0
		namespace, entity := e.namespace, e.entity
		s.after = append(s.after, func() { in.cfg.Sink.Deregister(namespace, entity) })
		intake(in).step(s, e, k, in.overdue(k, silent), 0)
	default:
		f := in.overdue(k, silent)
		s.list(k, k.heard+k.kind.Lifetime.Next(silent))
		intake(in).step(s, e, k, f, 0)
	}
}

// absent reports whether the entity's agent is being missed.
func (e *entity) absent() bool {
	k := find(e.checks, monitor.KeepaliveCheck)
	return k != nil && k.res.State.Status != 0
}

// overdue makes the result of a check that was not heard of.
func (in alarms) overdue(k *key, silent int64) *frame.Frame {
	now := in.cfg.Now().Unix()
	status, output := k.kind.Lifetime.Overdue(k.res.Check, k.res.Entity, silent)
	return &frame.Frame{
		Result: monitor.Result{ID: uuid.New(), Timestamp: now, Executed: now, Issued: now, Sequence: k.res.State.Sequence,
			Status: status},
		Output: []byte(output), Rest: k.res.Rest, ProcessedBy: []byte(k.res.ProcessedBy),
	}
}

// expect gives everything that was loaded, or taken over, its whole time anew, spread over an interval, so that
// neither those who are alive nor those who were missed before raise an alarm together.
func (in alarms) expect(s *shard) {
	for _, k := range s.keys {
		if k != nil {
			in.await(s, k)
		}
	}
}

// goOn lets the clock of a shard's deadlines have stood still since Freeze: what agents said meanwhile waits to be
// taken. It is not their whole time anew, for a shard may be frozen often before another server has it. The lock is
// held.
func (in alarms) goOn(s *shard) {
	passed := in.seconds() - s.froze
	for _, k := range s.keys {
		if k != nil && k.due != 0 {
			k.heard += passed
			s.list(k, k.due+passed)
		}
	}
}

// await gives one check its whole time anew. The lock is held.
func (in alarms) await(s *shard, k *key) {
	if k.kind.Lifetime.Warn == 0 {
		return
	}
	spread := int64(max(k.kind.Check.Interval, 1))
	k.heard = in.seconds()
	s.list(k, k.heard+int64(k.kind.Lifetime.Warn)+(int64(k.n)+int64(s.number)*7919)%spread)
}
