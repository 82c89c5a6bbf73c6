package local

import (
	"sync"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/catalog/definition"
)

// runs makes the check runner do what the state decides, in the order of the decisions.
type runs struct {
	cfg    *Config
	runner *check.Runner
	rights *aliasRights
	notify func() // the catalog is to be told something

	mu    sync.Mutex // the state and the runner change as one; no I/O under it
	state *state
}

// putService changes the state, unless ask refuses that. The syncer is to be told.
func (r *runs) putService(ask may, d *definition.Service, checks []*definition.Check, replace bool) (change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.state.putService(ask, d, checks, replace)
	r.follow(c)
	return c, err
}

// putCheck is false when the check's service is not there.
func (r *runs) putCheck(ask may, d *definition.Check) (change, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok, err := r.state.putCheck(ask, d)
	r.tell(c)
	return c, ok, err
}

// removeService is false when it is not there.
func (r *runs) removeService(id string) (change, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.state.removeService(id)
	r.tell(c)
	return c, ok
}

// removeCheck is false when it is not there.
func (r *runs) removeCheck(id string) (change, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.state.removeCheck(id)
	r.tell(c)
	return c, ok
}

// resume starts checks from the status that the catalog has; see state.resume.
func (r *runs) resume(stored []*catalog.Check) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.follow(r.state.resume(stored))
}

// tell follows a change, and lets the syncer tell the catalog.
func (r *runs) tell(c change) {
	if c.version > 0 {
		r.follow(c)
		r.notify()
	}
}

// follow stops and starts what a change says.
func (r *runs) follow(c change) {
	for _, id := range c.stop {
		r.runner.Remove(id)
	}
	for _, s := range c.start {
		r.start(s)
	}
}

// start runs a check that the state holds.
func (r *runs) start(s started) {
	spec := s.way.Through(s.def.Spec(r.cfg.OutputMaxSizeBytes))
	spec.Start = s.from
	if spec.Kind == check.KindAlias {
		if s.def.AliasNode == "" || s.def.AliasNode == r.cfg.Node.Name {
			return // the state keeps it
		}
		spec.Probe, spec.Interval = r.rights.remote(s.def), remoteAliasInterval
	}
	r.runner.Add(s.def.ID, spec, func(seq uint64, result check.Result) {
		if r.state.result(s.def.ID, s.run, seq, result) {
			r.notify()
		}
	})
}
