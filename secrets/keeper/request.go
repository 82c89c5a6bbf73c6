package keeper

import (
	"context"
	"errors"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/telemetry"
)

// Handle answers one request. Errors have kinds; their text is what clients are told.
func (k *Keeper) Handle(ctx context.Context, r *secrets.Request) (*task.Reply, error) {
	st, leave, err := k.gate.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	begin := time.Now()
	t := k.newTask(st, r)
	defer k.flying.Begin(&t.Flight).End(&t.Flight)
	if err := k.admit(ctx, t); err != nil {
		return nil, err
	}
	if err := locked(t); err != nil {
		return nil, k.audited(ctx, t, err)
	}
	if t.Entry == nil {
		return nil, k.audited(ctx, t, k.noRoute(ctx, t))
	}
	ctx = telemetry.WithAccount(ctx, &t.Account)
	defer k.serial.Take(t.Name())()
	special, asleep := awake(ctx, t)
	if asleep != nil && t.Token == "" {
		return nil, k.audited(ctx, t, errAsleep)
	}
	if !engine.Matches(special.Open, r.Rest) && (r.Token != "" || !engine.Matches(special.Visible, r.Rest)) {
		err = k.authorise(ctx, t, special)
		judged := time.Since(begin)
		t.Account.Spent[telemetry.StageToken] = judged
		k.meters.checkToken.Observe(judged)
	}
	if err == nil {
		err = asleep // which of its paths need sudo is not known either
	}
	var reply *task.Reply
	if err = k.audited(ctx, t, err); err == nil {
		reply, err = k.answered(ctx, t)
	}
	if errkind.Is(err, errkind.Overloaded) {
		k.meters.costs.Shed()
	}
	k.meters.done(ctx, t, begin, reply)
	if t.Last {
		k.tokens.EndLast(ctx, t)
	}
	return reply, err
}

// newTask routes a request.
func (k *Keeper) newTask(st *tables.Tables, r *secrets.Request) *task.Task {
	if r.Now.IsZero() {
		r.Now = k.cfg.Now()
	}
	in, path, ok := st.Resolve(r.Space, r.Path)
	t := &task.Task{Request: r, Tables: in, Flight: flight.Entry{Request: r, Method: r.Op.String()}}
	if !ok {
		t.Nowhere = true
		return t
	}
	st, r.Path, r.Space, r.SpaceID = in, path, in.Path(), in.SpaceID()
	if t.Entry, r.Rest = st.Mounts.Route(r.Path); t.Entry != nil {
		r.Mount = t.Entry.Path
		t.Engine, t.View = st.Engines[t.Entry.Accessor], k.records.At(t.Entry.Prefix())
	}
	return t
}

// errAsleep refuses who shows no token at a mount whose plug-in does not run; why is not for everybody.
var errAsleep = errkind.New(errkind.Unavailable, "the plug-in of this mount does not run at the moment: try again")

// awake says which paths are special, and starts the plug-in of a mount that has one first: while it cannot be started
// nothing is open, and nobody is answered.
func awake(ctx context.Context, t *task.Task) (engine.Special, error) {
	if waker, ok := t.Engine.(engine.Waker); ok {
		return waker.Wake(ctx)
	}
	return t.Engine.Special(), nil
}

// locked refuses what is asked in a locked namespace, but to unlock it.
func locked(t *task.Task) error {
	if t.Tables.Locked == nil || t.Entry != nil && t.Entry.Type == "system" &&
		strings.HasPrefix(t.Rest, "namespaces/api-lock/unlock") {
		return nil
	}
	return errkind.Errorf(errkind.Unavailable, "API access to this namespace has been locked by an administrator - %q "+
		"must be unlocked to gain access.", t.Tables.Locked.Path)
}

// audited has the request recorded before anything is done, with why it is refused, where it is. It returns the
// refusal.
func (k *Keeper) audited(ctx context.Context, t *task.Task, refusal error) error {
	recorded, err := k.audits.Request(ctx, t, refusal)
	if !recorded && t.Used {
		k.tokens.Unuse(context.WithoutCancel(ctx), t)
	}
	return err
}

// answered answers a request, and has the answer recorded before it is given.
func (k *Keeper) answered(ctx context.Context, t *task.Task) (*task.Reply, error) {
	reply, err := k.run(ctx, t)
	if failed := k.audits.Answer(ctx, t, reply, err); failed != nil {
		return nil, failed
	}
	return reply, err
}

// admit judges a request by the rate limits.
func (k *Keeper) admit(ctx context.Context, t *task.Task) error {
	err := k.owners.quotas.Admit(t)
	if err != nil && t.Tables.Quotas.AuditRefusals {
		return k.audited(ctx, t, err)
	}
	return err
}

// noRoute is the answer to a path without a mount: who has no right there learns nothing of mounts.
func (k *Keeper) noRoute(ctx context.Context, t *task.Task) error {
	h, err := k.rights.Known(ctx, t.Tables, t.Token, t.Now, t.Remote)
	if err != nil {
		return err
	}
	path := h.At(t.Tables, t.Path)
	if t.Nowhere { // as the same path without the header is
		from, within := strings.CutPrefix(t.FromRoot(), h.Space)
		if path = from; !within {
			return rights.ErrDenied
		}
	}
	if !h.ACL.Allow(&policy.Request{Path: path, Need: t.Op.Need()}).Allowed {
		return rights.ErrDenied
	}
	if t.Nowhere && t.Space != "" {
		return errkind.Errorf(errkind.NotFound, "namespace not found: there is no namespace %q", t.Space)
	}
	return errkind.Errorf(errkind.NotFound, "no handler for route %q. route entry not found.", t.Path)
}

// authorise finds the token and judges the request by its policies. A token with
// a limited number of uses has one less afterwards, also when it is denied.
func (k *Keeper) authorise(ctx context.Context, t *task.Task, special engine.Special) (err error) {
	begin := time.Now()
	t.Bearer, err = k.rights.Known(ctx, t.Tables, t.Token, t.Now, t.Remote)
	k.meters.authorise.Observe(time.Since(begin))
	if err != nil {
		return err
	}
	t.Request.Holder, t.Whose = t.Bearer.DisplayName, t.Bearer.Entity
	if p := t.Bearer.Identity; p != nil && p.Persona != nil {
		t.Who = p.Persona
	}
	if t.Bearer.Uses != 0 {
		if err := k.tokens.Use(ctx, t); err != nil {
			return err
		}
	}
	if special.Personal {
		t.View = t.View.Below(t.Bearer.Hash + "/")
	}
	if engine.Matches(special.Token, t.Rest) {
		return nil
	}
	if t.Op == secrets.Create || t.Op == secrets.Update {
		t.Op = secrets.Update
		exists, tells, err := t.Engine.Exists(ctx, &t.View, t.Request)
		if err != nil {
			return err
		}
		if tells && !exists {
			t.Op = secrets.Create
		}
	}
	q := policy.Request{Path: t.Bearer.At(t.Tables, t.Path), Need: t.Op.Need(), Wrap: t.Wrap,
		Protected: engine.Matches(special.Protected, t.Rest)}
	if t.Op == secrets.List || t.Op == secrets.Scan {
		q.Path = strings.TrimSuffix(q.Path, "/") + "/"
	}
	if t.Bearer.ACL.AsksParameters() {
		f, err := t.Fields()
		if err != nil {
			return err
		}
		q.Data = f.Plain()
	}
	verdict := t.Bearer.ACL.Allow(&q)
	t.Judged = &verdict
	if !verdict.Allowed {
		return rights.ErrDenied
	}
	return nil
}

// run lets the engine answer, commits what it wants stored, and makes its token.
func (k *Keeper) run(ctx context.Context, t *task.Task) (answer *task.Reply, err error) {
	var resp *secrets.Response
	if t.Op == secrets.Scan {
		resp, err = scan(ctx, t)
	} else {
		resp, err = t.Handle(ctx, t.Request)
		if alone := engine.Alone(""); errors.As(err, &alone) {
			defer k.serial.Take(t.Entry.Accessor + "\x00" + string(alone))()
			t.Alone = true
			resp, err = t.Handle(ctx, t.Request)
		}
	}
	for err == nil && resp.Then != nil {
		resp, err = k.step(ctx, t, resp)
	}
	if err == nil && (t.Op == secrets.List || t.Op == secrets.Scan) {
		err = page(t.Request, resp)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		for _, giveBack := range t.GiveBack {
			giveBack()
		}
		if resp.Lease != nil {
			k.leases.Undo(ctx, t, resp.Lease)
		}
	}()
	ops, err := t.View.Ops(resp.Ops)
	if err != nil {
		return nil, err
	}
	reply := &task.Reply{Response: resp, Lease: t.Left.Leased, Wrap: t.Left.Wrap, Mount: t.Entry}
	if reply.Token, err = k.renewed(ctx, t); err != nil {
		return nil, err
	}
	if resp.Auth != nil {
		more, release, err := issue(ctx, k, t, resp, reply)
		if err != nil {
			return nil, err
		}
		defer release()
		ops = append(ops, more...)
	}
	if resp.Lease != nil && resp.Auth == nil {
		more, release, err := k.leases.Grant(ctx, t, reply)
		if err != nil {
			return nil, err
		}
		defer release()
		ops = append(ops, more...)
	}
	reply, more, err := k.owners.wrapping.Wrapped(t, reply)
	if err != nil {
		return nil, err
	}
	ops = append(ops, more...)
	if err := k.records.Commit(ctx, ops); err != nil {
		return nil, err
	}
	return reply, nil
}

// issue makes the token of an answer, or says in the reply what a login lacks for it. Until release is called nobody
// changes what it was made of.
func issue(ctx context.Context, k *Keeper, t *task.Task, resp *secrets.Response, reply *task.Reply) (ops []storage.Op,
	release func(), err error) {
	pass, err := k.owners.factors.Judge(ctx, t, resp)
	if err != nil {
		return nil, nil, err
	}
	if reply.Demand = pass.Demand; pass.Demand != nil {
		resp.Auth = nil
		return pass.Ops, pass.Release, nil
	}
	made, free, err := k.tokens.Issue(ctx, pass.Login, resp)
	if pass.Login != t {
		t.GiveBack, reply.Mount = append(t.GiveBack, pass.Login.GiveBack...), pass.Login.Entry
	}
	if err != nil {
		pass.Release()
		return nil, nil, err
	}
	reply.Token = made.Issued
	return append(pass.Ops, made.Ops...), func() { free(); pass.Release() }, nil
}

// renewed is the token that a renewal left, or nil.
func (k *Keeper) renewed(ctx context.Context, t *task.Task) (*task.Issued, error) {
	tok := t.Left.Renewed
	if tok == nil {
		return nil, nil
	}
	of := t.Tables.Of(tok.Hash)
	if of == nil {
		return nil, rights.ErrDenied
	}
	policies, err := k.rights.ByIdentity(ctx, of, tok.Entity)
	return &task.Issued{ID: t.Left.RenewedID, Token: tok, Left: tok.Left(t.Now), Identity: policies}, err
}

// step commits what an answer wants stored first, and lets the engine go on.
func (k *Keeper) step(ctx context.Context, t *task.Task, resp *secrets.Response) (*secrets.Response, error) {
	stepper, ok := t.Engine.(engine.Stepper)
	if !ok {
		return nil, errkind.Errorf(errkind.Internal, "an engine at %s answers with a step that it cannot take", t.Entry.Path)
	}
	ops, err := t.View.Ops(resp.Ops)
	if err != nil {
		return nil, err
	}
	if err := k.records.Commit(ctx, ops); err != nil {
		return nil, err
	}
	return stepper.Step(ctx, resp.Then)
}
