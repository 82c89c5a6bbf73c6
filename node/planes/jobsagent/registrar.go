package jobsagentplane

import (
	"context"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/nodeclient"
	"corbel.dev/corbel/jobs/client/services"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
)

// registrar has the services of this node's allocations registered: in the catalog by the host's local registrations,
// or natively at the servers of the jobs plane. It implements allocrunner.Services.
//
// Set never waits: the newest wish of each allocation is carried out by Run. Native checks, and those that run inside
// of tasks, are run here; the others by the host's own checks.
type registrar struct {
	d       *plane.Doors
	servers servers
	client  *nodeclient.Client
	runner  *check.Runner

	mu     sync.Mutex // guards what follows; nothing is called out under it
	want   map[jobs.ID][]services.Service
	dirty  map[jobs.ID]bool
	state  map[string]status // of checks that run here, by id
	native map[string]noderpc.Registration
	kick   chan struct{} // capacity 1: want changed
	fresh  chan struct{} // capacity 1: native did

	done map[jobs.ID][]services.Service // Run's own: what is registered
}

// status is a check's.
type status struct {
	check.Result
	since time.Time
}

func newRegistrar(d *plane.Doors, s servers) *registrar {
	return &registrar{d: d, servers: s, runner: check.New(check.Config{Clock: d.Clock, Log: d.Log}),
		want: map[jobs.ID][]services.Service{}, dirty: map[jobs.ID]bool{}, state: map[string]status{},
		native: map[string]noderpc.Registration{}, kick: make(chan struct{}, 1),
		fresh: make(chan struct{}, 1), done: map[jobs.ID][]services.Service{}}
}

// Set implements allocrunner.Services.
func (r *registrar) Set(alloc jobs.ID, list []services.Service) {
	r.mu.Lock()
	same := len(list) == len(r.want[alloc]) && (len(list) == 0 || reflect.DeepEqual(list, r.want[alloc]))
	if !same {
		r.dirty[alloc] = true
		if len(list) == 0 {
			delete(r.want, alloc)
		} else {
			r.want[alloc] = list
		}
	}
	r.mu.Unlock()
	if !same {
		r.wake()
	}
}

func (r *registrar) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// Healthy implements allocrunner.Services.
func (r *registrar) Healthy(alloc jobs.ID) bool {
	r.mu.Lock()
	list, busy := r.want[alloc], r.dirty[alloc]
	r.mu.Unlock()
	if busy {
		return false
	}
	for i := range list {
		for j := range list[i].Checks {
			if c := &list[i].Checks[j]; !c.IgnoreForRollout && r.statusOf(&list[i], c) != catalog.Passing {
				return false
			}
		}
	}
	return true
}

// statusOf is how a check is now.
func (r *registrar) statusOf(s *services.Service, c *services.Check) catalog.Health {
	if !s.Native {
		if l := r.d.Local.Check(c.ID); l != nil {
			return l.Check.Status
		}
		return catalog.Critical
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if st, ok := r.state[c.ID]; ok {
		return st.Status
	}
	return catalog.Critical
}

// CheckStatus is the contract's AllocCheckStatus.
type CheckStatus struct {
	ID, Check, Group, Mode, Output, Service, Task, Status string
	StatusCode                                            int `json:",omitempty"`
	Timestamp                                             int64
}

// Status is the state of the native checks of an allocation, by their ids.
func (r *registrar) Status(alloc [16]byte) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]CheckStatus{}
	for _, s := range r.want[jobs.ID(alloc)] {
		for _, c := range s.Checks {
			st, ok := r.state[c.ID]
			if !s.Native || !ok {
				continue
			}
			text := "failure"
			if st.Status == catalog.Passing {
				text = "success"
			}
			out[c.ID] = CheckStatus{ID: c.ID, Check: c.Name, Mode: "healthiness", Output: st.Output, Service: s.Name,
				Task: s.Task, Status: text, Timestamp: st.since.Unix()}
		}
	}
	return out
}

// retryAfter is how soon what failed is tried again, and tick how often failing checks are weighed.
const (
	retryAfter = 5 * time.Second
	tick       = time.Second
)

// Run registers and deregisters until ctx ends.
func (r *registrar) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts.Go(func() { _ = r.runner.Run(ctx) })
	parts.Go(func() { r.listen(ctx) })
	parts.Go(func() { r.publish(ctx) })
	select {
	case <-r.client.Ready():
	case <-ctx.Done():
		return nil
	}
	r.sweep(ctx)
	for {
		again := !r.apply(ctx)
		wait := time.Hour
		if again {
			wait = retryAfter
		}
		timer := r.d.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-r.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// idPrefix begins the ids of services of allocations.
const idPrefix = "_nomad-task-"

// sweep takes services away whose allocations are gone since a former life.
func (r *registrar) sweep(ctx context.Context) {
	for id := range r.d.Local.View().Services {
		rest, ok := strings.CutPrefix(id, idPrefix)
		if ok && len(rest) > 36 && !r.client.Has(rest[:36]) {
			_ = r.d.Local.DeregisterService(ctx, id)
		}
	}
}

// apply carries out what changed; false when something failed.
func (r *registrar) apply(ctx context.Context) bool {
	r.mu.Lock()
	dirty := maps.Clone(r.dirty)
	clear(r.dirty)
	r.mu.Unlock()
	well := true
	for alloc := range dirty {
		r.mu.Lock()
		want := r.want[alloc]
		r.mu.Unlock()
		if err := r.one(ctx, alloc, want); err != nil {
			if ctx.Err() == nil {
				r.d.Log.Warn("services of an allocation are not registered", "alloc", alloc.String(), "error", err)
			}
			well = false
			r.mu.Lock()
			r.dirty[alloc] = true
			r.mu.Unlock()
			continue
		}
		if r.done[alloc] = want; len(want) == 0 {
			delete(r.done, alloc)
		}
		r.client.Notify(alloc)
	}
	return well
}

// one makes what is registered of an allocation what is wanted.
func (r *registrar) one(ctx context.Context, alloc jobs.ID, want []services.Service) error {
	keep := map[string]bool{}
	for i := range want {
		keep[want[i].ID] = true
		for _, c := range want[i].Checks {
			keep[c.ID] = true
		}
	}
	for _, old := range r.done[alloc] {
		for _, c := range old.Checks {
			if !keep[c.ID] {
				r.forget(c.ID)
			}
		}
		if keep[old.ID] {
			continue
		}
		if old.Native {
			r.setNative(old.ID, nil)
		} else if err := r.d.Local.DeregisterService(ctx, old.ID); err != nil && !errkind.Is(err, errkind.NotFound) {
			return err
		}
	}
	for i := range want {
		s := &want[i]
		for j := range s.Checks {
			if c := &s.Checks[j]; s.Native || c.Type == "script" {
				r.begin(alloc, s, c)
			}
		}
		if s.Native {
			r.setNative(s.ID, &noderpc.Registration{ID: s.ID, Name: s.Name, Namespace: s.Namespace, Job: s.Job, Alloc: alloc,
				Address: s.Address, Port: s.Port, Tags: s.Tags})
			continue
		}
		o := local.RegisterOptions{ReplaceExistingChecks: true, Persist: r.d.Cfg.DataDir != "",
			Token: r.d.Tokens.Get(base.TokenDefault)}
		if err := r.d.Local.RegisterService(ctx, definitionOf(s), o); err != nil {
			return err
		}
	}
	return nil
}

// begin begins to run a check here.
func (r *registrar) begin(alloc jobs.ID, s *services.Service, c *services.Check) {
	id, ttl := c.ID, !s.Native
	r.runner.Add(id, specOf(c, func(ctx context.Context) check.Result { return r.script(ctx, alloc, c) }),
		func(_ uint64, res check.Result) {
			r.mu.Lock()
			old, known := r.state[id]
			st := status{res, r.d.Clock.Now()}
			if known && old.Status == res.Status {
				st.since = old.since
			}
			r.state[id] = st
			r.mu.Unlock()
			if ttl {
				_ = r.d.Local.UpdateTTL(id, res.Status.String(), res.Output)
			}
			r.client.Notify(alloc)
		})
}

// script runs a check inside of its task.
func (r *registrar) script(ctx context.Context, alloc jobs.ID, c *services.Check) check.Result {
	ctx, cancel := context.WithTimeout(ctx, max(c.Timeout, time.Second))
	defer cancel()
	code, output, err := r.client.Exec(ctx, alloc, c.Task, c.Command)
	switch {
	case err != nil:
		return check.Result{Status: catalog.Critical, Output: err.Error()}
	case code == 0:
		return check.Result{Status: catalog.Passing, Output: output}
	case code == 1:
		return check.Result{Status: catalog.Warning, Output: output}
	}
	return check.Result{Status: catalog.Critical, Output: output}
}

func (r *registrar) forget(id string) {
	r.runner.Remove(id)
	r.mu.Lock()
	delete(r.state, id)
	r.mu.Unlock()
}

// listen tells allocations when the host's checks change, and restarts tasks whose checks fail for too long.
func (r *registrar) listen(ctx context.Context) {
	var version uint64
	failing := map[string]time.Time{}
	for ctx.Err() == nil {
		soon, cancel := context.WithTimeout(ctx, tick)
		view := r.d.Local.Await(soon, version)
		cancel()
		changed := view.Version != version
		version = view.Version
		r.mu.Lock()
		want := maps.Clone(r.want)
		r.mu.Unlock()
		for alloc, list := range want {
			if changed {
				r.client.Notify(alloc)
			}
			r.restarts(alloc, list, failing)
		}
		if len(failing) > 0 {
			r.prune(failing)
		}
	}
}
