// Package resources is the monitor's configuration on a server: the replicated objects, and what is made of them
// for those who ask at every event.
//
// A View is immutable and swapped when commands were applied; reading takes no lock. What is derived from
// objects (silences by subscription, who may do what) is made once a change, and only of the types that changed.
package resources

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
)

// Group is what replicates: a *group.Group.
type Group interface {
	Propose(ctx context.Context, cmd []byte) (any, error)
}

// View is the configuration at one moment.
type View struct {
	objects.State
	access   *monitor.Access
	silences map[string]*monitor.Silences // by namespace
	keys     map[[sha256.Size]byte]*monitor.APIKey
}

// Access decides who may do what.
func (v *View) Access() *monitor.Access { return v.access }

// Silences returns a namespace's silences; nil is none.
func (v *View) Silences(namespace string) *monitor.Silences { return v.silences[namespace] }

// APIKey returns the API key that somebody brought; nil is none. It is looked up by its hash, so the time that takes
// says nothing of the keys that there are.
func (v *View) APIKey(key string) *monitor.APIKey { return v.keys[sha256.Sum256([]byte(key))] }

// Resources is the configuration and the group's Machine. Make it, give it to group.Open, and the
// group to Serve; before that writes are Unavailable. All methods may be called from any goroutine.
type Resources struct {
	log   *slog.Logger
	group atomic.Pointer[Group]
	view  atomic.Pointer[View]

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	watch   func([]objects.Op)
}

var _ group.Machine = (*Resources)(nil)

// New returns a configuration without anything.
func New(log *slog.Logger) *Resources {
	r := &Resources{log: log, changed: make(chan struct{})}
	r.show(&View{State: objects.New()}, nil)
	return r
}

// Serve says by which group commands are replicated.
func (r *Resources) Serve(g Group) { r.group.Store(&g) }

// View returns the configuration as it is here.
func (r *Resources) View() *View { return r.view.Load() }

// Changed returns a channel that is closed with the next change after the call. Ask before View, and no change is
// missed.
func (r *Resources) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Watch sets who is told of the changes that were applied, in order, once they are in View; after a Restore it is
// told of nothing in particular (nil). It is set before the group runs, and must not block.
func (r *Resources) Watch(f func([]objects.Op)) { r.watch = f }

// Write does all of ops or none, and returns when that is durable and in this server's View.
// Errors are those of objects.State.Apply, and of group.Group.Propose.
func (r *Resources) Write(ctx context.Context, ops ...objects.Op) error {
	g := r.group.Load()
	if g == nil {
		return errkind.Errorf(errkind.Unavailable, "the monitor's Raft group has not started yet")
	}
	out, err := (*g).Propose(ctx, objects.AppendCommand(nil, ops))
	if err != nil {
		return err
	}
	if refused, ok := out.(error); ok {
		return refused
	}
	return nil
}

// ApplyBatch implements group.Machine. A result is nil, or the error that the proposer gets. A command
// that cannot be read changes nothing, on every member alike.
func (r *Resources) ApplyBatch(cmds [][]byte) []any {
	out := make([]any, len(cmds))
	old := r.view.Load()
	state := old.State
	touched := map[string]bool{}
	var done []objects.Op
	for i, cmd := range cmds {
		ops, err := objects.DecodeCommand(cmd)
		if err == nil {
			state, err = state.Apply(ops)
		}
		if err != nil {
			if errkind.Of(err) == errkind.Corrupt {
				r.log.Error("cannot decode a committed command of the monitor; ignoring it", "error", err)
			}
			out[i] = err
			continue
		}
		for _, op := range ops {
			touched[op.Type] = true
		}
		done = append(done, ops...)
	}
	if len(done) > 0 {
		r.show(&View{State: state, access: old.access, silences: old.silences, keys: old.keys}, touched)
		if r.watch != nil {
			r.watch(done)
		}
	}
	return out
}

// show makes v what readers see; touched are the types that changed, nil is all.
func (r *Resources) show(v *View, touched map[string]bool) {
	has := func(types ...string) bool {
		for _, t := range types {
			if touched == nil || touched[t] {
				return true
			}
		}
		return false
	}
	if has("roles", "clusterroles", "rolebindings", "clusterrolebindings", "namespaces") {
		v.access = monitor.NewAccess(all[*monitor.Role](v, "roles"), all[*monitor.ClusterRole](v, "clusterroles"),
			all[*monitor.RoleBinding](v, "rolebindings"), all[*monitor.ClusterRoleBinding](v, "clusterrolebindings"))
	}
	if has("silenced") {
		byNamespace := map[string][]*monitor.Silenced{}
		for _, s := range all[*monitor.Silenced](v, "silenced") {
			byNamespace[s.Namespace] = append(byNamespace[s.Namespace], s)
		}
		v.silences = map[string]*monitor.Silences{}
		for namespace, list := range byNamespace {
			v.silences[namespace] = monitor.NewSilences(list)
		}
	}
	if has("apikeys") {
		v.keys = map[[sha256.Size]byte]*monitor.APIKey{}
		for _, k := range all[*monitor.APIKey](v, "apikeys") {
			v.keys[sha256.Sum256([]byte(k.Name))] = k
		}
	}
	r.view.Store(v)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

func all[T monitor.Object](v *View, typ string) (out []T) {
	v.List(typ, "", "", "", func(i *objects.Item) bool {
		out = append(out, i.Object().(T))
		return true
	})
	return out
}

type snapshot struct{ objects.State }

// WriteTo implements group.Snapshot.
func (s snapshot) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(s.Snapshot())
	return int64(n), err
}

// Snapshot implements group.Machine.
func (r *Resources) Snapshot() group.Snapshot { return snapshot{r.view.Load().State} }

// maxSnapshot bounds what Restore reads.
const maxSnapshot = 1 << 30

// Restore implements group.Machine: nothing changes unless the whole of it is sound.
func (r *Resources) Restore(in io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(in, maxSnapshot+1))
	if err != nil {
		return err
	}
	if len(b) > maxSnapshot {
		return errkind.Errorf(errkind.TooLarge, "a snapshot of the monitor of more than %d bytes", maxSnapshot)
	}
	state, err := objects.ReadSnapshot(b)
	if err != nil {
		return err
	}
	r.show(&View{State: state}, nil)
	if r.watch != nil {
		r.watch(nil)
	}
	return nil
}

// Proxy returns the message of the entity that agents report results for in its place, and makes it a proxy entity
// where there is none (contract SK-13).
func (r *Resources) Proxy(ctx context.Context, namespace, name string) ([]byte, error) {
	item := r.View().Get("entities", namespace, name)
	if item == nil {
		if err := monitor.ValidateName(name); err != nil {
			return nil, errkind.E(errkind.Invalid, "proxy_entity_name", err)
		}
		c := &monitor.EntityConfig{Meta: monitor.Meta{Name: name, Namespace: namespace}, Class: monitor.ClassProxy,
			Subscriptions: []string{monitor.EntitySubscription(name)}}
		err := r.Write(ctx, objects.Op{Verb: objects.Create, Type: "entities", Namespace: namespace, Name: name,
			Encoded: tagproto.Append(nil, c)})
		if err != nil && !errkind.Is(err, errkind.Conflict) {
			return nil, err
		}
		// another server made it, or somebody removed it just now
		if item = r.View().Get("entities", namespace, name); item == nil {
			return tagproto.Append(nil, monitor.Join(c, nil)), nil
		}
	}
	return tagproto.Append(nil, monitor.Join(item.Object().(*monitor.EntityConfig), nil)), nil
}
