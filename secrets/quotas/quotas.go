package quotas

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/quota"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
	"corbel.dev/corbel/telemetry"
)

// Where quotas are kept: below their type; and the settings of all.
const (
	quotaPrefix   = "core/quotas/"
	quotaSettings = quotaPrefix + "config"
)

// rolesIn are the types of auth methods whose logins name their role in the body.
var rolesIn = []string{"jwt", "kubernetes"}

// Quotas counts leases against the rules, and answers for the rules themselves. Counts are atomic: it has no lock.
type Quotas struct {
	Gate    *tables.Gate
	Records *sealed.Store
	Metrics *telemetry.Registry
}

// Rows are the paths of sys/ that it answers.
func (q *Quotas) Rows() []system.Row {
	return []system.Row{
		{Path: "quotas/config", Read: q.quotaConfig, Write: q.writeQuotaConfig},
		{Path: "quotas/rate-limit", InNamespaces: true, List: q.quotaNames},
		{Path: "quotas/rate-limit/", InNamespaces: true, Read: q.readQuota, Write: q.writeQuota, Del: q.deleteQuota},
		{Path: "quotas/lease-count", InNamespaces: true, List: q.quotaNames},
		{Path: "quotas/lease-count/", InNamespaces: true, Read: q.readQuota, Write: q.writeQuota, Del: q.deleteQuota},
	}
}

// Admit judges a request by the rate limits.
func (q *Quotas) Admit(t *task.Task) error {
	if len(t.Tables.Quotas.All()) == 0 {
		return nil
	}
	p := quota.Place{Path: t.FromRoot(), Space: t.Tables.Path()}
	if t.Entry != nil {
		p.Mount = p.Space + t.Entry.Path
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
	if err != nil {
		q.Metrics.Counter("quota.rate_limit.violation").Add(1)
	}
	return err
}

// Take takes room for a lease, which goes back when the request fails.
func (q *Quotas) Take(t *task.Task, p quota.Place) error {
	giveBack, err := t.Tables.Quotas.Lease(p)
	if err != nil {
		q.Metrics.Counter("quota.lease_count.violation").Add(1)
		return err
	}
	if giveBack != nil {
		t.GiveBack = append(t.GiveBack, giveBack)
	}
	return nil
}

// TakeToken takes room for the lease of a token that is made. A root token is never refused: with one an operator
// gets out of it. Of batch tokens none is made past the quota, and none is counted: they are stored nowhere.
func (q *Quotas) TakeToken(t *task.Task, tok *token.Token) error {
	if !t.Tables.Quotas.CountsLeases() {
		return nil
	}
	if tok.Batch {
		giveBack, err := t.Tables.Quotas.Lease(quota.Place{Path: tok.Path, Mount: t.Space + t.Entry.Path, Space: t.Space})
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
		return q.Take(t, t.Tables.LeasePlace(id))
	}
	if giveBack := t.Tables.Quotas.Count(t.Tables.LeasePlace(id)); giveBack != nil {
		t.GiveBack = append(t.GiveBack, giveBack)
	}
	return nil
}

// Going gives the ids of the tokens' leases that operations take away and that are there, for Gone once they
// are committed: what ends a token may do so twice. The tree is held. Nothing is read where nothing is counted.
func (q *Quotas) Going(ctx context.Context, st *tables.Tables, ops []storage.Op) (ids []string, err error) {
	if now := q.Gate.Load(); now == nil || !now.Quotas.CountsLeases() && !st.Quotas.CountsLeases() {
		return nil, nil
	}
	seen := map[string]bool{}
	for _, op := range ops {
		id, ok := strings.CutPrefix(op.Key, token.LeasePrefix)
		if _, isToken := token.OfLease(id); !ok || !isToken || op.Value != nil || seen[id] {
			continue
		}
		seen[id] = true
		if _, there, err := q.Records.Under.Get(ctx, op.Key); err != nil {
			return nil, err
		} else if there {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Gone gives the room of a lease back that has ended.
func (q *Quotas) Gone(st *tables.Tables, id string) {
	if now := q.Gate.Load(); now != nil { // rules may have changed since
		st = now
	}
	if st.Quotas.CountsLeases() {
		st.Quotas.Gone(st.LeasePlace(id))
	}
}

// count counts the leases of a rule that is new. Leases that come or go meanwhile may be missed by it.
func (q *Quotas) count(ctx context.Context, st *tables.Tables, rule *quota.Quota) error {
	one := quota.NewSet(quota.Settings{}, []*quota.Quota{rule})
	return q.Records.EachKey(ctx, token.LeasePrefix, func(id string) error {
		if one.Holds(st.LeasePlace(id)) {
			rule.Leases.Add(1)
		}
		return nil
	})
}

// Load reads the rules, and counts the leases that there are.
func (q *Quotas) Load(ctx context.Context, st *tables.Tables) error {
	records, err := q.Records.Scan(ctx, quotaPrefix, storage.After(quotaPrefix), 0)
	if err != nil {
		return err
	}
	var settings quota.Settings
	var list []*quota.Quota
	for _, r := range records {
		if r.Key == quotaSettings {
			if err := sealed.ReadJSON(r.Key, r.Value, &settings); err != nil {
				return err
			}
			continue
		}
		one, err := readRule(r)
		if err != nil {
			return err
		}
		if one.Type == quota.LeaseCount {
			if err := q.count(ctx, st, one); err != nil {
				return err
			}
		}
		list = append(list, one)
	}
	st.Quotas = quota.NewSet(settings, list)
	return nil
}

// LoadRates reads the rate limits, which each server keeps for itself.
func (q *Quotas) LoadRates(ctx context.Context, st *tables.Tables) error {
	const prefix = quotaPrefix + quota.RateLimit + "/"
	records, err := q.Records.Scan(ctx, prefix, storage.After(prefix), 0)
	var rates []*quota.Quota
	for _, r := range records {
		one, err := readRule(r)
		if err != nil {
			return err
		}
		rates = append(rates, one)
	}
	st.Quotas = quota.NewSet(quota.Settings{}, rates)
	return err
}

func readRule(r storage.Record) (*quota.Quota, error) {
	var rule quota.Rule
	err := sealed.ReadJSON(r.Key, r.Value, &rule)
	return quota.New(rule), err
}

func (q *Quotas) quotaConfig(c *system.Call) (any, error) {
	set := c.Tables.Quotas
	list := func(l []string) []string { return slices.Concat([]string{}, l) }
	return map[string]any{"enable_rate_limit_audit_logging": set.AuditRefusals,
			"enable_rate_limit_response_headers": set.Headers,
			"rate_limit_exempt_paths":            list(set.Exempt),
			"absolute_rate_limit_exempt_paths":   list(set.AbsoluteExempt)},
		nil
}

func (q *Quotas) writeQuotaConfig(c *system.Call) (any, error) {
	return nil, q.Gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		next := st.Quotas.Settings
		next.AuditRefusals = c.F.Bool("enable_rate_limit_audit_logging", next.AuditRefusals)
		next.Headers = c.F.Bool("enable_rate_limit_response_headers", next.Headers)
		for name, at := range map[string]*[]string{"rate_limit_exempt_paths": &next.Exempt,
			"absolute_rate_limit_exempt_paths": &next.AbsoluteExempt} {
			if c.F.Has(name) {
				*at = c.F.Strings(name)
			}
		}
		if err := c.F.Err(); err != nil {
			return nil, nil, err
		}
		op, err := storage.PutJSON(quotaSettings, next)
		st.Quotas = quota.NewSet(next, st.Quotas.All())
		return &st, []storage.Op{op}, err
	})
}

// spaceOf is the UUID of the namespace whose rules a request is about; "" is the root one.
func spaceOf(c *system.Call) string {
	if c.Tables.Space == nil {
		return ""
	}
	return c.Tables.Space.UUID
}

// ruleKey is where a rule is stored.
func ruleKey(space, kind, name string) string {
	if space != "" {
		name = space + "/" + name
	}
	return quotaPrefix + kind + "/" + name
}

// quotaType is the type of rules that a request is about, by its path.
func quotaType(c *system.Call) string {
	if strings.HasPrefix(c.Rest, "quotas/"+quota.LeaseCount) {
		return quota.LeaseCount
	}
	return quota.RateLimit
}

func (q *Quotas) quotaNames(c *system.Call) (any, error) {
	names := []string{}
	for _, one := range c.Tables.Quotas.All() {
		if one.Type == quotaType(c) && one.Space == spaceOf(c) {
			names = append(names, one.Name)
		}
	}
	if len(names) == 0 {
		return nil, errkind.New(errkind.NotFound, "")
	}
	return map[string]any{"keys": names}, nil
}

func (q *Quotas) readQuota(c *system.Call) (any, error) {
	one := c.Tables.Quotas.FindIn(spaceOf(c), quotaType(c), c.Name)
	if one == nil {
		return nil, errkind.New(errkind.NotFound, "")
	}
	out := map[string]any{"name": one.Name, "type": one.Type, "path": one.Path[len(one.SpacePath):], "role": one.Role,
		"inheritable": one.Inheritable}
	if one.Type == quota.LeaseCount {
		out["max_leases"], out["counter"] = one.MaxLeases, one.Leases.Load()
	} else {
		out["rate"], out["interval"], out["block_interval"], out["group_by"] = one.Rate, task.Seconds(one.Interval),
			task.Seconds(one.Block), "ip"
	}
	return out, nil
}

// quotaRule reads a rule from a request, over the one of its name.
func (q *Quotas) quotaRule(c *system.Call) (quota.Rule, error) {
	r := quota.Rule{Name: c.Name, Type: quotaType(c), Interval: time.Second, Space: spaceOf(c),
		SpacePath: c.Tables.Path()}
	if old := c.Tables.Quotas.FindIn(r.Space, r.Type, r.Name); old != nil {
		r = old.Rule
		r.Path = r.Path[len(r.SpacePath):]
	}
	for name, at := range map[string]*string{"path": &r.Path, "role": &r.Role} {
		if c.F.Has(name) {
			*at = c.F.String(name)
		}
	}
	r.Inheritable = c.F.Bool("inheritable", r.Inheritable)
	if group := c.F.String("group_by"); group != "" && group != "ip" {
		return r, errkind.New(errkind.Invalid, "field \"group_by\": must be ip")
	}
	if r.Type == quota.LeaseCount {
		r.MaxLeases = int64(c.F.Int("max_leases", int(r.MaxLeases)))
	} else {
		r.Rate = c.F.Float("rate", r.Rate)
		r.Interval = c.F.Duration("interval", r.Interval)
		r.Block = c.F.Duration("block_interval", r.Block)
	}
	if err := c.F.Err(); err != nil {
		return r, err
	}
	if err := r.Check(); err != nil {
		return r, err
	}
	return r, q.checkQuotaPath(c, &r)
}

// checkQuotaPath makes the path of a rule that of its mount, and refuses what would hold for nothing.
func (q *Quotas) checkQuotaPath(c *system.Call, r *quota.Rule) error {
	r.Path = strings.TrimPrefix(r.Path, "/")
	if r.Path == "" && r.Role == "" && r.SpacePath == "" {
		return nil
	}
	if r.Path == "" && r.Role == "" {
		r.Path = r.SpacePath
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
		return errkind.Errorf(errkind.Invalid, "field \"role\": only rate limits of whole mounts of type %s go by role",
			strings.Join(rolesIn, " or "))
	}
	r.Path = r.SpacePath + r.Path
	for _, other := range c.Tables.Quotas.All() {
		if other.Type == r.Type && (other.Name != r.Name || other.Space != r.Space) &&
			other.Path == r.Path && other.Role == r.Role {
			return errkind.Errorf(errkind.Invalid, "quota rule with similar properties exists under the name %q", other.Name)
		}
	}
	return nil
}

func (q *Quotas) writeQuota(c *system.Call) (any, error) {
	rule, err := q.quotaRule(c)
	if err != nil {
		return nil, err
	}
	made := quota.New(rule)
	if rule.Type == quota.LeaseCount {
		if err := q.count(c, c.Tables, made); err != nil {
			return nil, err
		}
	}
	return nil, q.Gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		op, err := storage.PutJSON(ruleKey(rule.Space, rule.Type, rule.Name), rule)
		st.Quotas = quota.NewSet(st.Quotas.Settings, append(without(st.Quotas, rule.Space, rule.Type, rule.Name), made))
		return &st, []storage.Op{op}, err
	})
}

func (q *Quotas) deleteQuota(c *system.Call) (any, error) {
	kind := quotaType(c)
	space := spaceOf(c)
	key := ruleKey(space, kind, c.Name)
	if err := storage.CheckKey(key); err != nil || strings.Contains(c.Name, "/") {
		return nil, errkind.E(errkind.Invalid, "", cmp.Or(err, errSlash))
	}
	return nil, q.Gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		st.Quotas = quota.NewSet(st.Quotas.Settings, without(st.Quotas, space, kind, c.Name))
		return &st, []storage.Op{storage.Delete(key)}, nil
	})
}

func without(s *quota.Set, space, kind, name string) []*quota.Quota {
	return slices.DeleteFunc(slices.Clone(s.All()), func(q *quota.Quota) bool {
		return q.Space == space && q.Type == kind && q.Name == name
	})
}

var errSlash = errkind.New(errkind.Invalid, "field \"name\": must be one word")

// Ended gives the tables without the rules of a namespace, and what takes their records away.
func Ended(st *tables.Tables, space string) (*quota.Set, []storage.Op) {
	var ops []storage.Op
	kept := slices.DeleteFunc(slices.Clone(st.Quotas.All()), func(q *quota.Quota) bool {
		if q.Space == space {
			ops = append(ops, storage.Delete(ruleKey(q.Space, q.Type, q.Name)))
		}
		return q.Space == space
	})
	if len(ops) == 0 {
		return st.Quotas, nil
	}
	return quota.NewSet(st.Quotas.Settings, kept), ops
}
