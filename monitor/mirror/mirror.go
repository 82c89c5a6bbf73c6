// Package mirror copies objects from other clusters into this one, as replicators say (federation/v1).
//
// One way: what a source has is put here, over what has its name; what it had and has no more goes here too. Only
// objects that came from a source go with it: each has a record (monitor.Copy), written and removed in the same
// command as itself. An object that came from this cluster in the first place is not offered back to it.
//
// The leader of the plane's group does it, a round for each replicator and interval. A round that did not get the
// whole list changes nothing. Rounds, pages, lists and calls are bounded; one replicator has one round at a time, and
// all of them rounds at once. What cannot be written is named in the log and in Status, and tried again in the next
// round.
//
// Run owns all goroutines. Status may be called from any goroutine; it tells what this server did since it leads.
package mirror

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
)

const (
	lookEvery = time.Second      // for replicators that are due
	roundTime = 2 * time.Minute  // for one round
	callTime  = 15 * time.Second // for one page
	rounds    = 4                // at once
)

// Config of a Mirror.
type Config struct {
	Resources *resources.Resources
	// Leads says whether it is this server's turn.
	Leads func() bool
	// Cluster is this cluster's ID.
	Cluster func() string
	Now     func() time.Time
	Log     *slog.Logger
}

// Status is what came of a replicator's rounds. Times are Unix seconds, 0 where there was none.
type Status struct {
	Name      string `json:"name"`
	URL       string `json:"url"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Rounds    uint64 `json:"rounds"`
	Failed    uint64 `json:"failed"`       // rounds that did not get the whole list, or could not write all of it
	LastRound int64  `json:"last_round"`   // its end
	LastGood  int64  `json:"last_success"` // the end of the newest that copied everything
	Objects   int    `json:"objects"`      // that the source had
	Written   uint64 `json:"written"`
	Deleted   uint64 `json:"deleted"`
	Refused   uint64 `json:"refused"` // that could not be written or deleted, counted each time
	Error     string `json:"error"`   // of the newest round
}

// state is a replicator's.
type state struct {
	index  uint64 // of the object when its newest round began
	due    time.Time
	busy   bool
	status Status
}

// Mirror copies. Make it with New.
type Mirror struct {
	cfg    Config
	looked uint64 // the index at which no record was to be released; Run's

	mu     sync.Mutex
	states map[string]*state // by name
}

// New returns a Mirror that does nothing before Run.
func New(cfg Config) *Mirror { return &Mirror{cfg: cfg, states: map[string]*state{}} }

// Run copies while this server leads, until ctx ends.
func (m *Mirror) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !m.cfg.Leads() {
			m.forget()
			continue
		}
		if err := m.release(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("cannot remove the records of deleted replicators; trying again", "error", err)
		}
		for _, item := range m.due() {
			all.Go(func() { m.round(ctx, item) })
		}
	}
}

// forget drops what is known of rounds that are over: another server leads, and tells of its own.
func (m *Mirror) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.states {
		if !s.busy {
			delete(m.states, name)
		}
	}
}

// due returns the replicators whose turn it is, as many as may have a round now, and marks them.
func (m *Mirror) due() (list []*objects.Item) {
	now := m.cfg.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	busy, there := 0, map[string]bool{}
	for _, s := range m.states {
		if s.busy {
			busy++
		}
	}
	m.cfg.Resources.View().List("etcd-replicators", "", "", "", func(i *objects.Item) bool {
		there[i.Name] = true
		s := m.states[i.Name]
		if s == nil {
			s = &state{}
			m.states[i.Name] = s
		}
		if !s.busy && busy < rounds && (i.Index != s.index || !now.Before(s.due)) {
			r := i.Object().(*monitor.Replicator)
			s.busy, s.index = true, i.Index
			s.status.Name, s.status.URL, s.status.Resource, s.status.Namespace = r.Name, r.URL, r.Resource, r.Only
			list = append(list, i)
			busy++
		}
		return true
	})
	for name, s := range m.states {
		if !there[name] && !s.busy {
			delete(m.states, name)
		}
	}
	return list
}

// outcome is what one round did.
type outcome struct {
	objects                   int
	written, deleted, refused uint64
}

// round does one round and notes what came of it.
func (m *Mirror) round(ctx context.Context, item *objects.Item) {
	r := item.Object().(*monitor.Replicator)
	limit, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	out, err := m.copy(limit, r)
	if ctx.Err() != nil {
		err = nil // the process ends
	}
	if err != nil {
		m.cfg.Log.Warn("a replicator's round failed; trying again", "replicator", r.Name, "url", r.URL, "resource",
			r.Resource, "refused", out.refused, "error", err)
	}
	if out.written+out.deleted > 0 {
		m.cfg.Log.Info("objects were replicated", "replicator", r.Name, "resource", r.Resource, "written", out.written,
			"deleted", out.deleted)
	}
	pause := time.Duration(r.Interval) * time.Second
	if pause == 0 {
		pause = monitor.DefaultReplication * time.Second
	}
	now := m.cfg.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.states[r.Name]
	s.busy, s.due = false, now.Add(pause)
	st := &s.status
	st.Rounds++
	st.LastRound, st.Error = now.Unix(), ""
	if out.objects > 0 || err == nil { // without its list, what the source had before is the best that is known
		st.Objects = out.objects
	}
	st.Written, st.Deleted, st.Refused = st.Written+out.written, st.Deleted+out.deleted, st.Refused+out.refused
	if err != nil {
		st.Failed++
		st.Error = err.Error()
		return
	}
	st.LastGood = now.Unix()
}

// Status tells of all replicators that this server saw while it leads, by name.
func (m *Mirror) Status() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Status, 0, len(m.states))
	for _, s := range m.states {
		if s.status.Name != "" {
			list = append(list, s.status)
		}
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// copy fetches all of a source and makes what this cluster has of it the same.
func (m *Mirror) copy(ctx context.Context, r *monitor.Replicator) (out outcome, err error) {
	typ, ok := r.Type()
	if !ok { // one that a later version wrote
		return out, errkind.Errorf(errkind.Invalid, "resource %s of %s is not one that this version replicates", r.Resource,
			r.APIVersion)
	}
	c, err := newSource(r)
	if err != nil {
		return out, err
	}
	defer c.http.CloseIdleConnections()
	origin, list, err := c.all(ctx, typ, m.cfg.Cluster())
	if err != nil {
		return out, err
	}
	out.objects = len(list)
	changes, taken, n := plan(m.cfg.Resources.View(), r, typ, origin, list)
	out.refused = n
	if err = m.write(ctx, changes, &out); err == nil && n > 0 {
		err = errkind.Errorf(errkind.Conflict, "%s is another replicator's", taken)
	}
	return out, err
}

// write does changes, many with one command where that works.
func (m *Mirror) write(ctx context.Context, changes []change, out *outcome) error {
	var refused error
	one := func(batch []change) error {
		var ops []objects.Op
		for _, c := range batch {
			ops = append(ops, c.ops...)
		}
		if len(ops) == 0 {
			return nil
		}
		err := m.cfg.Resources.Write(ctx, ops...)
		for _, c := range batch {
			switch {
			case err != nil:
			case c.deletes:
				out.deleted++
			case c.counts:
				out.written++
			}
		}
		return err
	}
	for batch := range slices.Chunk(changes, batchChanges) {
		err := one(batch)
		if err == nil {
			continue
		}
		if k := errkind.Of(err); k != errkind.Conflict && k != errkind.NotFound && k != errkind.Invalid {
			return err
		}
		for _, c := range batch { // one of them is refused: find which
			if err := one([]change{c}); err != nil {
				out.refused++
				refused = errkind.E(errkind.Of(err), c.what(), err)
				if ctx.Err() != nil {
					return refused
				}
			}
		}
	}
	return refused
}

// batchChanges is how many objects are written with one command.
const batchChanges = 64

var errRedirect = errkind.New(errkind.Invalid,
	"the source answers with a redirect, and the API key is for its own address alone")

func noRedirect(*http.Request, []*http.Request) error { return errRedirect }
