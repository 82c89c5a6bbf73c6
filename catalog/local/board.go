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
)

// Service is a registered service. Immutable.
type Service struct {
	Service    *catalog.Service
	Definition *ServiceDefinition
	// Hash changes when the registration does: the value of ?hash=.
	Hash string
}

// Check is a registered check with its newest result. Immutable.
type Check struct {
	Check      *catalog.Check
	Definition *CheckDefinition
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
}

// board is the state of Local: entries, and which of them the catalog has not
// got yet. It does no I/O and starts nothing.
type board struct {
	cfg *Config

	mu       sync.Mutex
	version  uint64 // grows with every change
	services map[string]*serviceEntry
	checks   map[string]*checkEntry
	checksOf map[string]map[string]*checkEntry // by service id, "" for the node
	aliases  map[string]map[string]*checkEntry // local alias checks by target service, "" for the node
	view     *View                             // nil when a reader has to build it
	changed  chan struct{}                     // closed and replaced at each change that somebody awaits
	awaited  bool

	nodeDirty     bool
	dirtyServices map[string]struct{}
	dirtyChecks   map[string]struct{}
	goneServices  map[string]gone // to be deregistered
	goneChecks    map[string]gone
	heldBack      map[string]*checkEntry // outputs to be sent later
	attempted     uint64                 // newest version that a sync attempt saw
	attempt       chan struct{}          // closed and replaced after each attempt
	ttlChanged    bool                   // a TTL check's status changed since the last save
	ttlBeaten     bool                   // a heartbeat came since the last save
	ttlSeen       map[string]time.Time   // TTL check to the end of its period
	// version of the last check loaded at the start, until the catalog was read; see resume
	loaded uint64
	sights map[sight]bool      // what the tokens of aliases may read, as far as it was asked
	former map[string]ttlState // TTL checks from before the restart that have not come back yet
}

func newBoard(cfg *Config) *board {
	return &board{cfg: cfg, services: map[string]*serviceEntry{}, checks: map[string]*checkEntry{},
		checksOf: map[string]map[string]*checkEntry{}, aliases: map[string]map[string]*checkEntry{},
		changed: make(chan struct{}), attempt: make(chan struct{}), nodeDirty: true,
		dirtyServices: map[string]struct{}{}, dirtyChecks: map[string]struct{}{},
		goneServices: map[string]gone{}, goneChecks: map[string]gone{}, heldBack: map[string]*checkEntry{},
		ttlSeen: map[string]time.Time{}}
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
	def     *CheckDefinition
	run     uint64
	status  catalog.Health
	output  string
	ttlLeft time.Duration
}

// touchLocked counts a change and wakes those who wait for one.
func (b *board) touchLocked() uint64 {
	b.version++
	b.view = nil
	if b.awaited {
		close(b.changed)
		b.changed, b.awaited = make(chan struct{}), false
	}
	return b.version
}

// putService fails with what ask fails with, and then changes nothing.
func (b *board) putService(ask may, d *ServiceDefinition, checks []*CheckDefinition,
	replaceChecks bool) (change, error) {
	svc := d.CatalogService(b.cfg.Node.Name)
	if svc.Locality == nil {
		svc.Locality = b.cfg.Node.Locality // it runs where this host is
	}
	next := &Service{Service: svc, Definition: d, Hash: contentHash(svc)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.mayPutServiceLocked(ask, d, checks); err != nil {
		return change{}, err
	}
	gen := b.touchLocked()
	c := change{version: gen}
	id := svc.ID
	e := b.services[id]
	if e == nil {
		e = &serviceEntry{}
		b.services[id] = e
	} else {
		close(e.replaced)
		if e.cur.Service.Name != svc.Name {
			b.goneServices[id] = goneService(gen, e)
		}
	}
	if b.goneServices[id].of == svc.Name {
		delete(b.goneServices, id)
	}
	e.cur, e.gen, e.replaced = next, gen, make(chan struct{})
	b.dirtyServices[id] = struct{}{}
	named := make(map[string]bool, len(checks))
	for _, def := range checks {
		named[def.ID] = true
		b.putCheckLocked(def, svc, gen, &c)
	}
	for checkID, ce := range b.checksOf[id] {
		switch {
		case named[checkID]:
		case replaceChecks && !ce.cur.Definition.Maintenance:
			b.removeCheckLocked(checkID, ce, gen, &c)
			c.dropped = append(c.dropped, checkID)
		case ce.cur.Check.ServiceName != svc.Name || !slices.Equal(ce.cur.Check.ServiceTags, svc.Tags):
			copied := *ce.cur.Check
			copied.ServiceName, copied.ServiceTags = svc.Name, svc.Tags
			b.replaceCheckLocked(ce, &copied, gen)
		}
	}
	b.refreshAliasesLocked(id, 0)
	return c, nil
}

// putCheck is false when the check's service is not there. It fails with what ask fails with.
func (b *board) putCheck(ask may, d *CheckDefinition) (change, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var svc *catalog.Service
	if d.ServiceID != "" {
		e := b.services[d.ServiceID]
		if e == nil {
			return change{}, false, nil
		}
		svc = e.cur.Service
	}
	if err := b.mayPutCheckLocked(ask, d); err != nil {
		return change{}, true, err
	}
	gen := b.touchLocked()
	c := change{version: gen}
	b.putCheckLocked(d, svc, gen, &c)
	return c, true, nil
}

// putCheckLocked keeps the status and output of a check that is there already,
// lest a registration that is repeated makes a service flap.
func (b *board) putCheckLocked(d *CheckDefinition, svc *catalog.Service, gen uint64, c *change) {
	next := &Check{Check: d.CatalogCheck(b.cfg.Node.Name, svc), Definition: d}
	e := b.checks[d.ID]
	if e != nil && e.cur.Check.ServiceID != d.ServiceID {
		b.removeCheckLocked(d.ID, e, gen, c) // told first, on behalf of whom it belonged to
		c.dropped = append(c.dropped, d.ID)
		e = nil
	}
	if b.goneChecks[d.ID].of == d.ServiceID {
		delete(b.goneChecks, d.ID)
	}
	keep, ttlLeft := false, d.TTL
	if e == nil {
		e = &checkEntry{}
		b.checks[d.ID] = e
		if left := b.resumeLocked(d, next.Check); left > 0 {
			ttlLeft = left
		}
	} else {
		if !d.Maintenance {
			next.Check.Status, next.Check.Output = e.cur.Check.Status, e.cur.Check.Output
		}
		next.CriticalSince = e.cur.CriticalSince
		// A TTL check starts its period anew, as clients expect who register again.
		same := d.Spec(b.cfg.OutputMaxSizeBytes).Same(e.cur.Definition.Spec(b.cfg.OutputMaxSizeBytes))
		keep = same && d.Kind() != check.KindTTL && d.Kind() != check.KindAlias
		b.unindexLocked(d.ID, e)
	}
	if next.Check.Status == catalog.Critical && next.CriticalSince.IsZero() {
		next.CriticalSince = b.cfg.Clock.Now()
	}
	e.cur, e.gen, e.outputAt = next, gen, time.Time{}
	delete(b.heldBack, d.ID)
	b.indexLocked(d.ID, e)
	b.dirtyChecks[d.ID] = struct{}{}
	if !keep {
		e.run, e.seq = gen, 0
		s := started{def: d, run: gen, status: next.Check.Status, output: next.Check.Output}
		if d.Kind() == check.KindTTL {
			s.ttlLeft = ttlLeft
			b.ttlSeen[d.ID], b.ttlChanged = b.cfg.Clock.Now().Add(ttlLeft), true
		}
		c.stop, c.start = append(c.stop, d.ID), append(c.start, s)
	}
	b.refreshAliasLocked(e)
	b.refreshAliasesLocked(d.ServiceID, 0)
}

// resumeLocked gives a TTL check the state from before the restart while its
// period lasts, and returns what is left of it.
func (b *board) resumeLocked(d *CheckDefinition, c *catalog.Check) time.Duration {
	st, ok := b.former[d.ID]
	if !ok || d.Kind() != check.KindTTL {
		return 0
	}
	delete(b.former, d.ID)
	left := st.Expires.Sub(b.cfg.Clock.Now())
	health, known := catalog.ParseHealth(st.Status)
	if !known || left <= 0 {
		return 0
	}
	c.Status, c.Output = health, st.Output
	return min(left, d.TTL)
}

func (b *board) removeService(id string) (change, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.services[id]
	if e == nil {
		return change{}, false
	}
	gen := b.touchLocked()
	c := change{version: gen}
	for checkID, ce := range b.checksOf[id] {
		b.removeCheckLocked(checkID, ce, gen, &c)
		// The catalog removes a service's checks with it.
		delete(b.goneChecks, checkID)
		c.dropped = append(c.dropped, checkID)
	}
	close(e.replaced)
	delete(b.services, id)
	delete(b.dirtyServices, id)
	b.goneServices[id] = goneService(gen, e)
	b.refreshAliasesLocked(id, 0)
	return c, true
}

func (b *board) removeCheck(id string) (change, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.checks[id]
	if e == nil {
		return change{}, false
	}
	gen := b.touchLocked()
	c := change{version: gen, dropped: []string{id}}
	b.removeCheckLocked(id, e, gen, &c)
	b.refreshAliasesLocked(e.cur.Check.ServiceID, 0)
	return c, true
}

func (b *board) removeCheckLocked(id string, e *checkEntry, gen uint64, c *change) {
	b.unindexLocked(id, e)
	delete(b.checks, id)
	delete(b.dirtyChecks, id)
	delete(b.heldBack, id)
	if _, ok := b.ttlSeen[id]; ok {
		delete(b.ttlSeen, id)
		b.ttlChanged = true
	}
	b.goneChecks[id] = gone{gen, e.cur.Check.ServiceID, e.cur.Definition.Token, e.cur.Definition.file}
	c.stop = append(c.stop, id)
}

func (b *board) indexLocked(id string, e *checkEntry) {
	addTo(b.checksOf, e.cur.Check.ServiceID, id, e)
	if d := e.cur.Definition; b.localAlias(d) {
		addTo(b.aliases, d.AliasService, id, e)
	}
}

func (b *board) unindexLocked(id string, e *checkEntry) {
	removeFrom(b.checksOf, e.cur.Check.ServiceID, id)
	if d := e.cur.Definition; b.localAlias(d) {
		removeFrom(b.aliases, d.AliasService, id)
	}
}

func (b *board) localAlias(d *CheckDefinition) bool {
	return d.Kind() == check.KindAlias && (d.AliasNode == "" || d.AliasNode == b.cfg.Node.Name)
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

func (b *board) replaceCheckLocked(e *checkEntry, c *catalog.Check, gen uint64) {
	next := &Check{Check: c, Definition: e.cur.Definition, CriticalSince: e.cur.CriticalSince}
	if c.Status != catalog.Critical {
		next.CriticalSince = time.Time{}
	} else if e.cur.Check.Status != catalog.Critical || next.CriticalSince.IsZero() {
		next.CriticalSince = b.cfg.Clock.Now()
	}
	e.cur, e.gen = next, gen
	b.dirtyChecks[c.ID] = struct{}{}
}

// snapshot builds the View once per change that a reader sees.
func (b *board) snapshot() *View {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.view == nil {
		v := &View{Version: b.version, Services: make(map[string]*Service, len(b.services)),
			Checks: make(map[string]*Check, len(b.checks))}
		for id, e := range b.services {
			v.Services[id] = e.cur
		}
		for id, e := range b.checks {
			v.Checks[id] = e.cur
		}
		b.view = v
	}
	return b.view
}

func (b *board) kindOf(id string) (check.Kind, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.checks[id]
	if e == nil {
		return "", false
	}
	return e.cur.Definition.Kind(), true
}

func (b *board) attempts() (uint64, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attempted, b.attempt
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
func (b *board) checksLocked(serviceID string) []*Check {
	var all []*Check
	for _, id := range slices.Sorted(maps.Keys(b.checksOf[serviceID])) {
		all = append(all, b.checksOf[serviceID][id].cur)
	}
	if serviceID != "" {
		for _, id := range slices.Sorted(maps.Keys(b.checksOf[""])) {
			all = append(all, b.checksOf[""][id].cur)
		}
	}
	return all
}
