package auditing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
	"corbel.dev/corbel/telemetry"
)

// auditPrefix is where devices are kept.
const auditPrefix = "core/audit/"

// Config is what a Broker is made of.
type Config struct {
	Rules    audit.Rules    // for devices that are made over the API
	Declared []audit.Config // by the configuration
	Version  string         // of all engines, as clients are told
	Now      func() time.Time
	Log      *slog.Logger
	Metrics  *telemetry.Registry
}

// Broker has requests and answers recorded, and answers for the devices. Which devices are open is part of the tables,
// whose changes follow each other; the declared ones change while nobody makes this server the active one.
type Broker struct {
	Config  Config
	gate    *tables.Gate
	records *sealed.Store
	took    [2]*telemetry.Timing // of requests, and of answers
	failed  [2]*telemetry.Counter
}

// New makes one. Its devices are opened with the tables.
func New(c Config, gate *tables.Gate, records *sealed.Store) *Broker {
	b := &Broker{Config: c, gate: gate, records: records}
	for i, name := range []string{"log_request", "log_response"} {
		b.took[i], b.failed[i] = c.Metrics.Timing("audit."+name), c.Metrics.Counter("audit."+name+"_failure")
	}
	return b
}

// Rows are the paths of sys/ that it answers.
func (b *Broker) Rows() []system.Row {
	return []system.Row{
		{Path: "audit", Read: b.audits},
		{Path: "audit/", Write: b.enableAudit, Del: b.disableAudit},
		{Path: "audit-hash/", Write: b.auditHash},
		{Path: "config/auditing/request-headers", Read: b.auditHeaderList},
		{Path: "config/auditing/request-headers/", Read: b.readAuditHeader, Write: b.writeAuditHeader,
			Del: b.deleteAuditHeader},
	}
}

// on reports whether anything is recorded.
func (b *Broker) on() bool {
	st := b.gate.Load()
	return st != nil && len(st.Audits) > 0
}

// Request has a request recorded before anything is done, together with why it is refused, where it is; then
// the refusal as well. It returns the refusal; recorded is false where the devices took nothing.
func (b *Broker) Request(ctx context.Context, t *task.Task, refusal error) (recorded bool, err error) {
	if !b.on() {
		return true, refusal
	}
	e := b.Entry(t, refusal)
	if err := b.Record(ctx, e); err != nil || refusal == nil {
		return err == nil, err
	}
	e.Answer, e.Time = true, b.Config.Now()
	return true, cmp.Or(b.Record(context.WithoutCancel(ctx), e), refusal)
}

// Answer has an answer recorded before it is given.
func (b *Broker) Answer(ctx context.Context, t *task.Task, reply *task.Reply, err error) error {
	if !b.on() {
		return nil
	}
	e := b.Entry(t, err)
	e.Answer, e.Time = true, b.Config.Now()
	if reply != nil {
		e.Response = Answered(reply)
	}
	return b.Record(context.WithoutCancel(ctx), e)
}

// errAudit is all that a client learns of devices that fail.
var errAudit = errkind.New(errkind.Internal, "internal error")

// Record has an entry recorded. Whoever finds all devices gone looks whether others took their place.
func (b *Broker) Record(ctx context.Context, e *audit.Entry) error {
	for {
		st := b.gate.Load()
		if st == nil || len(st.Audits) == 0 {
			return nil
		}
		begin, kind := time.Now(), 0
		if e.Answer {
			kind = 1
		}
		err := audit.Record(ctx, st.Audits, e)
		b.took[kind].Observe(time.Since(begin))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, audit.ErrClosed) && b.gate.Load() != st:
			continue
		}
		b.failed[kind].Add(1)
		return errAudit
	}
}

// Entry is a request as devices record it.
func (b *Broker) Entry(t *task.Task, err error) *audit.Entry {
	e := &audit.Entry{Time: t.Now, Request: t.Request, Mount: t.Entry, Version: b.Config.Version,
		HashHeaders: t.Tables.Headers}
	if err != nil {
		e.Error = errkind.Text(err)
	}
	if t.Bearer != nil {
		var identity []string
		if p := t.Bearer.Identity; p != nil && p.Persona != nil {
			identity = p.Policies
		}
		e.Auth = auditAuth(t.Token, t.Bearer.Token, identity)
		e.Auth.Uses = true
	}
	if t.Judged != nil {
		e.Auth.Decided, e.Auth.Allowed, e.Auth.Granting = true, t.Judged.Allowed, t.Judged.Granting
	}
	return e
}

func auditAuth(id string, t *token.Token, identity []string) audit.Auth {
	return audit.Auth{ID: id, Accessor: t.Accessor, DisplayName: t.DisplayName,
		Verdict:  audit.Verdict{Space: token.Space(t.Hash), Policies: t.Policies, Identity: identity},
		Metadata: t.Meta, Entity: t.Entity,
		Type: t.Type(), TTL: t.TTL, Issued: t.Created, NumUses: max(t.Uses, 0)}
}

// Answered is the answer as devices record it.
func Answered(r *task.Reply) *audit.Response {
	out := &audit.Response{}
	if r.Response != nil {
		out.Data, out.Warnings, out.Raw = r.Data, r.Warnings, r.Raw
	}
	if r.Token != nil {
		auth := auditAuth(r.Token.ID, r.Token.Token, r.Token.Identity)
		// Every token has the policy default, but for root's and those that were made without it.
		auth.NoDefault = !slices.Contains(auth.Policies, "default") && !slices.Contains(auth.Policies, policy.RootName)
		out.Auth = &auth
	}
	if r.Lease != nil {
		out.LeaseID = r.Lease.ID
	}
	if w := r.Wrap; w != nil {
		out.Wrap = &audit.Wrap{Token: w.Token, Accessor: w.Accessor, Wrapped: w.Wrapped, TTL: w.TTL, Created: w.Created,
			Path: w.Path}
	}
	return out
}

// Load is Open on the active server: stored devices are first made to fit those that the configuration declares.
func (b *Broker) Load(ctx context.Context, st *tables.Tables) error {
	if err := b.declare(ctx); err != nil {
		return err
	}
	return b.Open(ctx, st)
}

// Open starts the devices that are stored. They are opened when the first entry comes:
// one that cannot be is as one that fails.
func (b *Broker) Open(ctx context.Context, st *tables.Tables) error {
	if err := b.loadAuditHeaders(ctx, st); err != nil {
		return err
	}
	records, err := b.records.Scan(ctx, auditPrefix, storage.After(auditPrefix), 0)
	if err != nil {
		return err
	}
	for _, r := range records {
		c := &audit.Config{}
		if err = json.Unmarshal(r.Value, c); err == nil {
			rules := b.Config.Rules
			rules.Unsafe, rules.Prefix = true, true // they were judged when they were made
			var d *audit.Device
			if d, err = audit.Open(c, rules, b.Config.Log, b.Config.Metrics); err == nil {
				st.Audits = append(st.Audits, d)
				continue
			}
		}
		Close(st.Audits)
		return errkind.Errorf(errkind.Corrupt, "the audit device %s cannot be read: %w", r.Key, err)
	}
	return nil
}

// Close ends devices, all at once: each may take its time.
func Close(list []*audit.Device) {
	var all sync.WaitGroup
	for _, d := range list {
		all.Go(d.Close)
	}
	all.Wait()
}

// Reopen closes and opens what audit devices write to: logs were moved away.
func (b *Broker) Reopen() error {
	st := b.gate.Load()
	if st == nil {
		return nil
	}
	var errs []error
	for _, d := range st.Audits {
		errs = append(errs, d.Reopen())
	}
	return errors.Join(errs...)
}

func (b *Broker) audits(c *system.Call) (any, error) {
	out := map[string]any{}
	for _, d := range c.Tables.Audits {
		e := d.Config
		out[e.Path] = map[string]any{"path": e.Path, "type": e.Type, "description": e.Description, "options": e.Options,
			"local": e.Local}
	}
	return out, nil
}

func (b *Broker) enableAudit(c *system.Call) (any, error) {
	e := &audit.Config{Path: strings.Trim(c.Name, "/") + "/", Type: c.F.String("type"),
		Description: c.F.String("description"), Options: c.F.Texts("options"),
		Local: c.F.Bool("local", false), UUID: uuid.NewString(), Salt: token.NewSalt()}
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	if err := storage.CheckKey(auditPrefix + strings.TrimSuffix(e.Path, "/")); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	if e.Options == nil {
		e.Options = map[string]string{}
	}
	e.Accessor = tables.NewAccessor("audit_" + e.Type)
	d, err := audit.Open(e, b.Config.Rules, b.Config.Log, b.Config.Metrics)
	if err != nil {
		return nil, err
	}
	if err = d.Try(c, uuid.NewString(), c.Now); err == nil {
		err = b.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
			if slices.ContainsFunc(st.Audits, func(other *audit.Device) bool { return other.Config.Path == e.Path }) {
				return nil, nil, errkind.Errorf(errkind.Invalid, "path already in use")
			}
			op, err := storage.PutJSON(auditPrefix+e.UUID, e)
			st.Audits = append(slices.Clip(st.Audits), d)
			return &st, []storage.Op{op}, err
		})
	}
	if err != nil {
		d.Close()
	}
	return nil, err
}

func (b *Broker) disableAudit(c *system.Call) (any, error) {
	path := strings.Trim(c.Name, "/") + "/"
	var gone []*audit.Device
	err := b.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		gone = nil
		var ops []storage.Op
		kept := []*audit.Device{}
		for _, d := range st.Audits {
			if d.Config.Path == path && d.Config.Declared {
				return nil, nil, errkind.Errorf(errkind.Invalid,
					"the audit device %s is declared in the configuration: it goes when it is taken out there", path)
			}
			if d.Config.Path == path {
				gone, ops = append(gone, d), append(ops, storage.Delete(auditPrefix+d.Config.UUID))
			} else {
				kept = append(kept, d)
			}
		}
		st.Audits = kept
		return &st, ops, nil
	})
	if err == nil {
		Close(gone)
	}
	return nil, err
}

// auditHash is what a device shows in the place of a text, for who looks for it in a log.
func (b *Broker) auditHash(c *system.Call) (any, error) {
	input := c.F.String("input")
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	if input == "" {
		return nil, errkind.New(errkind.Invalid, "the \"input\" parameter is empty")
	}
	path := strings.Trim(c.Name, "/") + "/"
	for _, d := range c.Tables.Audits {
		if d.Config.Path == path {
			return map[string]any{"hash": d.Hash(input)}, nil
		}
	}
	return nil, errkind.Errorf(errkind.Invalid, "unknown audit backend %q", path)
}
