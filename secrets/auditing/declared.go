package auditing

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// CheckDeclared judges the audit devices of the configuration: two of one path, or options that nobody knows.
func CheckDeclared(list []audit.Config) error {
	for i := range list {
		if err := audit.Check(&list[i]); err != nil {
			return errkind.Errorf(errkind.Of(err), "audit %q %q: %s", list[i].Type, list[i].Path, errkind.Text(err))
		}
		for j := range i {
			if list[j].Path == list[i].Path {
				return errkind.Errorf(errkind.Invalid, "audit: there are two devices at %s", list[i].Path)
			}
		}
	}
	return nil
}

// declare makes the stored audit devices fit those of the configuration, before any of them is opened: what is new
// comes, what changed is changed (its hashes stay the same), what was declared once and is not any more goes. Devices
// that were made over the API stay, unless the configuration has one at their path.
func (b *Broker) declare(ctx context.Context) error {
	records, err := b.records.Scan(ctx, auditPrefix, storage.After(auditPrefix), 0)
	if err != nil {
		return err
	}
	have := map[string]*audit.Config{}
	for _, r := range records {
		c := &audit.Config{}
		if json.Unmarshal(r.Value, c) != nil {
			return errkind.Errorf(errkind.Corrupt, "the audit device %s cannot be read", r.Key)
		}
		have[c.Path] = c
	}
	var ops []storage.Op
	for i := range b.Config.Declared {
		want := b.Config.Declared[i]
		want.Declared = true
		old := have[want.Path]
		delete(have, want.Path)
		if old != nil {
			want.UUID, want.Accessor, want.Salt = old.UUID, old.Accessor, old.Salt
			if sameDevice(old, &want) {
				continue
			}
		} else {
			want.UUID, want.Accessor, want.Salt = uuid.NewString(), tables.NewAccessor("audit_"+want.Type), token.NewSalt()
		}
		op, err := storage.PutJSON(auditPrefix+want.UUID, &want)
		if err != nil {
			return err
		}
		ops = append(ops, op)
		b.Config.Log.Info("secrets: set up an audit device from the configuration", "path", want.Path, "type", want.Type)
	}
	for _, path := range slices.Sorted(maps.Keys(have)) {
		if old := have[path]; old.Declared {
			ops = append(ops, storage.Delete(auditPrefix+old.UUID))
			b.Config.Log.Info("secrets: removed an audit device that the configuration no longer declares", "path", path)
		}
	}
	return b.records.Commit(ctx, ops)
}

// Redeclare puts other devices in the place of those that the configuration declared. What stays as it is keeps
// its file open; on a server that is not the active one they are known for its next term. Wrong ones change nothing.
// It is called while nobody makes this server the active one.
func (b *Broker) Redeclare(ctx context.Context, list []audit.Config) error {
	if err := CheckDeclared(list); err != nil {
		return err
	}
	b.Config.Declared = list
	if b.gate.Load() == nil {
		return nil
	}
	var gone []*audit.Device
	err := b.gate.Change(ctx, func(st tables.Tables) (_ *tables.Tables, _ []storage.Op, err error) {
		if err := b.declare(ctx); err != nil {
			return nil, nil, err
		}
		fresh := &tables.Tables{}
		if err := b.Open(ctx, fresh); err != nil {
			return nil, nil, err
		}
		st.Audits, gone = goOn(st.Audits, fresh.Audits)
		return &st, nil, nil
	})
	Close(gone)
	return err
}

// goOn puts fresh devices in the place of old ones, but for those that are open already; it gives those to be closed.
func goOn(old, fresh []*audit.Device) (next, gone []*audit.Device) {
	open := map[string]*audit.Device{}
	for _, d := range old {
		open[d.Config.UUID] = d
	}
	for _, d := range fresh {
		same := open[d.Config.UUID]
		if same == nil || !sameDevice(same.Config, d.Config) {
			next = append(next, d)
			continue
		}
		gone = append(gone, d) // nothing was written through it: the one that is open goes on
		next = append(next, same)
		delete(open, d.Config.UUID)
	}
	return next, slices.AppendSeq(gone, maps.Values(open))
}

// sameDevice is whether two configurations mean one device.
func sameDevice(a, b *audit.Config) bool {
	return a.Declared == b.Declared && a.Path == b.Path && a.Type == b.Type && a.Description == b.Description &&
		a.Local == b.Local && maps.Equal(a.Options, b.Options)
}
