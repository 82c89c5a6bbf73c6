package namespaces

import (
	"context"
	"errors"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/quotas"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// remove ends a namespace that has none below it. One that is not there is no error.
func (n *Namespaces) remove(c *system.Call) (any, error) {
	path, err := at(c)
	if err != nil {
		return nil, err
	}
	err = n.Gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		old := st.Spaces.At(path)
		if old == nil || old.Going {
			return &st, nil, nil
		}
		for range st.Spaces.Below(path) {
			return nil, nil, errkind.Errorf(errkind.Invalid, "cannot delete namespace %q: it contains child namespaces", path)
		}
		next := *old
		next.Going = true
		op, err := storage.PutJSON(tables.SpacePrefix+next.UUID, &next)
		st.Spaces = st.Spaces.Describe(&next)
		return &st, []storage.Op{op}, err
	})
	if err != nil {
		return nil, err
	}
	// what fails, or has to wait, goes on by itself: the namespace is closed
	if _, err := n.Sweep(c); err != nil || n.Gate.Load() == nil || n.Gate.Load().Spaces.At(path) != nil {
		return map[string]any{"status": "in-progress"}, nil
	}
	return nil, nil
}

// Sweep takes away the namespaces that are going and have nothing left that would have to end first, and says how many
// there were.
func (n *Namespaces) Sweep(ctx context.Context) (done int, err error) {
	n.sweep.Lock()
	defer n.sweep.Unlock()
	st, leave, err := n.Gate.Enter(ctx)
	if err != nil {
		return 0, nil // sealed, or a standby
	}
	defer leave()
	var errs []error
	for one := range st.Spaces.Below("") {
		if !one.Going || n.Flying.Within(one.Path) {
			continue
		}
		ended, err := n.end(ctx, st, one)
		errs = append(errs, err)
		if ended {
			done++
		}
	}
	return done, errors.Join(errs...)
}

// end takes away what a namespace keeps, once its leases are gone.
func (n *Namespaces) end(ctx context.Context, st *tables.Tables, one *tables.Space) (ended bool, err error) {
	if !n.queued[one.UUID] {
		if err := n.Leases.EndBelow(ctx, st, one.Path); err != nil {
			return false, err
		}
		if n.queued == nil {
			n.queued = map[string]bool{}
		}
		n.queued[one.UUID] = true
	}
	prefix := token.LeasePrefix + one.Path
	left, err := n.Records.Under.Scan(ctx, prefix, storage.After(prefix), 1)
	if err != nil || len(left) > 0 {
		return false, err
	}
	for _, prefix := range []string{one.Data(), tables.SpaceMountPrefix + one.UUID + "/",
		tables.SpacePolicyPrefix + one.UUID + "/"} {
		if err := n.clear(ctx, prefix); err != nil {
			return false, err
		}
	}
	err = n.Gate.Change(ctx, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		set, ops := quotas.Ended(&st, one.UUID)
		st.Quotas, st.Spaces = set, st.Spaces.Without(one)
		return &st, append(ops, storage.Delete(tables.SpacePrefix+one.UUID)), nil
	})
	if err == nil {
		delete(n.queued, one.UUID)
	}
	return err == nil, err
}

// clearedAtOnce is how many records one commit of clear takes away.
const clearedAtOnce = 1000

func (n *Namespaces) clear(ctx context.Context, prefix string) error {
	for {
		records, err := n.Records.Under.Scan(ctx, prefix, storage.After(prefix), clearedAtOnce)
		if err != nil || len(records) == 0 {
			return err
		}
		ops := make([]storage.Op, len(records))
		for i, r := range records {
			ops[i] = storage.Delete(r.Key)
		}
		if err := n.Records.Commit(ctx, ops); err != nil {
			return err
		}
	}
}
