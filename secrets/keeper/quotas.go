package keeper

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/quota"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// Where quotas are kept: below their type; and the settings of all.
const (
	quotaPrefix   = "core/quotas/"
	quotaSettings = quotaPrefix + "config"
)

// rolesIn are the types of auth methods whose logins name their role in the body.
var rolesIn = []string{"jwt", "kubernetes"}

// admit judges a request by the rate limits.
func (k *Keeper) admit(ctx context.Context, t *task.Task) error {
	if len(t.Tables.Quotas.All()) == 0 {
		return nil
	}
	p := quota.Place{Path: t.Path}
	if t.Entry != nil {
		p.Mount = t.Entry.Path
		if slices.Contains(rolesIn, t.Entry.Type) && t.Rest == "login" {
			p.Role = func() string {
				f, err := t.Fields()
				if err != nil {
					return ""
				}
				return f.String("role")
			}
		}
	}
	err := t.Tables.Quotas.Admit(p, t.Remote)
	if err == nil {
		return nil
	}
	k.cfg.Metrics.Counter("quota.rate_limit.violation").Add(1)
	if t.Tables.Quotas.AuditRefusals {
		return k.audited(ctx, t, err)
	}
	return err
}

// takeRoom takes room for a lease, which goes back when the request fails.
func (k *Keeper) takeRoom(t *task.Task, p quota.Place) error {
	giveBack, err := t.Tables.Quotas.Lease(p)
	if err != nil {
		k.cfg.Metrics.Counter("quota.lease_count.violation").Add(1)
		return err
	}
	if giveBack != nil {
		t.GiveBack = append(t.GiveBack, giveBack)
	}
	return nil
}

// takeTokenRoom takes room for the lease of a token that is made. A root token is never refused: with one an operator
// gets out of it. Of batch tokens none is made past the quota, and none is counted: they are stored nowhere.
func (k *Keeper) takeTokenRoom(t *task.Task, tok *token.Token) error {
	if !t.Tables.Quotas.CountsLeases() {
		return nil
	}
	if tok.Batch {
		giveBack, err := t.Tables.Quotas.Lease(quota.Place{Path: tok.Path, Mount: t.Entry.Path})
		if giveBack != nil {
			giveBack()
		}
		return err
	}
	id := tok.LeaseID()
	switch {
	case id == "":
		return nil
	case !tok.Root():
		return k.takeRoom(t, t.Tables.LeasePlace(id))
	}
	if giveBack := t.Tables.Quotas.Count(t.Tables.LeasePlace(id)); giveBack != nil {
		t.GiveBack = append(t.GiveBack, giveBack)
	}
	return nil
}

// tokensGoing gives the ids of the tokens' leases that operations take away and that are there, for leaseGone once they
// are committed: what ends a token may do so twice. Keeper.tree is held. Nothing is read where nothing is counted.
func (k *Keeper) tokensGoing(ctx context.Context, st *tables.Tables, ops []storage.Op) (ids []string, err error) {
	if now := k.gate.Load(); now == nil || !now.Quotas.CountsLeases() && !st.Quotas.CountsLeases() {
		return nil, nil
	}
	seen := map[string]bool{}
	for _, op := range ops {
		id, ok := strings.CutPrefix(op.Key, leasePrefix)
		if _, isToken := token.OfLease(id); !ok || !isToken || op.Value != nil || seen[id] {
			continue
		}
		seen[id] = true
		if _, there, err := k.records.Under.Get(ctx, op.Key); err != nil {
			return nil, err
		} else if there {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// leaseGone gives the room of a lease back that has ended.
func (k *Keeper) leaseGone(st *tables.Tables, id string) {
	if now := k.gate.Load(); now != nil { // rules may have changed since
		st = now
	}
	if st.Quotas.CountsLeases() {
		st.Quotas.Gone(st.LeasePlace(id))
	}
}

// countLeases counts the leases of a rule that is new. Leases that come or go meanwhile may be missed by it.
func (k *Keeper) countLeases(ctx context.Context, st *tables.Tables, q *quota.Quota) error {
	one := quota.NewSet(quota.Settings{}, []*quota.Quota{q})
	return k.eachLease(ctx, func(id string) error {
		if one.Holds(st.LeasePlace(id)) {
			q.Leases.Add(1)
		}
		return nil
	})
}

// loadQuotas reads the rules.
func (k *Keeper) loadQuotas(ctx context.Context, st *tables.Tables) error {
	records, err := k.records.Scan(ctx, quotaPrefix, storage.After(quotaPrefix), 0)
	if err != nil {
		return err
	}
	var settings quota.Settings
	var list []*quota.Quota
	for _, r := range records {
		if r.Key == quotaSettings {
			if json.Unmarshal(r.Value, &settings) != nil {
				return errkind.Errorf(errkind.Corrupt, "%s is not what was stored", r.Key)
			}
			continue
		}
		var rule quota.Rule
		if json.Unmarshal(r.Value, &rule) != nil {
			return errkind.Errorf(errkind.Corrupt, "%s is not what was stored", r.Key)
		}
		q := quota.New(rule)
		if rule.Type == quota.LeaseCount {
			if err := k.countLeases(ctx, st, q); err != nil {
				return err
			}
		}
		list = append(list, q)
	}
	st.Quotas = quota.NewSet(settings, list)
	return nil
}

func (s *system) quotaConfig(c *sysCall) (any, error) {
	q := c.Tables.Quotas
	list := func(l []string) []string { return slices.Concat([]string{}, l) }
	return map[string]any{"enable_rate_limit_audit_logging": q.AuditRefusals, "enable_rate_limit_response_headers": q.Headers,
		"rate_limit_exempt_paths": list(q.Exempt), "absolute_rate_limit_exempt_paths": list(q.AbsoluteExempt)}, nil
}

func (s *system) writeQuotaConfig(c *sysCall) (any, error) {
	return nil, s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		next := st.Quotas.Settings
		next.AuditRefusals = c.f.Bool("enable_rate_limit_audit_logging", next.AuditRefusals)
		next.Headers = c.f.Bool("enable_rate_limit_response_headers", next.Headers)
		for name, at := range map[string]*[]string{"rate_limit_exempt_paths": &next.Exempt, "absolute_rate_limit_exempt_paths": &next.AbsoluteExempt} {
			if c.f.Has(name) {
				*at = c.f.Strings(name)
			}
		}
		if err := c.f.Err(); err != nil {
			return nil, nil, err
		}
		op, err := storage.PutJSON(quotaSettings, next)
		st.Quotas = quota.NewSet(next, st.Quotas.All())
		return &st, []storage.Op{op}, err
	})
}

// quotaType is the type of rules that a request is about, by its path.
func (c *sysCall) quotaType() string {
	if strings.HasPrefix(c.Rest, "quotas/"+quota.LeaseCount) {
		return quota.LeaseCount
	}
	return quota.RateLimit
}

func (s *system) quotaNames(c *sysCall) (any, error) {
	names := []string{}
	for _, q := range c.Tables.Quotas.All() {
		if q.Type == c.quotaType() {
			names = append(names, q.Name)
		}
	}
	if len(names) == 0 {
		return nil, errkind.New(errkind.NotFound, "")
	}
	return map[string]any{"keys": names}, nil
}

func (s *system) readQuota(c *sysCall) (any, error) {
	q := c.Tables.Quotas.Find(c.quotaType(), c.name)
	if q == nil {
		return nil, errkind.New(errkind.NotFound, "")
	}
	out := map[string]any{"name": q.Name, "type": q.Type, "path": q.Path, "role": q.Role, "inheritable": q.Inheritable}
	if q.Type == quota.LeaseCount {
		out["max_leases"], out["counter"] = q.MaxLeases, q.Leases.Load()
	} else {
		out["rate"], out["interval"], out["block_interval"], out["group_by"] = q.Rate, task.Seconds(q.Interval), task.Seconds(q.Block), "ip"
	}
	return out, nil
}

// quotaRule reads a rule from a request, over the one of its name.
func (s *system) quotaRule(c *sysCall) (quota.Rule, error) {
	r := quota.Rule{Name: c.name, Type: c.quotaType(), Interval: time.Second}
	if old := c.Tables.Quotas.Find(r.Type, r.Name); old != nil {
		r = old.Rule
	}
	for name, at := range map[string]*string{"path": &r.Path, "role": &r.Role} {
		if c.f.Has(name) {
			*at = c.f.String(name)
		}
	}
	r.Inheritable = c.f.Bool("inheritable", r.Inheritable)
	if group := c.f.String("group_by"); group != "" && group != "ip" {
		return r, errkind.New(errkind.Invalid, "field \"group_by\": must be ip")
	}
	if r.Type == quota.LeaseCount {
		r.MaxLeases = int64(c.f.Int("max_leases", int(r.MaxLeases)))
	} else {
		r.Rate = c.f.Float("rate", r.Rate)
		r.Interval = c.f.Duration("interval", r.Interval)
		r.Block = c.f.Duration("block_interval", r.Block)
	}
	if err := c.f.Err(); err != nil {
		return r, err
	}
	if err := r.Check(); err != nil {
		return r, err
	}
	return r, s.checkQuotaPath(c, &r)
}

// checkQuotaPath makes the path of a rule that of its mount, and refuses what would hold for nothing.
func (s *system) checkQuotaPath(c *sysCall, r *quota.Rule) error {
	r.Path = strings.TrimPrefix(r.Path, "/")
	if r.Path == "" && r.Role == "" {
		return nil
	}
	e, rest := c.Tables.Mounts.Route(r.Path)
	switch {
	case e == nil:
		return errkind.Errorf(errkind.Invalid, "invalid mount path %q", r.Path)
	case rest == "" || rest == "/":
		r.Path = e.Path
	}
	if r.Role != "" && (r.Type != quota.RateLimit || r.Path != e.Path || !slices.Contains(rolesIn, e.Type)) {
		return errkind.Errorf(errkind.Invalid, "field \"role\": only rate limits of whole mounts of type %s go by role", strings.Join(rolesIn, " or "))
	}
	for _, other := range c.Tables.Quotas.All() {
		if other.Type == r.Type && other.Name != r.Name && other.Path == r.Path && other.Role == r.Role {
			return errkind.Errorf(errkind.Invalid, "quota rule with similar properties exists under the name %q", other.Name)
		}
	}
	return nil
}

func (s *system) writeQuota(c *sysCall) (any, error) {
	rule, err := s.quotaRule(c)
	if err != nil {
		return nil, err
	}
	q := quota.New(rule)
	if rule.Type == quota.LeaseCount {
		if err := s.k.countLeases(c, c.Tables, q); err != nil {
			return nil, err
		}
	}
	return nil, s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		op, err := storage.PutJSON(quotaPrefix+rule.Type+"/"+rule.Name, rule)
		st.Quotas = quota.NewSet(st.Quotas.Settings, append(without(st.Quotas, rule.Type, rule.Name), q))
		return &st, []storage.Op{op}, err
	})
}

func (s *system) deleteQuota(c *sysCall) (any, error) {
	kind := c.quotaType()
	if err := storage.CheckKey(quotaPrefix + kind + "/" + c.name); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	return nil, s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		st.Quotas = quota.NewSet(st.Quotas.Settings, without(st.Quotas, kind, c.name))
		return &st, []storage.Op{storage.Delete(quotaPrefix + kind + "/" + c.name)}, nil
	})
}

func without(s *quota.Set, kind, name string) []*quota.Quota {
	return slices.DeleteFunc(slices.Clone(s.All()), func(q *quota.Quota) bool { return q.Type == kind && q.Name == name })
}
