package grants

import (
	"context"
	"log/slog"
	"net/netip"
	"regexp"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// Store is where the records are (catalog/registry.Registry), on the leader.
type Store interface {
	State() *statestore.State
	// SetRecords applies all operations or none; ok is false when an index did not compare.
	SetRecords(ctx context.Context, ops ...catalog.RecordOp) (r catalog.Result, ok bool, err error)
}

// KeeperConfig configures a Keeper.
type KeeperConfig struct {
	Store      Store
	Datacenter string
	// Leader tells Run when this server has the leader's duties.
	Leader interface {
		IsLeader() bool
		// LeaderChanges is closed and replaced at each change.
		LeaderChanges() <-chan struct{}
	}
	// InitialManagement is the secret of a token with all rights that EnsureBuiltins makes; "" makes none.
	InitialManagement string
	// ResetIndex returns what the operator wrote to allow another bootstrap, 0 for nothing; nil is nothing.
	// It is called once more with done when that bootstrap has happened.
	ResetIndex func(done bool) uint64
	// Verifier checks the credentials of logins; nil refuses them.
	Verifier Verifier
	Clock    clock.Clock
	Logger   *slog.Logger
}

// Verifier checks what a login brings (catalog/login).
type Verifier interface {
	// Check refuses a configuration that no login could succeed with.
	Check(m *acl.AuthMethod) error
	// Login returns what the credential says about its bearer, by the names that selectors use.
	Login(ctx context.Context, m *acl.AuthMethod, credential string) (Claims, error)
	// Begin keeps the login of a person and gives the address of the provider that their browser goes to.
	Begin(ctx context.Context, m *acl.AuthMethod, v *Visit) (address string, err error)
	// End returns what the provider says of a person who came back, and the Meta that the login was begun with.
	End(ctx context.Context, m *acl.AuthMethod, b *Back) (Claims, map[string]string, error)
	// Fields are the claims that a login with the method could have, for checking selectors.
	Fields(m *acl.AuthMethod) Claims
}

// Visit begins the login of a person at a provider.
type Visit struct {
	Redirect string // where their browser comes back to
	Nonce    string // known to who begins; shown to end it
	Meta     map[string]string
	From     netip.Addr // who asks
}

// Back is what a browser brought back.
type Back struct{ State, Code, Nonce string }

// Claims is what a credential says: Vars for the names in binding rules, Selectable for their selectors.
type Claims struct {
	Vars       map[string]string
	Selectable map[string]any
}

// Keeper changes access control objects with the contract's checks. Its calls go to
// the leader's store and return what was stored.
type Keeper struct{ cfg KeeperConfig }

// NewKeeper starts nothing.
func NewKeeper(cfg KeeperConfig) *Keeper {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Keeper{cfg}
}

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

func missing(format string, args ...any) error {
	return errkind.Errorf(errkind.NotFound, format, args...)
}

// maxTries bounds how often a change is decided again because its records changed meanwhile.
const maxTries = 16

// change decides operations from the newest State and applies them, again and again while
// the records that they compare have changed meanwhile.
func (k *Keeper) change(ctx context.Context, decide func(st *statestore.State) ([]catalog.RecordOp, error)) error {
	for range maxTries {
		ops, err := decide(k.cfg.Store.State())
		if err != nil || len(ops) == 0 {
			return err
		}
		_, ok, err := k.cfg.Store.SetRecords(ctx, ops...)
		if err != nil {
			return err
		}
		if ok {
			return nil
		}
	}
	return errkind.New(errkind.Overloaded, "the object is being changed by others all the time")
}

// put is the operation that stores v if its record is still the one with that index, 0 for none.
func put(kind catalog.RecordKind, key, name string, index uint64, v any) catalog.RecordOp {
	return catalog.RecordOp{Verb: catalog.RecordCAS, Record: catalog.Record{Kind: kind, Key: key, Name: name,
		Value: acl.Encode(v), ModifyIndex: index}}
}

func remove(kind catalog.RecordKind, key string, index uint64) catalog.RecordOp {
	return catalog.RecordOp{Verb: catalog.RecordDeleteCAS, Record: catalog.Record{Kind: kind, Key: key,
		ModifyIndex: index}}
}

// Counted repetitions take long to compile, at each start of the program: the first who needs one does it.
var (
	uuidForm   = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)
	policyName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	})
	roleName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)
	})
	methodName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	})
)

// checkGrants resolves the links of in to IDs and checks its identities.
func checkGrants(st *statestore.State, g *acl.Grants, dc string) (err error) {
	if g.Policies, err = resolveLinks(st, catalog.RecordACLPolicy, "policy", g.Policies); err != nil {
		return err
	}
	for _, s := range g.ServiceIdentities {
		if s.ServiceName == "" {
			return invalid("Service identity is missing the service name field on this token")
		}
		if !acl.ValidIdentityName(s.ServiceName) {
			return invalid("Service identity %q has an invalid name. Only lowercase alphanumeric characters, '-' and '_' are "+
				"allowed", s.ServiceName)
		}
	}
	for _, n := range g.NodeIdentities {
		switch {
		case n.NodeName == "":
			return invalid("Node identity is missing the node name field on this token")
		case n.Datacenter == "":
			return invalid("Node identity is missing the datacenter field on this token")
		case !acl.ValidIdentityName(n.NodeName):
			return invalid("Node identity has an invalid name. Only lowercase alphanumeric characters, '-' and '_' are allowed")
		}
	}
	for i := range g.TemplatedPolicies {
		t := &g.TemplatedPolicies[i]
		if t.TemplateName == "" {
			return invalid("templated policy is missing the template name field on this token")
		}
		if _, err := acl.Expand(t.TemplateName, t.VariableName()); err != nil {
			return err
		}
	}
	return nil
}

// resolveLinks turns names into IDs; a link to nothing is refused.
func resolveLinks(st *statestore.State, kind catalog.RecordKind, what string, links []acl.Link) ([]acl.Link, error) {
	var out []acl.Link
	seen := map[string]bool{}
	for _, l := range links {
		r := st.Record(kind, l.ID)
		switch {
		case l.ID != "" && r == nil:
			return nil, invalid("No such ACL %s with ID %q", what, l.ID)
		case l.ID == "" && l.Name == "":
			return nil, invalid("Encountered a %s link with no Name or ID set", what)
		case l.ID == "":
			if r = st.RecordByName(kind, l.Name); r == nil {
				return nil, invalid("No such ACL %s with name %q", what, l.Name)
			}
		}
		if !seen[r.Key] {
			seen[r.Key] = true
			out = append(out, acl.Link{ID: r.Key})
		}
	}
	return out, nil
}

// now is the time as it is stored: without the monotonic part, in UTC.
func (k *Keeper) now() time.Time { return k.cfg.Clock.Now().UTC().Round(0) }
