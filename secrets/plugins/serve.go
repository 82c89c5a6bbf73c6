package plugins

import (
	"context"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/plugins/message"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/tables"
)

// service answers a call that a plug-in makes of the server.
type service func(ctx context.Context, i *instance, raw []byte) (any, error)

// of makes a service of a function of its argument.
func of[T any](answer func(ctx context.Context, i *instance, in *T) (any, error)) service {
	return func(ctx context.Context, i *instance, raw []byte) (any, error) {
		in := new(T)
		if err := message.Unmarshal(raw, in); err != nil {
			return nil, errkind.E(errkind.Invalid, "", err)
		}
		return answer(ctx, i, in)
	}
}

// says makes a service of what is always answered.
func says(reply any) service {
	return func(context.Context, *instance, []byte) (any, error) { return reply, nil }
}

var services = map[string]service{
	message.StorageList:   of(storageList),
	message.StorageGet:    of(storageGet),
	message.StoragePut:    of(storagePut),
	message.StorageDelete: of(storageDelete),

	message.DefaultLeaseTTL: of(func(_ context.Context, i *instance, _ *message.Empty) (any, error) {
		return &message.TTLReply{TTL: int64(i.p.gate.Limits(i.entry.Load()).Default)}, nil
	}),
	message.MaxLeaseTTL: of(func(_ context.Context, i *instance, _ *message.Empty) (any, error) {
		return &message.TTLReply{TTL: int64(i.p.gate.Limits(i.entry.Load()).Max)}, nil
	}),
	message.LocalMount: of(func(_ context.Context, i *instance, _ *message.Empty) (any, error) {
		return &message.BoolReply{Yes: i.entry.Load().Local}, nil
	}),
	message.Tainted:          says(&message.BoolReply{}),
	message.CachingDisabled:  says(&message.BoolReply{}),
	message.MlockEnabled:     says(&message.BoolReply{}),
	message.ReplicationState: says(&message.StateReply{State: message.Replicated}),
	message.ResponseWrapData: says(&message.WrapReply{
		Err: "this server wraps no data of plug-ins: clients ask for it with X-Vault-Wrap-TTL"}),
	message.EntityInfo:       of(entityInfo),
	message.GroupsForEntity:  of(groupsFor),
	message.GeneratePassword: of(password),
	message.PluginEnv: of(func(_ context.Context, i *instance, _ *message.Empty) (any, error) {
		return &message.EnvReply{Environment: &message.Environment{Version: i.p.Version}}, nil
	}),
	message.ClusterInfo: of(func(_ context.Context, i *instance, _ *message.Empty) (any, error) {
		name, id := i.p.Cluster()
		return &message.ClusterReply{Name: name, ID: id}, nil
	}),
	// Nobody can subscribe to events here: as where nobody does, they are taken and go nowhere.
	message.SendEvent:         says(&message.Empty{}),
	message.RecordObservation: says(&message.Empty{}),
}

// serve answers what the process asks of the server. An error of kind NotFound says that there is no such service.
func (i *instance) serve(ctx context.Context, method string, raw []byte) (any, error) {
	answer := services[method]
	if answer == nil {
		name := method[strings.LastIndexByte(method, '/')+1:]
		return nil, errkind.Errorf(errkind.NotFound, "this server has no %s for plug-ins", name)
	}
	ctx, cancel := context.WithTimeout(ctx, serveWithin)
	defer cancel()
	defer context.AfterFunc(i.ctx, cancel)()
	reply, err := answer(ctx, i, raw)
	if errkind.Is(err, errkind.NotFound) { // what was asked for, not the service
		err = errkind.E(errkind.Invalid, "", err)
	}
	return reply, err
}

// enter is the gate of what touches records: it is open in the term that started the process alone.
func (i *instance) enter(ctx context.Context) (v sealed.View, st *tables.Tables, leave func(), err error) {
	st, leave, err = i.p.gate.Enter(ctx)
	if err != nil {
		return v, nil, nil, err
	}
	switch {
	case i.ctx.Err() != nil:
		err = errEnds
	case !i.p.here(st, i.entry.Load()):
		err = errGone
	}
	if err != nil {
		leave()
		return v, nil, nil, err
	}
	return i.p.records.At(i.entry.Load().Prefix()), st, leave, nil
}

// textOf is an error as a plug-in is told of it.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// folder is a prefix as storage takes it: a folder's name ends in '/'.
func folder(prefix string) string {
	if prefix == "" || strings.HasSuffix(prefix, "/") {
		return prefix
	}
	return prefix + "/"
}

func storageList(ctx context.Context, i *instance, in *message.StorageKey) (any, error) {
	v, _, leave, err := i.enter(ctx)
	if err != nil {
		return &message.StorageKeys{Err: textOf(err)}, nil
	}
	defer leave()
	keys, err := v.List(ctx, folder(in.Key), "", 0)
	return &message.StorageKeys{Keys: keys, Err: textOf(err)}, nil
}

func storageGet(ctx context.Context, i *instance, in *message.StorageKey) (any, error) {
	v, _, leave, err := i.enter(ctx)
	if err != nil {
		return &message.StorageValue{Err: textOf(err)}, nil
	}
	defer leave()
	value, ok, err := v.Get(ctx, in.Key)
	if err != nil || !ok {
		return &message.StorageValue{Err: textOf(err)}, nil
	}
	return &message.StorageValue{Entry: &message.StorageEntry{Key: in.Key, Value: value}}, nil
}

func storagePut(ctx context.Context, i *instance, in *message.StorageWrite) (any, error) {
	if in.Entry == nil {
		return &message.StorageDone{Err: "the entry is missing"}, nil
	}
	return i.write(ctx, secrets.Op{Key: in.Entry.Key, Value: append([]byte{}, in.Entry.Value...)}), nil
}

func storageDelete(ctx context.Context, i *instance, in *message.StorageKey) (any, error) {
	return i.write(ctx, secrets.Op{Key: in.Key}), nil
}

func (i *instance) write(ctx context.Context, op secrets.Op) *message.StorageDone {
	v, _, leave, err := i.enter(ctx)
	if err == nil {
		defer leave()
		err = i.commit(ctx, v, op)
	}
	return &message.StorageDone{Err: textOf(err), Index: &message.WALIndex{}}
}

// commit stores for a mount that is there until it is stored: see Settle.
func (i *instance) commit(ctx context.Context, v sealed.View, op secrets.Op) error {
	ops, err := v.Ops([]secrets.Op{op})
	if err != nil {
		return err
	}
	i.p.storing.RLock()
	defer i.p.storing.RUnlock()
	if st := i.p.gate.Load(); st == nil || !i.p.here(st, i.entry.Load()) {
		return errGone
	}
	return i.p.records.Commit(ctx, ops)
}

// persona is an entity of the mount's namespace; nil where there is none.
func (i *instance) persona(ctx context.Context, id string) (*identity.Persona, error) {
	_, st, leave, err := i.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if st = st.In(i.entry.Load().Space); st == nil || st.Identities == nil {
		return nil, nil
	}
	return st.Identities.Resolve(ctx, id)
}

func entityInfo(ctx context.Context, i *instance, in *message.EntityArgs) (any, error) {
	p, err := i.persona(ctx, in.ID)
	if err != nil || p == nil {
		return &message.EntityReply{Err: textOf(err)}, nil
	}
	out := &message.Entity{ID: p.Entity.ID, Name: p.Entity.Name, Metadata: p.Entity.Meta, Disabled: p.Entity.Disabled}
	for _, a := range p.Entity.Aliases {
		out.Aliases = append(out.Aliases, &message.Alias{ID: a.ID, Name: a.Name, MountAccessor: a.Mount, Metadata: a.Meta})
	}
	return &message.EntityReply{Entity: out}, nil
}

func groupsFor(ctx context.Context, i *instance, in *message.EntityArgs) (any, error) {
	p, err := i.persona(ctx, in.ID)
	if err != nil || p == nil {
		return &message.GroupsReply{Err: textOf(err)}, nil
	}
	out := &message.GroupsReply{}
	for _, g := range append(p.Direct, p.Inherited...) {
		out.Groups = append(out.Groups, &message.Group{ID: g.ID, Name: g.Name, Metadata: g.Meta})
	}
	return out, nil
}

func password(ctx context.Context, i *instance, in *message.PasswordArgs) (any, error) {
	_, _, leave, err := i.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	text, err := i.p.Password(ctx, i.entry.Load().Base, in.Policy)
	return &message.PasswordReply{Password: text}, err
}
