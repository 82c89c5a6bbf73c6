package keeper

import (
	"context"
	"errors"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/token"
	"corbel.dev/corbel/telemetry"
)

// Reply is what a request is answered with.
type Reply struct {
	*secrets.Response
	Token *Issued   // of Response.Auth
	Lease *Leased   // of Response.Lease, or of a renewal
	Wrap  *WrapInfo // in the place of the answer, which was stored
	Mount *mount.Entry
}

// Issued is a token that the keeper made or renewed.
type Issued struct {
	ID string // "" where only the accessor may be told
	*token.Token
	Left     time.Duration
	Identity []string // policies by its entity and that one's groups
}

// errDenied is the one answer to who may not, whatever the reason.
var errDenied = errkind.New(errkind.Denied, "permission denied")

// task is one request with what it has found so far.
type task struct {
	*secrets.Request
	st       *state
	entry    *mount.Entry
	engine   engine.Engine
	view     sealed.View
	holder   *holder         // nil on open paths
	judged   *policy.Verdict // by the policies; nil: they were not asked
	used     bool            // it took a use of its token
	last     bool            // and that was the last one
	newcomer bool            // a login by whom nobody knew: an entity is made

	account account

	method     string // the operation as it came
	next, prev *task  // of those under way

	renewed   *token.Token // what a renewal left, for the reply
	renewedID string       // its id; "" where only the accessor was given
	leased    *Leased      // what a renewal of a lease left
	giveBack  []func()     // the room of leases in their quotas, where they do not come to be
	wrap      *WrapInfo    // what stands for the answer that was wrapped again
}

// Handle answers one request. Errors have kinds; their text is what clients are told.
func (k *Keeper) Handle(ctx context.Context, r *secrets.Request) (*Reply, error) {
	leave, err := k.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	st := k.state.Load()
	if st == nil {
		return nil, k.idle()
	}
	if r.Now.IsZero() {
		r.Now = k.cfg.Now()
	}
	begin := time.Now()
	t := &task{Request: r, st: st, method: r.Op.String()}
	defer k.flying.begin(t).end(t)
	t.entry, r.Rest = st.mounts.Route(r.Path)
	if err := k.admit(ctx, t); err != nil {
		return nil, err
	}
	if t.entry == nil {
		return nil, k.audited(ctx, t, k.noRoute(ctx, t))
	}
	r.Mount = t.entry.Path
	t.engine, t.view = st.engines[t.entry.Accessor], k.records.At(t.entry.Prefix())
	ctx = context.WithValue(ctx, taskKey{}, t)
	defer k.serial.Take(t.name())()
	special := t.engine.Special()
	if !matches(special.Open, r.Rest) && (r.Token != "" || !matches(special.Visible, r.Rest)) {
		err = k.authorise(ctx, t, special)
		judged := time.Since(begin)
		t.account.spent[telemetry.StageToken] = judged
		k.meters.checkToken.Observe(judged)
	}
	var reply *Reply
	if err = k.audited(ctx, t, err); err == nil {
		reply, err = k.answered(ctx, t)
	}
	if errkind.Is(err, errkind.Overloaded) {
		k.meters.costs.Shed()
	}
	k.meters.done(ctx, t, begin, reply)
	if t.last {
		k.endLast(ctx, t)
	}
	return reply, err
}

// name is what the request must have to itself.
func (t *task) name() string {
	if s := t.engine.Serial(t.Request); s != "" {
		return t.entry.Accessor + "\x00" + s
	}
	return ""
}

// noRoute is the answer to a path without a mount: who has no right there learns nothing of mounts.
func (k *Keeper) noRoute(ctx context.Context, t *task) error {
	h, err := k.known(ctx, t)
	if err != nil {
		return err
	}
	if !h.acl.Allow(&policy.Request{Path: t.Path, Need: t.Op.Need()}).Allowed {
		return errDenied
	}
	return errkind.Errorf(errkind.NotFound, "no handler for route %q. route entry not found.", t.Path)
}

// known finds the request's token, or says that there is none that counts.
func (k *Keeper) known(ctx context.Context, t *task) (*holder, error) {
	if t.Token == "" {
		return nil, errDenied
	}
	h, err := k.tokens.find(ctx, t.st, t.Token)
	if err != nil {
		return nil, err
	}
	if h == nil || h.Expired(t.Now) || !h.person.may() || !auth.Within(h.CIDRs, t.Remote) {
		return nil, errDenied
	}
	if ok, err := k.parentLives(ctx, t, h); err != nil || !ok {
		return nil, orDenied(err)
	}
	return h, nil
}

// authorise finds the token and judges the request by its policies. A token with
// a limited number of uses has one less afterwards, also when it is denied.
func (k *Keeper) authorise(ctx context.Context, t *task, special engine.Special) (err error) {
	begin := time.Now()
	t.holder, err = k.known(ctx, t)
	k.meters.authorise.Observe(time.Since(begin))
	if err != nil {
		return err
	}
	t.Holder, t.Whose = t.holder.DisplayName, t.holder.Entity
	if p := t.holder.person; p != nil && p.Persona != nil {
		t.Who = p.Persona
	}
	if t.holder.Uses != 0 {
		if err := k.use(ctx, t); err != nil {
			return err
		}
	}
	if matches(special.Token, t.Rest) {
		return nil
	}
	if t.Op == secrets.Create || t.Op == secrets.Update {
		t.Op = secrets.Update
		exists, tells, err := t.engine.Exists(ctx, t.view, t.Request)
		if err != nil {
			return err
		}
		if tells && !exists {
			t.Op = secrets.Create
		}
	}
	q := policy.Request{Path: t.Path, Need: t.Op.Need(), Wrap: t.Wrap, Protected: matches(special.Protected, t.Rest)}
	if t.Op == secrets.List || t.Op == secrets.Scan {
		q.Path = strings.TrimSuffix(q.Path, "/") + "/"
	}
	if t.holder.acl.AsksParameters() {
		f, err := t.Fields()
		if err != nil {
			return err
		}
		q.Data = f.Plain()
	}
	verdict := t.holder.acl.Allow(&q)
	t.judged = &verdict
	if !verdict.Allowed {
		return errDenied
	}
	return nil
}

// run lets the engine answer, commits what it wants stored, and makes its token.
func (k *Keeper) run(ctx context.Context, t *task) (answer *Reply, err error) {
	var resp *secrets.Response
	if t.Op == secrets.Scan {
		resp, err = scan(ctx, t)
	} else {
		resp, err = t.engine.Handle(ctx, t.view, t.Request)
		if alone := engine.Alone(""); errors.As(err, &alone) {
			defer k.serial.Take(t.entry.Accessor + "\x00" + string(alone))()
			t.Alone = true
			resp, err = t.engine.Handle(ctx, t.view, t.Request)
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
		for _, giveBack := range t.giveBack {
			giveBack()
		}
		if resp.Lease != nil {
			k.undo(ctx, t, resp.Lease)
		}
	}()
	ops, err := t.view.Ops(resp.Ops)
	if err != nil {
		return nil, err
	}
	reply := &Reply{Response: resp, Lease: t.leased, Wrap: t.wrap, Mount: t.entry}
	if t.renewed != nil {
		reply.Token = &Issued{ID: t.renewedID, Token: t.renewed, Left: t.renewed.Left(t.Now)}
		if reply.Token.Identity, err = k.byIdentity(ctx, t.st, t.renewed.Entity); err != nil {
			return nil, err
		}
	}
	if resp.Auth != nil {
		made, release, err := k.issue(ctx, t, resp)
		if err != nil {
			return nil, err
		}
		defer release()
		ops, reply.Token = append(ops, made.ops...), made.Issued
	}
	if resp.Lease != nil && resp.Auth == nil {
		more, release, err := k.grant(ctx, t, reply)
		if err != nil {
			return nil, err
		}
		defer release()
		ops = append(ops, more...)
	}
	reply, more, err := k.wrapped(t, reply)
	if err != nil {
		return nil, err
	}
	ops = append(ops, more...)
	if err := k.records.Commit(ctx, ops); err != nil {
		return nil, err
	}
	return reply, nil
}

// step commits what an answer wants stored first, and lets the engine go on.
func (k *Keeper) step(ctx context.Context, t *task, resp *secrets.Response) (*secrets.Response, error) {
	stepper, ok := t.engine.(engine.Stepper)
	if !ok {
		return nil, errkind.Errorf(errkind.Internal, "an engine at %s answers with a step that it cannot take", t.entry.Path)
	}
	ops, err := t.view.Ops(resp.Ops)
	if err != nil {
		return nil, err
	}
	if err := k.records.Commit(ctx, ops); err != nil {
		return nil, err
	}
	return stepper.Step(ctx, resp.Then)
}

// taskKey is where the engines of the keeper's own find the task.
type taskKey struct{}

func taskOf(ctx context.Context) *task { t, _ := ctx.Value(taskKey{}).(*task); return t }

// matches reports whether a path is one of a list, in the patterns of engine.Special.
func matches(patterns []string, path string) bool {
	for _, p := range patterns {
		if prefix, is := strings.CutSuffix(p, "*"); (is && strings.HasPrefix(path, prefix)) || p == path || bySegments(p, path) {
			return true
		}
	}
	return false
}

// bySegments compares a pattern with '+' in it.
func bySegments(p, path string) bool {
	if !strings.Contains(p, "+") {
		return false
	}
	for {
		want, p2, more := strings.Cut(p, "/")
		got, path2, more2 := strings.Cut(path, "/")
		if more != more2 || got == "" || (want != "+" && want != got) {
			return false
		}
		if !more {
			return true
		}
		p, path = p2, path2
	}
}

// cubbyhole is a store of version 1 for each token.
type cubbyhole struct{ engine.Engine }

// Handle implements engine.Engine: a token sees below its own hash alone.
func (c cubbyhole) Handle(ctx context.Context, v engine.View, r *secrets.Request) (*secrets.Response, error) {
	if taskOf(ctx).holder.Batch {
		return nil, errCubbyhole
	}
	own := taskOf(ctx).holder.Hash + "/"
	inner := *r
	resp, err := c.Engine.Handle(ctx, below{v, own}, &inner)
	if err != nil {
		return nil, err
	}
	for i := range resp.Ops {
		resp.Ops[i].Key = own + resp.Ops[i].Key
	}
	return resp, nil
}

// Exists implements engine.Engine.
func (c cubbyhole) Exists(ctx context.Context, v engine.View, r *secrets.Request) (bool, bool, error) {
	return c.Engine.Exists(ctx, below{v, taskOf(ctx).holder.Hash + "/"}, r)
}

// below is a view of a part of another.
type below struct {
	engine.View
	prefix string
}

// Get implements engine.View.
func (b below) Get(ctx context.Context, key string) ([]byte, bool, error) {
	return b.View.Get(ctx, b.prefix+key)
}

// List implements engine.View.
func (b below) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	return b.View.List(ctx, b.prefix+prefix, after, limit)
}
