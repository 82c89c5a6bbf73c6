package nodeclient

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/nodestate"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
)

// facts are what the node says of itself.
type facts struct {
	static map[string]string // metadata of the configuration
	store  *nodestate.Store
	anew   chan struct{} // capacity 1: register again
	// node is replaced, never changed: tasks read it while they are made ready. Its Meta is that of now.
	node atomic.Pointer[jobs.Node]

	given map[string]string // attributes of node that drivers gave; only who asks them uses it

	changes sync.Mutex // guards dynamic and its file, and what node is changed to: one change at a time
	// dynamic is the metadata that was set at run time. One that is nil hides that of the configuration.
	dynamic map[string]*string

	taking    sync.Mutex    // guards taken and takenMore
	taken     *jobs.Node    // what a server registered last
	takenMore chan struct{} // closed when that changes
}

// What metadata may be set at run time: it is part of each registration, and of the state of all servers.
const (
	maxMeta         = 1000
	maxMetaKeyBytes = 256
	maxMetaBytes    = 16 << 10 // of one value
	maxMetaInAll    = 256 << 10
)

// toldLimit is how long a change waits until a server has taken it. It is kept whatever comes of that.
const toldLimit = 5 * time.Second

// Metadata is what a node knows of its metadata.
type Metadata struct {
	Meta    map[string]string  // of now
	Dynamic map[string]*string // set at run time; null hides what the configuration says
	Static  map[string]string  // of the configuration
}

// merge is the metadata of now. It shares nothing with its sources.
func merge(static map[string]string, dynamic map[string]*string) map[string]string {
	all := maps.Clone(static)
	if all == nil {
		all = map[string]string{}
	}
	for name, value := range dynamic {
		if value == nil {
			delete(all, name)
		} else {
			all[name] = *value
		}
	}
	return all
}

// changed is dynamic metadata after a change: names are unset first, then set. The error is Invalid and names the key.
func changed(static map[string]string, old map[string]*string, set map[string]string,
	unset []string) (map[string]*string, error) {
	next := maps.Clone(old)
	if next == nil {
		next = map[string]*string{}
	}
	for _, name := range unset {
		if err := checkName(name); err != nil {
			return nil, err
		}
		if _, configured := static[name]; configured {
			next[name] = nil
		} else {
			delete(next, name)
		}
	}
	for name, value := range set {
		if err := checkName(name); err != nil {
			return nil, err
		}
		if len(value) > maxMetaBytes {
			return nil, errkind.Errorf(errkind.Invalid, "metadata %s has %d bytes: at most %d", name, len(value), maxMetaBytes)
		}
		next[name] = &value
	}
	bytes := 0
	for name, value := range next {
		if bytes += len(name); value != nil {
			bytes += len(*value)
		}
	}
	if len(next) > maxMeta || bytes > maxMetaInAll {
		return nil, errkind.Errorf(errkind.Invalid, "the node would have %d names of dynamic metadata with %d bytes: "+
			"at most %d with %d", len(next), bytes, maxMeta, maxMetaInAll)
	}
	return next, nil
}

// checkName refuses names that ${meta.name} could not say.
func checkName(name string) error {
	switch {
	case name == "":
		return errkind.New(errkind.Invalid, "a name of metadata is empty")
	case len(name) > maxMetaKeyBytes:
		return errkind.Errorf(errkind.Invalid, "metadata %.32q...: a name has at most %d bytes", name, maxMetaKeyBytes)
	case strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./", r))
	}):
		return errkind.Errorf(errkind.Invalid, "metadata %q: a name has letters, digits and _ - . / alone", name)
	}
	return nil
}

// open reads what was set in a former life.
func (f *facts) open(cfg *Config, store *nodestate.Store) error {
	f.static, f.store, f.anew, f.takenMore = cfg.Node.Meta, store, make(chan struct{}, 1), make(chan struct{})
	dynamic, wrong, err := store.Meta()
	if wrong != nil {
		cfg.Log.Error("the node's dynamic metadata is damaged and was set aside: set it again", "error", wrong)
	}
	f.dynamic = dynamic
	return err
}

// meta answers noderpc.MethodMeta.
func (c answers) meta(ctx context.Context, req []byte) ([]byte, error) {
	ask, err := noderpc.Read[noderpc.MetaAsk](req)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if ask.Change {
		node, err := c.setMeta(ask.Set, ask.Unset)
		if err != nil {
			return nil, err
		}
		c.awaitTaken(ctx, node)
	}
	return json.Marshal(c.Metadata())
}

// Metadata is the node's, of now.
func (f *facts) Metadata() Metadata {
	f.changes.Lock()
	dynamic := maps.Clone(f.dynamic)
	f.changes.Unlock()
	if dynamic == nil {
		dynamic = map[string]*string{}
	}
	return Metadata{Meta: merge(f.static, dynamic), Dynamic: dynamic, Static: merge(f.static, nil)}
}

// setMeta stores a change durably, then shows it to tasks and has the node registered with it.
func (f *facts) setMeta(set map[string]string, unset []string) (*jobs.Node, error) {
	f.changes.Lock()
	defer f.changes.Unlock()
	next, err := changed(f.static, f.dynamic, set, unset)
	if err != nil {
		return nil, err
	}
	if err := f.store.PutMeta(next); err != nil {
		return nil, errkind.E(errkind.Internal, "store the node's metadata", err)
	}
	node := *f.node.Load()
	node.Meta = merge(f.static, next)
	f.dynamic = next
	f.node.Store(&node)
	f.registerAgain()
	return &node, nil
}

// setDrivers has the node registered with other drivers, or other attributes of theirs; false when they are the same.
func (f *facts) setDrivers(found map[string]jobs.Driver, given map[string]string) bool {
	f.changes.Lock()
	defer f.changes.Unlock()
	node := *f.node.Load()
	if maps.Equal(node.Drivers, found) && maps.Equal(f.given, given) {
		return false
	}
	node.Drivers, node.Attributes = found, maps.Clone(node.Attributes)
	for name := range f.given {
		delete(node.Attributes, name)
	}
	maps.Copy(node.Attributes, given)
	f.given = given
	f.node.Store(&node)
	f.registerAgain()
	return true
}

// registerAgain has the node registered as it is now.
func (f *facts) registerAgain() {
	select {
	case f.anew <- struct{}{}:
	default: // that is about to happen
	}
}

// awaitTaken waits until a server has taken a registration of node, or of a later one.
func (f *facts) awaitTaken(ctx context.Context, node *jobs.Node) {
	ctx, cancel := context.WithTimeout(ctx, toldLimit)
	defer cancel()
	for {
		f.taking.Lock()
		taken, more := f.taken, f.takenMore
		f.taking.Unlock()
		if taken == node || taken != nil && taken == f.node.Load() {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// tookNode notes that a server has a registration of node.
func (f *facts) tookNode(node *jobs.Node) {
	f.taking.Lock()
	defer f.taking.Unlock()
	f.taken = node
	close(f.takenMore)
	f.takenMore = make(chan struct{})
}
