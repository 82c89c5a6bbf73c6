package local

import (
	"context"
	"slices"

	"corbel.dev/corbel/kit/errkind"
)

// RegisterServices registers or replaces many services as RegisterService does, and
// waits for one sync attempt that tells them all. All definitions are looked at before
// the first is taken: a wrong one gives an error of kind Invalid that names its place,
// and nothing is registered.
func (l *Local) RegisterServices(ctx context.Context, list []*ServiceDefinition, o RegisterOptions) error {
	if slices.ContainsFunc(list, (*ServiceDefinition).wantsSidecar) {
		l.sidecars.Lock()
		defer l.sidecars.Unlock()
	}
	ready := make([]prepared, 0, len(list))
	taken := map[int]bool{}
	for i, d := range list {
		some, err := l.prepare(d, o, taken)
		if err != nil {
			return errkind.Errorf(errkind.Of(err), "service %d of the list: %s", i, errkind.Text(err))
		}
		ready = append(ready, some...)
	}
	var version uint64
	for _, r := range ready {
		v, err := l.putService(r.d, r.checks, o)
		if err != nil {
			l.poke(l.kick) // for those before
			return err
		}
		version = v
	}
	if version > 0 {
		l.poke(l.kick)
		l.awaitSync(ctx, version)
	}
	return nil
}
