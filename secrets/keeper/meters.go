package keeper

import (
	"context"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/census"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/telemetry"
)

// meters are what requests count, found once. Names are the contract's, without its prefix.
type meters struct {
	registry   *telemetry.Registry
	request    *telemetry.Timing
	login      *telemetry.Timing
	checkToken *telemetry.Timing
	register   *telemetry.Timing
	authorise  *telemetry.Timing
	cluster    func() string
	entityMade func(*mount.Entry)
	costs      *telemetry.Stages
	own        ownMeters
	tenants    *telemetry.Tenants
	routes     sync.Map // accessor and path to *[secrets.Scan + 1]*telemetry.Timing
}

// timed are the timings of the system's and the token store's paths, by the beginning of the path.
var timed = []struct {
	path string
	op   []secrets.Operation // nil: all
	name string
}{
	{"sys/policies/acl/", []secrets.Operation{secrets.Read}, "policy.get_policy"},
	{"sys/policy/", []secrets.Operation{secrets.Read}, "policy.get_policy"},
	{"sys/policies/acl/", []secrets.Operation{secrets.Update}, "policy.set_policy"},
	{"sys/policy/", []secrets.Operation{secrets.Update}, "policy.set_policy"},
	{"sys/policies/acl/", []secrets.Operation{secrets.Delete}, "policy.delete_policy"},
	{"sys/policy/", []secrets.Operation{secrets.Delete}, "policy.delete_policy"},
	{"sys/policies/acl", []secrets.Operation{secrets.List}, "policy.list_policies"},
	{"sys/policy", nil, "policy.list_policies"},
	{"sys/leases/lookup", nil, "expire.fetch-lease-times"}, {"sys/leases/renew", nil, "expire.renew"},
	{"sys/renew", nil, "expire.renew"},
	{"sys/leases/revoke-prefix/", nil, "expire.revoke-prefix"}, {"sys/revoke-prefix/", nil, "expire.revoke-prefix"},
	{"sys/leases/revoke-force/", nil, "expire.revoke-force"},
	{"sys/revoke-force/", nil, "expire.revoke-force"}, {"sys/leases/revoke", nil, "expire.revoke"},
	{"sys/revoke", nil, "expire.revoke"},
	{"auth/token/create", nil, "token.create"}, {"auth/token/lookup", nil, "token.lookup"},
	{"auth/token/renew", nil, "expire.renew-token"},
	{"auth/token/revoke-orphan", nil, "token.revoke"}, {"auth/token/revoke", nil, "token.revoke-tree"},
}

// costKinds are what requests are counted as; a request's kind is kindOf.
var costKinds = []string{"read", "list", "write", "delete", "login", "token", "renew", "revoke"}

// kindOf is the position of a request's kind in costKinds.
func kindOf(t *task.Task, r *task.Reply) int {
	switch {
	case t.Bearer == nil && r != nil && r.Token != nil:
		return 4
	case strings.HasPrefix(t.Path, "auth/token/create"):
		return 5
	case strings.HasPrefix(t.Path, "sys/leases/renew"), strings.HasPrefix(t.Path, "sys/renew"),
		strings.HasPrefix(t.Path, "auth/token/renew"):
		return 6
	case strings.HasPrefix(t.Path, "sys/leases/revoke"), strings.HasPrefix(t.Path, "sys/revoke"),
		strings.HasPrefix(t.Path, "auth/token/revoke"):
		return 7
	case t.Op == secrets.List || t.Op == secrets.Scan:
		return 1
	case t.Op == secrets.Delete:
		return 3
	case t.Op.Writes():
		return 2
	default:
		return 0
	}
}

func newMeters(r *telemetry.Registry) *meters {
	m := &meters{registry: r, own: newOwnMeters(r), request: r.Timing("core.handle_request"),
		login: r.Timing("core.handle_login_request"), checkToken: r.Timing("core.check_token"),
		authorise: r.Timing("core.fetch_acl_and_token"), register: r.Timing("expire.register"),
		costs: r.Stages("secrets", costKinds...), tenants: r.Tenants("secrets")}
	for _, t := range timed { // alerts find them from the start
		r.Declare(telemetry.KindTiming, t.name, t.name)
	}
	for _, name := range []string{"get", "put", "delete", "list", "list-page"} {
		r.Declare(telemetry.KindTiming, "barrier."+name, "barrier."+name)
	}
	for _, name := range []string{"quota.rate_limit.violation", "quota.lease_count.violation", "token.creation",
		"secret.lease.creation"} {
		r.Declare(telemetry.KindCounter, name, name)
	}
	return m
}

// gauges tells of the keeper's state whenever somebody reads it.
func (k *Keeper) gauges(r *telemetry.Registry) {
	r.GaugeFunc("core.unsealed", func() float64 { return one(!k.Sealed()) })
	r.GaugeFunc("core.active", func() float64 { return one(k.Active()) })
	r.GaugeFunc("core.performance_standby", func() float64 { return one(k.Standby() && k.replica.state.Load() != nil) })
	r.GaugeFunc("expire.num_revoking", func() float64 { return float64(k.leases.Due()) })
	r.GaugeFunc("core.in_flight_requests", func() float64 { return float64(k.flying.Count()) })
	r.GaugeFunc("barrier.estimated_encryptions", func() float64 {
		st, err := k.records.Barrier.Status()
		if err != nil {
			return 0 // sealed
		}
		return float64(st.Encryptions)
	})
	k.mountGauges(r)
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// route is the timing of an operation at a mount.
func (m *meters) route(e *mount.Entry, op secrets.Operation) *telemetry.Timing {
	if m.registry == nil {
		return nil
	}
	key := e.Path
	if known, ok := m.routes.Load(key); ok {
		list, _ := known.(*[secrets.Scan + 1]*telemetry.Timing)
		return list[op]
	}
	list := &[secrets.Scan + 1]*telemetry.Timing{}
	for o := range list {
		list[o] = m.registry.Timing("route." + secrets.Operation(o).String() + "." + strings.ReplaceAll(e.Path, "/", "-"))
	}
	m.routes.Store(key, list)
	return list[op]
}

// done counts a request that was answered.
func (m *meters) done(ctx context.Context, t *task.Task, begin time.Time, r *task.Reply) {
	took := time.Since(begin)
	if t.Bearer == nil && r != nil && r.Token != nil {
		m.login.Observe(took)
	} else {
		m.request.Observe(took)
	}
	if m.tenants.Turn() {
		m.tenants.Add(t.Asker())
	}
	if strings.HasPrefix(t.Path, "sys/pprof") || t.Path == "sys/monitor" { // they last as long as they are asked to
		return
	}
	kind := kindOf(t, r)
	t.Account.Spent[telemetry.StageStorage] = time.Duration(t.Account.Stored.Load())
	m.costs.Done(ctx, kind, took, &t.Account.Spent)
	if n := t.Account.Commits.Load(); n > 0 {
		m.costs.Charge(kind, uint64(n), 0, 0)
	}
	if t.Entry == nil {
		return
	}
	m.route(t.Entry, t.Op).Observe(took)
	if m.registry != nil && r != nil && r.Response != nil {
		m.made(t, took, r)
	}
	if t.Entry.Type != "system" && t.Entry.Type != "token" {
		return
	}
	for i := range timed {
		c := &timed[i]
		if strings.HasPrefix(t.Path, c.path) && (c.op == nil || c.op[0] == t.Op) {
			m.registry.Timing(c.name).Observe(took)
			if c.name == "token.lookup" { // which tells of its times too
				m.own.timesByToken.Observe(took)
			}
			return
		}
	}
}

// made counts the token or the lease that an answer brings.
func (m *meters) made(t *task.Task, took time.Duration, r *task.Reply) {
	if a := r.Response.Auth; a != nil && r.Token != nil {
		m.registry.Counter("token.creation", "cluster", m.cluster(), "namespace", census.SpaceLabel(t.SpaceID),
			"auth_method", r.Mount.Type,
			"mount_point", r.Mount.Path,
			"creation_ttl", census.TTLName(r.Token.TTL), "token_type", r.Token.Type()).Add(1)
		m.own.registerAuth.Observe(took)
		if r.Token.Root() {
			m.own.rootTokens.Add(1)
		}
	}
	if t.Newcomer {
		m.entityMade(t.Entry)
	}
	if r.Response.Lease != nil {
		var ttl time.Duration
		if r.Lease != nil {
			ttl = r.Lease.Left
		}
		m.registry.Counter("secret.lease.creation", "cluster", m.cluster(), "namespace", census.SpaceLabel(t.SpaceID),
			"secret_engine",
			t.Entry.Type, "mount_point", t.Entry.Path,
			"creation_ttl", census.TTLName(ttl)).Add(1)
		m.register.Observe(took)
	}
}

// metered times the calls of a storage, by its name, and as the barrier's.
type metered struct {
	storage.Backend
	get, put, del, list     *telemetry.Timing
	barPage                 *telemetry.Timing // of a list by pages
	barGet, barPut, barList *telemetry.Timing
	barDel                  *telemetry.Timing
	repeat                  func() int
}

func newMetered(b storage.Backend, r *telemetry.Registry, repeat func() int) storage.Backend {
	if r == nil {
		return b
	}
	name := b.Info().Name
	if name == "raft" {
		name = "raft-storage"
	}
	if name == "postgresql" {
		name = "postgres"
	}
	if repeat == nil {
		repeat = func() int { return 1 }
	}
	return &metered{Backend: b, repeat: repeat, get: r.Timing(name + ".get"), put: r.Timing(name + ".put"),
		del: r.Timing(name + ".delete"), list: r.Timing(name + ".list"),
		barGet: r.Timing("barrier.get"), barPut: r.Timing("barrier.put"), barDel: r.Timing("barrier.delete"),
		barList: r.Timing("barrier.list"), barPage: r.Timing("barrier.list-page")}
}

// Get implements storage.Backend.
func (m *metered) Get(ctx context.Context, key string) ([]byte, bool, error) {
	begin := time.Now()
	v, ok, err := m.Backend.Get(ctx, key)
	telemetry.ChargeStorage(ctx, m.both(begin, m.get, m.barGet), 0)
	return v, ok, err
}

// List implements storage.Backend.
func (m *metered) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	begin := time.Now()
	list, err := m.Backend.List(ctx, prefix, after, limit)
	of := m.barList
	if after != "" || limit > 0 {
		of = m.barPage
	}
	telemetry.ChargeStorage(ctx, m.both(begin, m.list, of), 0)
	return list, err
}

// Commit implements storage.Backend. A batch that puts anything counts as a put.
func (m *metered) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	begin := time.Now()
	times := m.repeat()
	err := m.Backend.Commit(ctx, epoch, ops)
	for n := 1; n < times && err == nil; n++ { // the same state each time
		err = m.Backend.Commit(ctx, epoch, ops)
	}
	for _, op := range ops {
		if op.Value != nil {
			telemetry.ChargeStorage(ctx, m.both(begin, m.put, m.barPut), int64(times))
			return err
		}
	}
	telemetry.ChargeStorage(ctx, m.both(begin, m.del, m.barDel), int64(times))
	return err
}

func (m *metered) both(begin time.Time, a, b *telemetry.Timing) time.Duration {
	took := time.Since(begin)
	a.Observe(took)
	b.Observe(took)
	return took
}
