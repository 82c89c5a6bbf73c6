package plugins

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/telemetry"
)

// Runner runs programs. It decides nothing of what they are asked.
type Runner interface {
	// Check reports why the program of an entry may not be run: where it lies, whose it is, what it is.
	Check(e *Entry) error
	// Start runs it, until it speaks the protocol. What it calls of the server goes to Serve.
	Start(ctx context.Context, l Launch) (Process, error)
}

// Launch is what a program is started for.
type Launch struct {
	*Entry
	Mount   string // its path from the root, for the log
	UUID    string // of the mount: the instance that calls are for
	Version string // of the server, as plug-ins are told
	Serve   func(ctx context.Context, method string, raw []byte) (reply any, err error)
}

// Process is a program that runs.
type Process interface {
	// Call asks it for something; in and out are of package message.
	Call(ctx context.Context, method string, in, out any) error
	// Broker is the id by which it reaches Launch.Serve.
	Broker() uint32
	// Ended is closed when the program is no more.
	Ended() <-chan struct{}
	// Kill ends it by force, and waits until all that it had is gone. Once or more.
	Kill()
}

// Config is what a Plugins is made of.
type Config struct {
	Runner  Runner // nil: no plug-ins are run
	Now     func() time.Time
	Log     *slog.Logger
	Metrics *telemetry.Registry
	Version string // of the server
	Cluster func() (name, id string)
	// Password draws one by a policy of the namespace whose records begin with base.
	Password func(ctx context.Context, base, policy string) (string, error)
	// BuiltIn reports whether a type's name is taken by what is built in.
	BuiltIn func(kind, name string) bool
}

// Bounds of what plug-ins may take.
const (
	maxProcesses = 64
	maxOfSpace   = 16 // of a namespace
	maxEntries   = 1000
	maxCalls     = 256 // at once, of one mount
	startWithin  = 20 * time.Second
	callWithin   = 60 * time.Second
	serveWithin  = 30 * time.Second // of what a plug-in calls
)

// Plugins owns the catalog, and the processes of the term.
type Plugins struct {
	Config
	gate    *tables.Gate
	records *sealed.Store

	change sync.Mutex // one change of the catalog at a time
	mu     sync.Mutex // guards what follows
	list   []*Entry
	mounts map[string]*instance // by the mount's UUID
	coming map[string]bool      // UUIDs of mounts that are about to be
	closed bool                 // nothing is started any more

	storing sync.RWMutex // held for reading by what a process stores
	slots   places
	group   crew
	died    *telemetry.Counter
	began   *telemetry.Counter
}

// New makes a Plugins; nothing runs yet.
func New(c Config, gate *tables.Gate, records *sealed.Store) *Plugins {
	p := &Plugins{Config: c, gate: gate, records: records, mounts: map[string]*instance{},
		coming: map[string]bool{},
		began:  c.Metrics.Counter("plugin.started"), died: c.Metrics.Counter("plugin.died")}
	if c.Runner != nil {
		c.Metrics.GaugeFunc("plugin.running", func() float64 { return float64(p.slots.taken()) })
	}
	return p
}

// ErrOff says that no plug-ins are run.
var ErrOff = errkind.New(errkind.Invalid,
	"plug-ins of other programs are not run here: set plugin_directory in the configuration of each server")

// Load reads the catalog.
func (p *Plugins) Load(ctx context.Context) error {
	records, err := p.records.Scan(ctx, catalogPrefix, storage.After(catalogPrefix), 0)
	if err != nil {
		return err
	}
	list := make([]*Entry, 0, len(records))
	for _, r := range records {
		e := &Entry{}
		if err := sealed.ReadJSON(r.Key, r.Value, e); err != nil { // the rest of the plane is not to stay shut for it
			p.Log.Error("secrets: a plug-in of the catalog cannot be read: register it anew", "error", err)
			continue
		}
		list = append(list, e)
	}
	p.mu.Lock()
	p.list = list
	p.mu.Unlock()
	return nil
}

// Forget drops the catalog, which has secrets, and ends the processes of the term. It does not wait.
func (p *Plugins) Forget() {
	p.mu.Lock()
	p.list = nil
	p.mu.Unlock()
	p.End()
}

// Find is the entry of a plug-in; nil where there is none. Where no version is said, see newest.
func (p *Plugins) Find(kind, name, version string) *Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*Entry
	for _, e := range p.list {
		if e.Type == kind && e.Name == name && (version == "" || e.Version == version) {
			list = append(list, e)
		}
	}
	return newest(list)
}

// Shown is the catalog as the API tells of it, in the order of names.
func (p *Plugins) Shown(kind string) (names []string, details []any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	byName := func(a, b *Entry) int { return strings.Compare(a.key(), b.key()) }
	for _, e := range slices.SortedFunc(slices.Values(p.list), byName) {
		if e.Type == kind {
			names, details = append(names, e.Name), append(details, e.shown())
		}
	}
	return slices.Compact(names), details
}

// Info is one plug-in as the API tells of it; nil where there is none.
func (p *Plugins) Info(kind, name, version string) map[string]any {
	if e := p.Find(kind, name, version); e != nil {
		return e.shown()
	}
	return nil
}

// Register puts a program into the catalog, in the place of the one of the same type, name and version.
func (p *Plugins) Register(ctx context.Context, kind, name string, f *secrets.Fields) error {
	if p.Runner == nil {
		return ErrOff
	}
	e, err := registered(kind, name, f)
	if err != nil {
		return err
	}
	if p.BuiltIn(kind, name) {
		return errkind.Errorf(errkind.Invalid, "name: %q is built in: register the plug-in under another name", name)
	}
	if err := p.Runner.Check(e); err != nil {
		return err
	}
	p.change.Lock()
	defer p.change.Unlock()
	op, err := storage.PutJSON(e.key(), e)
	if err != nil {
		return err
	}
	p.mu.Lock()
	list := append(slices.DeleteFunc(slices.Clone(p.list), func(have *Entry) bool { return have.key() == e.key() }), e)
	p.mu.Unlock()
	if len(list) > maxEntries {
		return errkind.Errorf(errkind.Invalid, "the catalog has %d plug-ins already: deregister some", maxEntries)
	}
	if err := p.commit(ctx, op, list); err != nil {
		return err
	}
	p.forgive(kind, name)
	return nil
}

// forgive has the mounts of a plug-in start it without a pause: it is another program now.
func (p *Plugins) forgive(kind, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.mounts {
		if e := i.entry.Load(); kindOf(e) == kind && e.Type == name {
			i.mu.Lock()
			i.failing = failing{}
			i.mu.Unlock()
		}
	}
}

// Deregister takes a program out of the catalog: mounts of it keep their processes until these end. One that is not
// there is no error.
func (p *Plugins) Deregister(ctx context.Context, kind, name, said string) error {
	version, err := versionOf(said)
	if err := cmp.Or(CheckType(kind), CheckName(name), err); err != nil {
		return err
	}
	if p.BuiltIn(kind, name) {
		return errkind.Errorf(errkind.Invalid, "name: %q is built in and stays", name)
	}
	p.change.Lock()
	defer p.change.Unlock()
	e := &Entry{Type: kind, Name: name, Version: version}
	p.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(p.list), func(have *Entry) bool { return have.key() == e.key() })
	known := len(list) != len(p.list)
	p.mu.Unlock()
	if !known {
		return nil
	}
	return p.commit(ctx, storage.Delete(e.key()), list)
}

func (p *Plugins) commit(ctx context.Context, op storage.Op, list []*Entry) error {
	if err := p.records.Commit(ctx, []storage.Op{op}); err != nil {
		return err
	}
	p.mu.Lock()
	p.list = list
	p.mu.Unlock()
	return nil
}

// Adopt makes a mount that is asked for one of a plug-in, where its type is the name of one.
func (p *Plugins) Adopt(e *mount.Entry, said string) error {
	version, err := versionOf(said)
	if err != nil {
		return err
	}
	found := p.Find(kindOf(e), e.Type, version)
	if found == nil {
		return nil
	}
	if p.Runner == nil {
		return ErrOff
	}
	e.External = &mount.External{Version: version}
	return nil
}

// Describe adds to what is shown of a mount which plug-in answers for it.
func (p *Plugins) Describe(e *mount.Entry, out map[string]any) {
	if e.External == nil {
		return
	}
	out["plugin_version"], out["running_plugin_version"], out["deprecation_status"] = e.External.Version, "", ""
	if found := p.Find(kindOf(e), e.Type, e.External.Version); found != nil {
		out["running_plugin_version"], out["running_sha256"] = found.Version, found.SHA256
	}
}

func kindOf(e *mount.Entry) string {
	if e.Auth() {
		return Auth
	}
	return Secret
}

// of is the running side of a mount, made where the term has none yet.
func (p *Plugins) of(e *mount.Entry) (*instance, error) {
	if p.Runner == nil {
		return nil, errkind.Errorf(errkind.Unavailable,
			"the mount %s is of the plug-in %s, and no plug-ins are run here: set plugin_directory in the configuration",
			e.Path, e.Type)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.mounts[e.UUID]
	if i == nil {
		if p.closed {
			return nil, errEnds
		}
		if p.gate.Load() == nil {
			return nil, p.gate.Idle()
		}
		i = newInstance(p, e)
		p.mounts[e.UUID] = i
	}
	return i, nil
}

// End ends the processes of the term, and cancels what is asked of them. It does not wait.
func (p *Plugins) End() {
	p.mu.Lock()
	all := p.mounts
	p.mounts = map[string]*instance{}
	p.mu.Unlock()
	for _, i := range all {
		i.cancel()
		p.group.start(func() { i.stop(0) })
	}
}

// retireWithin is how long what is asked of a process that is to end may still take.
const retireWithin = 5 * time.Second

// Retire ends the processes of mounts, once what is asked of them is answered; the next request starts others. It does
// not wait.
func (p *Plugins) Retire(uuids ...string) {
	for _, uuid := range uuids {
		p.mu.Lock()
		i := p.mounts[uuid]
		delete(p.mounts, uuid)
		p.mu.Unlock()
		if i != nil {
			p.group.start(func() { i.stop(retireWithin) })
		}
	}
}

// tickEvery is how late a process is started that nobody asks for, and ended that nobody has a mount of.
const tickEvery = time.Second

// Run starts the processes of mounts, and ends them with the term, until ctx ends. Then it waits for all of them, and
// none is started until it runs again: a server that is active now and then has one Run a term.
func (p *Plugins) Run(ctx context.Context) {
	p.mu.Lock()
	p.closed = false
	p.mu.Unlock()
	defer p.group.wait()
	defer func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.End()
	}()
	if p.Runner == nil {
		return
	}
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		changed := p.gate.Changes()
		p.look()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changed:
		}
	}
}

// look compares processes with mounts.
func (p *Plugins) look() {
	st := p.gate.Load()
	if st == nil {
		p.End()
		return
	}
	have := map[string]bool{}
	for in := range st.Each() {
		for _, e := range in.Mounts.All() {
			if e.External == nil {
				continue
			}
			have[e.UUID] = true
			if i, err := p.of(e); err == nil {
				i.tend()
			}
		}
	}
	var gone []string
	p.mu.Lock()
	for uuid, i := range p.mounts {
		if !have[uuid] && p.Now().Sub(i.made) > startWithin+retireWithin { // a younger one may be about to be mounted
			gone = append(gone, uuid)
		}
	}
	p.mu.Unlock()
	p.Retire(gone...)
}

// errNoPlugin says that a mount's plug-in is not in the catalog.
func errNoPlugin(e *mount.Entry) error {
	return errkind.Errorf(errkind.Unavailable,
		"the mount %s is of the plug-in %s, which is not in the catalog: register it", e.Path,
		strings.TrimSuffix(e.Type+" "+e.External.Version, " "))
}
