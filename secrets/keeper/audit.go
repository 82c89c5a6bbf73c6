package keeper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// auditPrefix is where devices are kept.
const auditPrefix = "core/audit/"

// errAudit is all that a client learns of devices that fail.
var errAudit = errkind.New(errkind.Internal, "internal error")

// record has an entry recorded. Whoever finds all devices gone looks whether others took their place.
func (k *Keeper) record(ctx context.Context, e *audit.Entry) error {
	for {
		st := k.gate.Load()
		if st == nil || len(st.Audits) == 0 {
			return nil
		}
		name, begin := "log_request", time.Now()
		if e.Answer {
			name = "log_response"
		}
		err := audit.Record(ctx, st.Audits, e)
		k.meters.audit[name].Observe(time.Since(begin))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, audit.ErrClosed) && k.gate.Load() != st:
			continue
		}
		k.meters.auditFailed[name].Add(1)
		return errAudit
	}
}

// audited has the request recorded before anything is done, together with why it is refused, where it is; then
// the refusal as well. It returns the refusal.
func (k *Keeper) audited(ctx context.Context, t *task.Task, refusal error) error {
	if !k.audits() {
		return refusal
	}
	e := k.entryOf(t, refusal)
	if err := k.record(ctx, e); err != nil || refusal == nil {
		if err != nil && t.Used {
			k.unuse(context.WithoutCancel(ctx), t)
		}
		return err
	}
	e.Answer, e.Time = true, k.cfg.Now()
	return cmp.Or(k.record(context.WithoutCancel(ctx), e), refusal)
}

func (k *Keeper) audits() bool {
	st := k.gate.Load()
	return st != nil && len(st.Audits) > 0
}

// answered answers a request, and has the answer recorded before it is given.
func (k *Keeper) answered(ctx context.Context, t *task.Task) (*task.Reply, error) {
	reply, err := k.run(ctx, t)
	if !k.audits() {
		return reply, err
	}
	e := k.entryOf(t, err)
	e.Answer, e.Time = true, k.cfg.Now()
	if reply != nil {
		e.Response = auditedReply(reply)
	}
	if failed := k.record(context.WithoutCancel(ctx), e); failed != nil {
		return nil, failed
	}
	return reply, err
}

func (k *Keeper) entryOf(t *task.Task, err error) *audit.Entry {
	e := &audit.Entry{Time: t.Now, Request: t.Request, Mount: t.Entry, Version: k.running, HashHeaders: t.Tables.Headers}
	if err != nil {
		e.Error = errkind.Text(err)
	}
	if t.Bearer != nil {
		var identity []string
		if p := t.Bearer.Person; p != nil && p.Persona != nil {
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
	return audit.Auth{ID: id, Accessor: t.Accessor, DisplayName: t.DisplayName, Policies: t.Policies, Identity: identity,
		Metadata: t.Meta, Entity: t.Entity,
		Type: t.Type(), TTL: t.TTL, Issued: t.Created, NumUses: max(t.Uses, 0)}
}

// auditedReply is the answer as devices record it.
func auditedReply(r *task.Reply) *audit.Response {
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

// openAudits starts the devices that are stored. They are opened when the first entry comes:
// one that cannot be is as one that fails.
func (k *Keeper) openAudits(ctx context.Context, st *tables.Tables) error {
	if err := k.loadAuditHeaders(ctx, st); err != nil {
		return err
	}
	records, err := k.records.Scan(ctx, auditPrefix, storage.After(auditPrefix), 0)
	if err != nil {
		return err
	}
	for _, r := range records {
		c := &audit.Config{}
		if err = json.Unmarshal(r.Value, c); err == nil {
			rules := k.cfg.Audit
			rules.Unsafe, rules.Prefix = true, true // they were judged when they were made
			var d *audit.Device
			if d, err = audit.Open(c, rules, k.cfg.Log, k.cfg.Metrics); err == nil {
				st.Audits = append(st.Audits, d)
				continue
			}
		}
		closeAudits(st.Audits)
		return errkind.Errorf(errkind.Corrupt, "the audit device %s cannot be read: %w", r.Key, err)
	}
	return nil
}

// closeAudits ends devices, all at once: each may take its time.
func closeAudits(list []*audit.Device) {
	var all sync.WaitGroup
	for _, d := range list {
		all.Go(d.Close)
	}
	all.Wait()
}

// ReopenAudits closes and opens what audit devices write to: logs were moved away.
func (k *Keeper) ReopenAudits() error {
	st := k.gate.Load()
	if st == nil {
		return nil
	}
	var errs []error
	for _, d := range st.Audits {
		errs = append(errs, d.Reopen())
	}
	return errors.Join(errs...)
}

func (s *system) audits(c *sysCall) (any, error) {
	out := map[string]any{}
	for _, d := range c.Tables.Audits {
		e := d.Config
		out[e.Path] = map[string]any{"path": e.Path, "type": e.Type, "description": e.Description, "options": e.Options,
			"local": e.Local}
	}
	return out, nil
}

func (s *system) enableAudit(c *sysCall) (any, error) {
	e := &audit.Config{Path: strings.Trim(c.name, "/") + "/", Type: c.f.String("type"),
		Description: c.f.String("description"), Options: c.f.Texts("options"),
		Local: c.f.Bool("local", false), UUID: uuid.NewString(), Salt: token.NewSalt()}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if err := storage.CheckKey(auditPrefix + strings.TrimSuffix(e.Path, "/")); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	if e.Options == nil {
		e.Options = map[string]string{}
	}
	e.Accessor = fmt.Sprintf("audit_%s_%x", e.Type, random(4))
	d, err := audit.Open(e, s.k.cfg.Audit, s.k.cfg.Log, s.k.cfg.Metrics)
	if err != nil {
		return nil, err
	}
	if err = d.Try(c, uuid.NewString(), c.Now); err == nil {
		err = s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
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

func (s *system) disableAudit(c *sysCall) (any, error) {
	path := strings.Trim(c.name, "/") + "/"
	var gone []*audit.Device
	err := s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
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
		closeAudits(gone)
	}
	return nil, err
}

// auditHash is what a device shows in the place of a text, for who looks for it in a log.
func (s *system) auditHash(c *sysCall) (any, error) {
	input := c.f.String("input")
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if input == "" {
		return nil, errkind.New(errkind.Invalid, "the \"input\" parameter is empty")
	}
	path := strings.Trim(c.name, "/") + "/"
	for _, d := range c.Tables.Audits {
		if d.Config.Path == path {
			return map[string]any{"hash": d.Hash(input)}, nil
		}
	}
	return nil, errkind.Errorf(errkind.Invalid, "unknown audit backend %q", path)
}
