package grants

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// builtinPrefix begins the names that are ours.
const builtinPrefix = "builtin/"

// SetPolicy creates a policy, or changes the one with in.ID.
func (k *Keeper) SetPolicy(ctx context.Context, in acl.Policy) (*acl.Policy, error) {
	create := in.ID == ""
	if create {
		in.ID = uuid.NewString()
	} else if !uuidForm.MatchString(in.ID) {
		return nil, invalid("Policy ID invalid UUID")
	}
	if in.Name == "" {
		return nil, invalid("Invalid Policy: no Name is set")
	}
	_, err := acl.Parse(in.Rules)
	if err != nil {
		return nil, errkind.Errorf(errkind.Of(err), "Invalid Policy: %s", errkind.Text(err))
	}
	err = k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		index, old := uint64(0), st.Record(catalog.RecordACLPolicy, in.ID)
		switch {
		case create && old != nil:
			in.ID = uuid.NewString()
		case !create && old == nil:
			return nil, missing("cannot find policy %s", in.ID)
		case !create:
			index = old.ModifyIndex
			if err := checkBuiltin(find[acl.Policy](old), &in); err != nil {
				return nil, err
			}
		}
		if !policyName().MatchString(in.Name) && (old == nil || old.Name != in.Name) {
			if strings.HasPrefix(in.Name, builtinPrefix) {
				return nil, invalid("Invalid Policy: names that begin with %q are reserved", builtinPrefix)
			}
			return nil, invalid("Invalid Policy: invalid Name. Only alphanumeric characters, '-' and '_' are allowed")
		}
		if r := st.RecordByName(catalog.RecordACLPolicy, in.Name); r != nil && r.Key != in.ID {
			return nil, invalid("Invalid Policy: A Policy with Name %q already exists", in.Name)
		}
		in.CreateIndex, in.ModifyIndex = 0, 0
		in.Hash = acl.Sum(&in)
		return []catalog.RecordOp{put(catalog.RecordACLPolicy, in.ID, in.Name, index, &in)}, nil
	})
	if err != nil {
		return nil, err
	}
	if p := PolicyByID(k.cfg.Store.State(), in.ID); p != nil {
		return p, nil
	}
	return nil, missing("cannot find policy %s", in.ID)
}

// checkBuiltin keeps what makes the built-in policies what they are.
func checkBuiltin(old, in *acl.Policy) error {
	if old == nil || old.ID != acl.GlobalManagementID && old.ID != acl.GlobalReadOnlyID {
		return nil
	}
	if in.Rules != old.Rules {
		return invalid("Changing the Rules for the builtin %s policy is not permitted", old.Name)
	}
	if len(in.Datacenters) > 0 {
		return invalid("Changing the Datacenters of the builtin %s policy is not permitted", old.Name)
	}
	return nil
}

// DeletePolicy takes a policy away from all who have it.
func (k *Keeper) DeletePolicy(ctx context.Context, id string) error {
	if id == acl.GlobalManagementID || id == acl.GlobalReadOnlyID {
		return invalid("Delete operation not permitted on the builtin policy with ID %s", id)
	}
	return k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		r := st.Record(catalog.RecordACLPolicy, id)
		if r == nil {
			return nil, missing("Cannot find policy to delete")
		}
		return []catalog.RecordOp{remove(catalog.RecordACLPolicy, id, r.ModifyIndex)}, nil
	})
}

// SetRole creates a role, or changes the one with in.ID.
func (k *Keeper) SetRole(ctx context.Context, in acl.Role) (*acl.Role, error) {
	create := in.ID == ""
	if create {
		in.ID = uuid.NewString()
	} else if !uuidForm.MatchString(in.ID) {
		return nil, invalid("Role ID invalid UUID")
	}
	if in.Name == "" {
		return nil, invalid("Invalid Role: no Name is set")
	}
	if !roleName().MatchString(in.Name) {
		return nil, invalid("Invalid Role: invalid Name. Only alphanumeric characters, '-' and '_' are allowed")
	}
	err := k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		index, old := uint64(0), st.Record(catalog.RecordACLRole, in.ID)
		switch {
		case create && old != nil:
			in.ID = uuid.NewString()
		case !create && old == nil:
			return nil, missing("cannot find role %s", in.ID)
		case !create:
			index = old.ModifyIndex
		}
		if r := st.RecordByName(catalog.RecordACLRole, in.Name); r != nil && r.Key != in.ID {
			return nil, invalid("Invalid Role: A Role with Name %q already exists", in.Name)
		}
		stored := in
		if err := checkGrants(st, &stored.Grants, k.cfg.Datacenter); err != nil {
			return nil, err
		}
		stored.CreateIndex, stored.ModifyIndex = 0, 0
		stored.Hash = acl.Sum(&stored)
		return []catalog.RecordOp{put(catalog.RecordACLRole, in.ID, in.Name, index, &stored)}, nil
	})
	if err != nil {
		return nil, err
	}
	st := k.cfg.Store.State()
	r := RoleByID(st, in.ID)
	if r == nil {
		return nil, missing("cannot find role %s", in.ID)
	}
	ShowLinks(st, &r.Grants)
	return r, nil
}

// DeleteRole takes a role away from all who have it.
func (k *Keeper) DeleteRole(ctx context.Context, id string) error {
	return k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		r := st.Record(catalog.RecordACLRole, id)
		if r == nil {
			return nil, missing("Cannot find role to delete")
		}
		return []catalog.RecordOp{remove(catalog.RecordACLRole, id, r.ModifyIndex)}, nil
	})
}
