package local

import (
	"context"
	"slices"

	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/kit/errkind"
)

// RegisterServices registers or replaces many services as RegisterService does, and
// waits for one sync attempt that tells them all. All definitions are looked at before
// the first is taken: a wrong one gives an error of kind Invalid that names its place,
// and nothing is registered.
func (l *Local) RegisterServices(ctx context.Context, list []*definition.Service, o RegisterOptions) error {
	version, err := l.registerAll(ctx, list, o)
	if version > 0 {
		l.sync.notify()
	}
	if err == nil && version > 0 {
		l.sync.await(ctx, version)
	}
	return err
}

// registerAll returns the version that covers what was registered, also beside an error.
func (l *Local) registerAll(ctx context.Context, list []*definition.Service, o RegisterOptions) (uint64, error) {
	if slices.ContainsFunc(list, (*definition.Service).WantsSidecar) {
		l.sidecars.Lock() // until the ports that are chosen are taken
		defer l.sidecars.Unlock()
	}
	ready := make([]prepared, 0, len(list))
	taken := map[int]bool{}
	for i, d := range list {
		some, err := l.prepare(d, o, taken)
		if err != nil {
			return 0, errkind.Errorf(errkind.Of(err), "service %d of the list: %s", i, errkind.Text(err))
		}
		if err := l.state.mayPut(o.May, some); err != nil {
			return 0, errkind.Errorf(errkind.Of(err), "%s (registration %d)", errkind.Text(err), i)
		}
		ready = append(ready, some...)
	}
	var version uint64
	for _, r := range ready {
		l.rights.learn(ctx, r.checks)
		v, err := l.putService(r.d, r.checks, o)
		if err != nil {
			return version, err // those before are registered
		}
		version = v
	}
	return version, nil
}
