package census

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/leases"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
	"corbel.dev/corbel/telemetry"
)

// Rules say how the gauges of tokens, leases, entities and secrets are counted. Zero values are Vault's
// defaults; the comment of each names its key in the configuration's telemetry stanza.
type Rules struct {
	Every      time.Duration // usage_gauge_period [10 min]; negative: they are not
	Most       int           // maximum_gauge_cardinality [500]: series of one name, the greatest values
	Epsilon    time.Duration // lease_metrics_epsilon [1 h]: the width of an interval of expire.leases.by_expiration
	Buckets    int           // num_lease_metrics_buckets [168]: intervals from now on
	Namespaces bool          // add_lease_metrics_namespace_labels
}

func (u *Rules) Complete() {
	u.Every, u.Most = cmp.Or(u.Every, 10*time.Minute), cmp.Or(u.Most, 500)
	u.Epsilon, u.Buckets = cmp.Or(u.Epsilon, time.Hour), cmp.Or(u.Buckets, 168)
}

const (
	usageFirst = time.Minute // after a start: what it has to do comes first
	usageShare = 20          // a count rests for at least so many times what it took
	usageNames = 20_000      // label sets of one name that a count remembers
)

// Gauges are the names that a count sets.
var Gauges = []string{"token.count", "token.count.by_policy", "token.count.by_ttl", "token.count.by_auth",
	"expire.num_leases", "expire.num_irrevocable_leases",
	"expire.leases.by_expiration", "secret.kv.count", "identity.entity.count", "identity.entity.alias.count",
	"identity.num_entities"}

// Census counts what there is, from time to time, on the active server alone. It walks over the records in small steps
// beside requests (flight.Bulk), so a count is of no one moment.
type Census struct {
	gate    *tables.Gate
	records *sealed.Store
	flying  *flight.List
	rules   Rules
	now     func() time.Time
	log     *slog.Logger
	cluster func() string
	sets    map[string]*telemetry.GaugeSet // nil: nobody reads them
	next    time.Time                      // of Measure; zero: this is not the active server

	mu      sync.Mutex // held while tokens and leases are counted by role; guards what follows
	counted *attributed
	past    past
}

// New makes one.
func New(rules Rules, gate *tables.Gate, records *sealed.Store, flying *flight.List, now func() time.Time,
	log *slog.Logger, cluster func() string, r *telemetry.Registry) *Census {
	o := &Census{gate: gate, records: records, flying: flying, rules: rules, now: now, log: log, cluster: cluster}
	if r == nil || rules.Every < 0 {
		return o
	}
	o.sets = map[string]*telemetry.GaugeSet{}
	for _, name := range Gauges {
		o.sets[name] = r.GaugeSet(name)
	}
	return o
}

// Rows are the paths of sys/ that it answers.
func (o *Census) Rows() []system.Row {
	return []system.Row{
		{Path: "leases/attribution", Read: o.attribution},
	}
}

// Measure counts where it is time to, and says how many counts it made. One goroutine's.
func (o *Census) Measure(ctx context.Context) (int, error) {
	if o.sets == nil {
		return 0, nil
	}
	now, st := o.now(), o.gate.Load()
	switch {
	case st == nil && o.next.IsZero():
		return 0, nil
	case st == nil: // another server tells of it now
		o.next = time.Time{}
		o.publish(&census{})
		return 0, nil
	case o.next.IsZero():
		o.next = now.Add(min(usageFirst, o.rules.Every))
	}
	if now.Before(o.next) {
		return 0, nil
	}
	c, err := o.Count(ctx, now)
	if o.gate.Load() == nil || ctx.Err() != nil {
		return 0, nil // the next turn takes the gauges away
	}
	took := o.now().Sub(now)
	o.next = now.Add(took + max(o.rules.Every-took, usageShare*took))
	if err != nil {
		o.log.Warn("secrets: cannot count tokens, leases and secrets; the gauges keep their values", "again", o.next,
			"error", err)
		return 0, nil
	}
	o.publish(c)
	return 1, nil
}

func (o *Census) publish(c *census) {
	for name, set := range o.sets {
		set.Replace(c.points(name, o.rules.Most))
	}
}

// census is one count: by name, then by labels, joined by zero bytes.
type census struct {
	cluster string
	By      map[string]map[string]int
}

// add counts n under labels beside those that all gauges have. Beyond usageNames, new labels are not counted.
func (c *census) add(name string, n int, labels ...string) {
	m := c.By[name]
	if m == nil {
		m = map[string]int{}
		c.By[name] = m
	}
	key := strings.Join(labels, "\x00")
	if _, known := m[key]; known || len(m) < usageNames {
		m[key] += n
	}
}

// points are the values of a name, the most that are wanted.
func (c *census) points(name string, most int) (list []telemetry.Point) {
	m := c.By[name]
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), strings.Compare(a, b))
	})
	for _, key := range keys[:min(len(keys), most)] {
		p := telemetry.Point{Value: float64(m[key]), Labels: []string{"cluster", c.cluster}}
		if key != "" {
			p.Labels = append(p.Labels, strings.Split(key, "\x00")...)
		}
		list = append(list, p)
	}
	return list
}

// SpaceLabel is the label of a namespace, by its id; "" is the root one. All others share one: there may be thousands,
// and each label of each metric costs memory here and where it is stored.
func SpaceLabel(id string) string {
	if id == "" || id == "root" {
		return "root"
	}
	return "other"
}

// rootNamespace is the label of what lies in the root namespace.
var rootNamespace = []string{"namespace", "root"}

func inRoot(labels ...string) []string { return append(slices.Clone(rootNamespace), labels...) }

// ttlNames are the classes of creation TTLs: the first that is not shorter.
var ttlNames = []struct {
	most time.Duration
	name string
}{{time.Minute, "1m"}, {10 * time.Minute, "10m"}, {20 * time.Minute, "20m"}, {time.Hour, "1h"}, {2 * time.Hour, "2h"},
	{24 * time.Hour, "1d"}, {48 * time.Hour, "2d"},
	{7 * 24 * time.Hour, "7d"}, {30 * 24 * time.Hour, "30d"}}

// TTLName is a creation TTL's class; 0 never ends.
func TTLName(ttl time.Duration) string {
	for _, c := range ttlNames {
		if ttl > 0 && ttl <= c.most {
			return c.name
		}
	}
	return "+Inf"
}

// Count walks over all that usageGauges tell of.
func (o *Census) Count(ctx context.Context, now time.Time) (*census, error) {
	st := o.gate.Load()
	if st == nil {
		return nil, o.gate.Idle()
	}
	c := &census{cluster: o.cluster(), By: map[string]map[string]int{}}
	for _, name := range []string{"token.count", "identity.entity.count"} {
		c.add(name, 0, rootNamespace...)
	}
	for _, name := range []string{"expire.num_leases", "expire.num_irrevocable_leases", "identity.num_entities"} {
		c.add(name, 0)
	}
	b := o.flying.Bulk()
	err := o.walk(ctx, b, token.Records, true, func(r storage.Record) { o.countToken(st, c, r, now) })
	if err == nil {
		err = o.walk(ctx, b, token.LeasePrefix, true, func(r storage.Record) { o.countLease(c, r, now) })
	}
	if err == nil && st.IdentitiesPrefix != "" {
		err = o.walk(ctx, b, st.IdentitiesPrefix+identity.Entities, true, func(r storage.Record) { countEntity(st, c, r) })
	}
	for _, e := range st.Mounts.All() {
		if e.Type != "kv" || err != nil {
			continue
		}
		prefix, labels := e.Prefix(), inRoot("mount_point", e.Path)
		if e.Options["version"] == "2" {
			prefix += "meta/"
		}
		c.add("secret.kv.count", 0, labels...)
		err = o.walk(ctx, b, prefix, false, func(storage.Record) { c.add("secret.kv.count", 1, labels...) })
	}
	return c, err
}

// walk calls each with every record below a prefix, in steps of a bulk. Where open is set they are opened, and those
// that do not open, such as marks of indexes, are left out.
func (o *Census) walk(ctx context.Context, b *flight.Bulk, prefix string, open bool, each func(storage.Record)) error {
	for from, end := prefix, storage.After(prefix); ; b.Rest(ctx) {
		next, err := o.walkSome(ctx, b, from, end, open, each)
		if err != nil || next == "" {
			return err
		}
		from = next
	}
}

// walkSome is one step of walk; next is "" at the end.
func (o *Census) walkSome(ctx context.Context, b *flight.Bulk, from, end string, open bool,
	each func(storage.Record)) (next string, err error) {
	_, leave, err := o.gate.Enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	asked := o.now()
	records, err := o.records.Under.Scan(ctx, from, end, b.Size)
	if err != nil || len(records) == 0 {
		return "", err
	}
	waited := o.now().Sub(asked)
	for _, r := range records {
		if open {
			if r.Value, err = o.records.Barrier.OpenText(r.Key, r.Value); err != nil {
				continue
			}
		}
		each(r)
	}
	b.Worked = o.now().Sub(b.Step) - waited
	return records[len(records)-1].Key + "\x00", nil
}

func (o *Census) countToken(st *tables.Tables, c *census, r storage.Record, now time.Time) {
	t, err := token.Decode(r)
	if err != nil || t.Expired(now) {
		return
	}
	kind, space := "", SpaceLabel(token.Space(t.Hash))
	within := func(labels ...string) []string { return append([]string{"namespace", space}, labels...) }
	if _, e, _ := st.Route(t.Path); e != nil {
		kind = e.Type
	}
	c.add("token.count", 1, within()...)
	c.add("token.count.by_auth", 1, within("auth_method", kind)...)
	c.add("token.count.by_ttl", 1, within("creation_ttl", TTLName(t.TTL))...)
	for _, name := range t.Policies {
		c.add("token.count.by_policy", 1, within("policy", name)...)
	}
	if !t.Expires.IsZero() {
		o.countEnd(c, t.Expires, now)
	}
}

// countLease counts a lease of an engine; a token's is counted with it.
func (o *Census) countLease(c *census, r storage.Record, now time.Time) {
	var l struct {
		Expires time.Time `json:"expire_time"`
		Tries   int       `json:"tries"`
	}
	if json.Unmarshal(r.Value, &l) != nil {
		return
	}
	if l.Tries >= leases.Tries {
		c.add("expire.num_irrevocable_leases", 1)
		return
	}
	o.countEnd(c, l.Expires, now)
}

// countEnd counts what ends at a time, by the interval that it lies in; the label is the interval's end.
func (o *Census) countEnd(c *census, at, now time.Time) {
	c.add("expire.num_leases", 1)
	u := &o.rules
	first, own := now.Truncate(u.Epsilon), at.Truncate(u.Epsilon)
	if own.Before(first) || own.Sub(first) >= time.Duration(u.Buckets)*u.Epsilon {
		return
	}
	labels := []string{"expiring", own.Add(u.Epsilon).UTC().Format(time.RFC3339)}
	if u.Namespaces {
		labels = append(labels, rootNamespace...)
	}
	c.add("expire.leases.by_expiration", 1, labels...)
}

func countEntity(st *tables.Tables, c *census, r storage.Record) {
	mounts, err := identity.AliasMounts(r.Value)
	if err != nil {
		return
	}
	c.add("identity.num_entities", 1)
	c.add("identity.entity.count", 1, rootNamespace...)
	for _, accessor := range mounts {
		e := st.Mounts.ByAccessor(accessor)
		if e == nil {
			e = &mount.Entry{}
		}
		c.add("identity.entity.alias.count", 1, inRoot("auth_method", e.Type, "mount_point", e.Path)...)
	}
}
