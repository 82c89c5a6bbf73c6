package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/catalog/local/disk"
	"corbel.dev/corbel/catalog/local/exposed"
)

// Service is a registered service. Immutable.
type Service struct {
	Service    *catalog.Service
	Definition *definition.Service
	// Hash changes when the registration does: the value of ?hash=.
	Hash string

	forProxy *catalog.Service // see ForProxy; nil: it is Service
}

// Check is a registered check with its newest result. Immutable.
type Check struct {
	Check      *catalog.Check
	Definition *definition.Check
	// CriticalSince is when it turned critical; zero when it is not.
	CriticalSince time.Time
}

// View is everything registered at one moment. Immutable.
type View struct {
	Version  uint64
	Services map[string]*Service
	Checks   map[string]*Check
}

type serviceEntry struct {
	cur      *Service
	gen      uint64        // the version of its last change
	replaced chan struct{} // closed when cur is replaced or removed
}

type checkEntry struct {
	cur      *Check
	gen      uint64
	run      uint64    // which start of the runner it listens to
	seq      uint64    // newest result taken from that run
	outputAt time.Time // when a new output is due at the catalog; zero: none is held back
	way      exposed.Way
}

// state is what this host registered, and what of it the catalog has not got yet. It does no
// I/O and starts nothing: what is to be done beside it, it returns as a change.
type state struct {
	cfg *Config

	mu            sync.Mutex // guards all that follows
	discardOutput bool
	version       uint64 // grows with every change
	services      map[string]*serviceEntry
	checks        map[string]*checkEntry
	checksOf      map[string]map[string]*checkEntry // by service id, "" for the node
	view          *View                             // nil when a reader has to build it
	changed       chan struct{}                     // closed and replaced at each change that somebody awaits
	awaited       bool
	pending       pending
	ttl           ttlStates
	aliases       aliases
	exposed       exposed.Table
	// loaded is the version of the last check loaded at the start, until the catalog was read; see resume
	loaded uint64
}

// pending is what the catalog is to be told. An entry is in a set until a call that told its
// newest version was answered.
type pending struct {
	node         bool
	services     map[string]struct{}
	checks       map[string]struct{}
	goneServices map[string]gone // to be deregistered
	goneChecks   map[string]gone
	heldBack     map[string]*checkEntry // outputs to be sent later
}

// aliases are the checks that show the state of other registrations of this host.
type aliases struct {
	byTarget map[string]map[string]*checkEntry // by the id of the target service, "" for the node
	sights   map[sight]bool                    // what their tokens may read, as far as it was asked
}

// ttlStates are the states of TTL checks that a restart keeps.
type ttlStates struct {
	changed bool                     // a TTL check's status changed since the last save
	beaten  bool                     // a heartbeat came since the last save
	seen    map[string]time.Time     // TTL check to the end of its period
	former  map[string]disk.TTLState // from before the restart, of checks that have not come back yet
}

func newState(cfg *Config) *state {
	return &state{cfg: cfg, discardOutput: cfg.DiscardCheckOutput,
		services: map[string]*serviceEntry{}, checks: map[string]*checkEntry{},
		checksOf: map[string]map[string]*checkEntry{}, changed: make(chan struct{}),
		pending: pending{node: true, services: map[string]struct{}{}, checks: map[string]struct{}{},
			goneServices: map[string]gone{}, goneChecks: map[string]gone{}, heldBack: map[string]*checkEntry{}},
		ttl:     ttlStates{seen: map[string]time.Time{}},
		aliases: aliases{byTarget: map[string]map[string]*checkEntry{}},
		exposed: exposed.Table{Ports: exposed.Ports{Low: cfg.ExposeMinPort, High: cfg.ExposeMaxPort}}}
}

// change is what followed from a call: effects for the caller to carry out.
type change struct {
	version uint64
	start   []started
	stop    []string // check ids whose runs end
	dropped []string // check ids that are gone for good
}

// started is a check to run.
type started struct {
	def  *definition.Check
	run  uint64
	from check.Start
	way  exposed.Way
}

// touchLocked counts a change and wakes those who wait for one.
func (st *state) touchLocked() uint64 {
	st.version++
	st.view = nil
	if st.awaited {
		close(st.changed)
		st.changed, st.awaited = make(chan struct{}), false
	}
	return st.version
}

// putService fails with what ask fails with, and then changes nothing.
func (st *state) putService(ask may, d *definition.Service, checks []*definition.Check,
	replaceChecks bool) (change, error) {
	svc := d.CatalogService(st.cfg.Node.Name)
	if svc.Locality == nil {
		svc.Locality = st.cfg.Node.Locality // it runs where this host is
	}
	next := &Service{Service: svc, Definition: d, Hash: contentHash(svc)}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.mayPutServiceLocked(ask, d, checks); err != nil {
		return change{}, err
	}
	gen := st.touchLocked()
	c := change{version: gen}
	id := svc.ID
	e := st.services[id]
	if e == nil {
		e = &serviceEntry{}
		st.services[id] = e
	} else {
		close(e.replaced)
		if e.cur.Service.Name != svc.Name {
			st.pending.goneServices[id] = goneService(gen, e)
		}
	}
	if st.pending.goneServices[id].of == svc.Name {
		delete(st.pending.goneServices, id)
	}
	e.cur, e.gen, e.replaced = next, gen, make(chan struct{})
	st.pending.services[id] = struct{}{}
	named := make(map[string]bool, len(checks))
	for _, def := range checks {
		named[def.ID] = true
		st.putCheckLocked(def, svc, gen, &c)
	}
	for checkID, ce := range st.checksOf[id] {
		switch {
		case named[checkID]:
		case replaceChecks && !ce.cur.Definition.Maintenance:
			st.removeCheckLocked(checkID, ce, gen, &c)
			c.dropped = append(c.dropped, checkID)
		case ce.cur.Check.ServiceName != svc.Name || !slices.Equal(ce.cur.Check.ServiceTags, svc.Tags):
			copied := *ce.cur.Check
			copied.ServiceName, copied.ServiceTags = svc.Name, svc.Tags
			st.replaceCheckLocked(ce, &copied, gen)
		}
	}
	st.exposeLocked(id, svc, gen, &c)
	st.refreshAliasesLocked(id, 0)
	return c, nil
}

// putCheck is false when the check's service is not there. It fails with what ask fails with.
func (st *state) putCheck(ask may, d *definition.Check) (change, bool, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	var svc *catalog.Service
	if d.ServiceID != "" {
		e := st.services[d.ServiceID]
		if e == nil {
			return change{}, false, nil
		}
		svc = e.cur.Service
	}
	if err := st.mayPutCheckLocked(ask, d); err != nil {
		return change{}, true, err
	}
	gen := st.touchLocked()
	c := change{version: gen}
	st.putCheckLocked(d, svc, gen, &c)
	if svc != nil {
		st.exposeLocked(d.ServiceID, svc, gen, &c)
	}
	return c, true, nil
}

// putCheckLocked keeps the status and output of a check that is there already,
// lest a registration that is repeated makes a service flap.
func (st *state) putCheckLocked(d *definition.Check, svc *catalog.Service, gen uint64, c *change) {
	next := &Check{Check: d.CatalogCheck(st.cfg.Node.Name, svc), Definition: d}
	e := st.checks[d.ID]
	if e != nil && e.cur.Check.ServiceID != d.ServiceID {
		st.removeCheckLocked(d.ID, e, gen, c) // told first, on behalf of whom it belonged to
		c.dropped = append(c.dropped, d.ID)
		e = nil
	}
	if st.pending.goneChecks[d.ID].of == d.ServiceID {
		delete(st.pending.goneChecks, d.ID)
	}
	way := wayLocked(st, d)
	next.Check.ExposedPort = way.Port
	keep, ttlLeft := false, d.TTL
	if e == nil {
		e = &checkEntry{}
		st.checks[d.ID] = e
		if left := st.ttl.resume(d, next.Check, st.cfg.Clock.Now()); left > 0 {
			ttlLeft = left
		}
	} else {
		if !d.Maintenance {
			next.Check.Status, next.Check.Output = e.cur.Check.Status, e.cur.Check.Output
		}
		next.CriticalSince = e.cur.CriticalSince
		// A TTL check starts its period anew, as clients expect who register again.
		same := d.Spec(st.cfg.OutputMaxSizeBytes).Same(e.cur.Definition.Spec(st.cfg.OutputMaxSizeBytes))
		keep = same && way == e.way && d.Kind() != check.KindTTL && d.Kind() != check.KindAlias
		st.unindexLocked(d.ID, e)
	}
	if next.Check.Status == catalog.Critical && next.CriticalSince.IsZero() {
		next.CriticalSince = st.cfg.Clock.Now()
	}
	e.cur, e.gen, e.outputAt, e.way = next, gen, time.Time{}, way
	delete(st.pending.heldBack, d.ID)
	st.indexLocked(d.ID, e)
	st.pending.checks[d.ID] = struct{}{}
	if !keep {
		e.run, e.seq = gen, 0
		s := started{d, gen, check.Start{Status: next.Check.Status, Output: next.Check.Output}, way}
		if d.Kind() == check.KindTTL {
			s.from.TTLLeft = ttlLeft
			st.ttl.seen[d.ID], st.ttl.changed = st.cfg.Clock.Now().Add(ttlLeft), true
		}
		c.stop, c.start = append(c.stop, d.ID), append(c.start, s)
	}
	st.refreshAliasLocked(e)
	st.refreshAliasesLocked(d.ServiceID, 0)
}

// resume gives a TTL check the state from before the restart while its period
// lasts, and returns what is left of it.
func (t *ttlStates) resume(d *definition.Check, c *catalog.Check, now time.Time) time.Duration {
	old, ok := t.former[d.ID]
	if !ok || d.Kind() != check.KindTTL {
		return 0
	}
	delete(t.former, d.ID)
	left := old.Expires.Sub(now)
	health, known := catalog.ParseHealth(old.Status)
	if !known || left <= 0 {
		return 0
	}
	c.Status, c.Output = health, old.Output
	return min(left, d.TTL)
}

func (st *state) removeService(id string) (change, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.services[id]
	if e == nil {
		return change{}, false
	}
	gen := st.touchLocked()
	c := change{version: gen}
	for checkID, ce := range st.checksOf[id] {
		st.removeCheckLocked(checkID, ce, gen, &c)
		// The catalog removes a service's checks with it.
		delete(st.pending.goneChecks, checkID)
		c.dropped = append(c.dropped, checkID)
	}
	close(e.replaced)
	delete(st.services, id)
	delete(st.pending.services, id)
	st.pending.goneServices[id] = goneService(gen, e)
	st.exposeLocked(id, nil, gen, &c)
	st.refreshAliasesLocked(id, 0)
	return c, true
}

func (st *state) removeCheck(id string) (change, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.checks[id]
	if e == nil {
		return change{}, false
	}
	gen := st.touchLocked()
	c := change{version: gen, dropped: []string{id}}
	st.removeCheckLocked(id, e, gen, &c)
	if s := st.services[e.cur.Check.ServiceID]; s != nil {
		st.exposeLocked(s.cur.Service.ID, s.cur.Service, gen, &c)
	}
	st.refreshAliasesLocked(e.cur.Check.ServiceID, 0)
	return c, true
}

func (st *state) removeCheckLocked(id string, e *checkEntry, gen uint64, c *change) {
	st.unindexLocked(id, e)
	delete(st.checks, id)
	st.exposed.Free(id)
	delete(st.pending.checks, id)
	delete(st.pending.heldBack, id)
	if _, ok := st.ttl.seen[id]; ok {
		delete(st.ttl.seen, id)
		st.ttl.changed = true
	}
	st.pending.goneChecks[id] = gone{gen, e.cur.Check.ServiceID, e.cur.Definition.Token, e.cur.Definition.FromFile}
	c.stop = append(c.stop, id)
}

func (st *state) indexLocked(id string, e *checkEntry) {
	addTo(st.checksOf, e.cur.Check.ServiceID, id, e)
	if d := e.cur.Definition; st.localAlias(d) {
		addTo(st.aliases.byTarget, d.AliasService, id, e)
	}
}

func (st *state) unindexLocked(id string, e *checkEntry) {
	removeFrom(st.checksOf, e.cur.Check.ServiceID, id)
	if d := e.cur.Definition; st.localAlias(d) {
		removeFrom(st.aliases.byTarget, d.AliasService, id)
	}
}

func (st *state) localAlias(d *definition.Check) bool {
	return d.Kind() == check.KindAlias && (d.AliasNode == "" || d.AliasNode == st.cfg.Node.Name)
}

func addTo(m map[string]map[string]*checkEntry, key, id string, e *checkEntry) {
	if m[key] == nil {
		m[key] = map[string]*checkEntry{}
	}
	m[key][id] = e
}

func removeFrom(m map[string]map[string]*checkEntry, key, id string) {
	delete(m[key], id)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

func (st *state) replaceCheckLocked(e *checkEntry, c *catalog.Check, gen uint64) {
	next := &Check{Check: c, Definition: e.cur.Definition, CriticalSince: e.cur.CriticalSince}
	if c.Status != catalog.Critical {
		next.CriticalSince = time.Time{}
	} else if e.cur.Check.Status != catalog.Critical || next.CriticalSince.IsZero() {
		next.CriticalSince = st.cfg.Clock.Now()
	}
	e.cur, e.gen = next, gen
	st.pending.checks[c.ID] = struct{}{}
}

// snapshot builds the View once per change that a reader sees.
func (st *state) snapshot() *View {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.view == nil {
		v := &View{Version: st.version, Services: make(map[string]*Service, len(st.services)),
			Checks: make(map[string]*Check, len(st.checks))}
		for id, e := range st.services {
			v.Services[id] = e.cur
		}
		for id, e := range st.checks {
			v.Checks[id] = e.cur
		}
		st.view = v
	}
	return st.view
}

// contentHash names a registration's content; the indexes are not part of it.
func contentHash(s *catalog.Service) string {
	c := *s
	c.CreateIndex, c.ModifyIndex = 0, 0
	data, err := json.Marshal(&c) // maps marshal sorted
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// checksLocked are a service's own checks and those of the node, sorted by id.
func (st *state) checksLocked(serviceID string) []*Check {
	var all []*Check
	for _, id := range slices.Sorted(maps.Keys(st.checksOf[serviceID])) {
		all = append(all, st.checksOf[serviceID][id].cur)
	}
	if serviceID != "" {
		for _, id := range slices.Sorted(maps.Keys(st.checksOf[""])) {
			all = append(all, st.checksOf[""][id].cur)
		}
	}
	return all
}
