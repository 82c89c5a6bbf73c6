package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/script"
)

// matchTime bounds how long one check's expressions are evaluated before the next check has its turn. What was found
// out by then is kept, so the rest follows with the next tick.
const matchTime = time.Second

// targets are the entities that a check's expressions hold for. All but programs belongs to the matcher's goroutine.
type targets struct {
	programs []*script.Program

	verdicts map[string]verdict // by entity
	seen     uint64             // how often entities had changed when list was made whole; 0 is that it was not
	list     []*monitor.EntityConfig
	told     bool // that an expression fails
}

// verdict is whether the expressions hold for an entity as it was at an index.
type verdict struct {
	index uint64
	holds bool
	pass  uint64
}

func newTargets(expressions []string) (*targets, error) {
	t := &targets{verdicts: map[string]verdict{}}
	for _, e := range expressions {
		p, err := script.NewProgram(e)
		if err != nil {
			return nil, err
		}
		t.programs = append(t.programs, p)
	}
	return t, nil
}

// job is a tick of a check that is for proxies.
type job struct {
	check  *check
	due    time.Time
	adhoc  bool
	issued int64 // the least, of an ad hoc one
}

// matcher is what waits for the goroutine that finds proxy entities: of each check its newest tick.
type matcher struct {
	wake chan struct{}
	pass uint64

	mu    sync.Mutex
	order []checkKey
	jobs  map[checkKey][2]*job // scheduled, ad hoc
}

func (m *matcher) init() {
	m.wake, m.jobs = make(chan struct{}, 1), map[checkKey][2]*job{}
}

func (m *matcher) want(j job) {
	m.mu.Lock()
	key := j.check.key
	pair, queued := m.jobs[key]
	if !queued {
		m.order = append(m.order, key)
	}
	if j.adhoc {
		pair[1] = &j
	} else {
		pair[0] = &j
	}
	m.jobs[key] = pair
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// forget drops a check's tick that waits.
func (m *matcher) forget(key checkKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pair, queued := m.jobs[key]; queued {
		pair[0] = nil
		m.jobs[key] = pair
	}
}

func (m *matcher) take() (pair [2]*job, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.order) == 0 {
		return pair, false
	}
	key := m.order[0]
	m.order = m.order[1:]
	pair = m.jobs[key]
	delete(m.jobs, key)
	return pair, true
}

// match finds the entities of checks that are for proxies, one check after the other, until ctx ends.
func (r *Scheduler) match(ctx context.Context) error {
	for {
		pair, ok := r.matcher.take()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-r.matcher.wake:
			}
			continue
		}
		for _, j := range pair {
			if j != nil {
				r.runProxies(j, r.entitiesOf(ctx, j.check))
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// entitiesOf returns the entities that the check's expressions hold for, in order of their names.
func (r *Scheduler) entitiesOf(ctx context.Context, c *check) []*monitor.EntityConfig {
	r.mu.Lock()
	generation := r.restored + r.entities[c.key.namespace] + 1 // so that 0 is none
	r.mu.Unlock()
	t := c.targets
	if t.seen == generation {
		return t.list
	}
	began := r.cfg.Clock.Now()
	r.matcher.pass++
	var list []*monitor.EntityConfig
	whole := true
	r.cfg.View().List("entities", c.key.namespace, "", "", func(i *objects.Item) bool {
		v, known := t.verdicts[i.Name]
		if !known || v.index != i.Index {
			if r.cfg.Clock.Since(began) > matchTime || ctx.Err() != nil {
				whole = false
				return ctx.Err() == nil
			}
			v = verdict{index: i.Index, holds: r.holds(ctx, c, i.Object().(*monitor.EntityConfig))}
		}
		v.pass = r.matcher.pass
		t.verdicts[i.Name] = v
		if v.holds {
			list = append(list, i.Object().(*monitor.EntityConfig))
		}
		return true
	})
	t.list, t.seen = list, 0
	if whole {
		t.seen = generation
		for name, v := range t.verdicts {
			if v.pass != r.matcher.pass {
				delete(t.verdicts, name)
			}
		}
	}
	return list
}

// holds evaluates a check's expressions for an entity. One that fails does not hold.
func (r *Scheduler) holds(ctx context.Context, c *check, e *monitor.EntityConfig) bool {
	b, err := json.Marshal(e)
	for _, p := range c.targets.programs {
		if err != nil {
			break
		}
		var out script.Result
		if out, err = r.cfg.Scripts.Do(ctx, script.Task{Program: p,
			Vars: []script.Var{{Name: "entity", JSON: b}}}); err == nil && !out.Truth {
			return false
		}
	}
	if err != nil && ctx.Err() == nil {
		r.failed.Add(1)
		if !c.targets.told {
			c.targets.told = true
			r.cfg.Log.Warn("a proxy_requests expression failed; skipping the entity", "namespace", c.key.namespace, "check",
				c.key.name, "entity", e.Name, "error", err)
		}
	}
	return err == nil
}

// runProxies has a check run for entities: by all who subscribe, or dealt out.
func (r *Scheduler) runProxies(j *job, list []*monitor.EntityConfig) {
	c := j.check
	if len(list) == 0 {
		return
	}
	over := c.over(j.due)
	if c.config.RoundRobin && !j.adhoc {
		tick := c.tick(j.due)
		tick.Over = over
		for _, e := range list {
			tick.Proxies = append(tick.Proxies, e.Name)
		}
		r.cfg.RoundRobin.Deal(tick)
		return
	}
	s := &spread{check: c, adhoc: j.adhoc}
	_, s.issued = r.request(c, j.issued)
	for i, e := range list {
		s.items = append(s.items, proxyRun{after: over / time.Duration(len(list)) * time.Duration(i), entity: e})
	}
	r.post(s)
}

// maxSpreads bounds how many ticks' proxy requests are on their way.
const maxSpreads = 16 << 10

var errTooMany = errors.New("too many proxy requests wait to be sent")

// post hands proxy requests to the loop.
func (r *Scheduler) post(s *spread) {
	r.mu.Lock()
	full := len(r.posted) >= maxSpreads
	if !full {
		r.posted = append(r.posted, s)
	}
	r.mu.Unlock()
	if full {
		r.failed.Add(uint64(len(s.items)))
		r.cfg.Log.Error("proxy requests are left out", "namespace", s.check.key.namespace, "check", s.check.key.name, "error",
			errTooMany)
		return
	}
	r.notify()
}

// proxied sends one proxy request.
func (r *Scheduler) proxied(s *spread, one proxyRun) {
	c := s.check
	r.mu.Lock()
	gone := !s.adhoc && r.checks[c.key] != c
	r.mu.Unlock()
	if gone {
		return
	}
	filled, err := fill(c.shown, one.entity)
	if err != nil {
		r.failed.Add(1)
		r.cfg.Log.Warn("cannot create a proxy request", "namespace", c.key.namespace, "check", c.key.name, "entity",
			one.entity.Name, "error", err)
		return
	}
	r.sendProxied(s, filled, one.agent)
}
