package plugins

import (
	"context"
	"errors"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/plugins/message"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// backend is the engine of a mount that a plug-in answers for.
type backend struct {
	p     *Plugins
	entry *mount.Entry
	book  token.Book
}

var (
	_ task.Handler   = (*backend)(nil)
	_ engine.Waker   = (*backend)(nil)
	_ engine.Leaser  = (*backend)(nil)
	_ engine.Renewer = (*backend)(nil)
)

// Engine makes the engine of a mount. Nothing is started: see engine.Waker.
func (p *Plugins) Engine(e *mount.Entry, salt []byte) engine.Engine {
	p.mu.Lock()
	if i := p.mounts[e.UUID]; i != nil {
		i.entry.Store(e)
	}
	p.mu.Unlock()
	return &backend{p: p, entry: e, book: token.Book{Salt: salt}}
}

// Wake implements engine.Waker. What is special comes of the very instance that was started: a reload meanwhile makes
// another, which has said nothing yet.
func (b *backend) Wake(ctx context.Context) (engine.Special, error) {
	i, err := b.p.of(b.entry)
	if err != nil {
		return engine.Special{}, err
	}
	return i.wake(ctx)
}

// Special implements engine.Engine: as the process said when it started.
func (b *backend) Special() engine.Special {
	i, err := b.p.of(b.entry)
	if err != nil {
		return engine.Special{}
	}
	return i.special()
}

// Serial implements engine.Engine: plug-ins see to it themselves.
func (b *backend) Serial(*secrets.Request) string { return "" }

func (b *backend) call(ctx context.Context, method string, in, out any) error {
	i, err := b.p.of(b.entry)
	if err != nil {
		return err
	}
	return i.call(ctx, method, in, out)
}

// Answer implements task.Handler.
func (b *backend) Answer(ctx context.Context, t *task.Task, r *secrets.Request) (*secrets.Response, error) {
	who := holder{}
	if t.Bearer != nil {
		who = holder{token: b.book.Hash(b.entry.UUID + t.Bearer.Hash), accessor: t.Bearer.Accessor, known: true}
	}
	return b.handle(ctx, r, who)
}

// Handle implements engine.Engine.
func (b *backend) Handle(ctx context.Context, _ engine.View, r *secrets.Request) (*secrets.Response, error) {
	return b.handle(ctx, r, holder{})
}

func (b *backend) handle(ctx context.Context, r *secrets.Request, who holder) (*secrets.Response, error) {
	args, err := asked(b.entry, r, who)
	if err != nil {
		return nil, err
	}
	var reply message.RequestReply
	err = b.call(ctx, message.HandleRequest, args, &reply)
	// As Vault does. What a read has made (creds/ROLE) before the process died is made twice, and had no lease anyway.
	if errors.Is(err, errDied) && !r.Op.Writes() {
		err = b.call(ctx, message.HandleRequest, args, &reply)
	}
	if err != nil {
		return nil, err
	}
	return answer(b.entry, r, !who.known, &reply)
}

// Exists implements engine.Engine.
func (b *backend) Exists(ctx context.Context, _ engine.View, r *secrets.Request) (exists, ok bool, err error) {
	args, err := asked(b.entry, r, holder{})
	if err != nil {
		return false, false, err
	}
	args.Request.Operation = secrets.Create.String()
	var reply message.ExistenceReply
	if err := b.call(ctx, message.HandleExistenceCheck, args, &reply); err != nil {
		return false, false, err
	}
	if e := reply.Err; e != nil {
		if e.Kind == message.ErrUnsupportedPath || e.Kind == message.ErrUnsupportedOperation {
			return false, false, nil // its request is refused by itself
		}
		_, err := refused(e, "")
		if err == nil {
			err = errkind.New(errkind.Internal, e.Text)
		}
		return false, false, err
	}
	return reply.Exists, reply.Found, nil
}

// lease asks for a lease's renewal or its end.
func (b *backend) lease(ctx context.Context, op string, l engine.Lease) (*secrets.Response, error) {
	args, err := ofLease(b.entry, op, l, b.p.Now())
	if err != nil {
		return nil, err
	}
	return &secrets.Response{}, b.done(ctx, args, &message.RequestReply{})
}

// done asks for what has no answer but that it was done.
func (b *backend) done(ctx context.Context, args *message.RequestArgs, reply *message.RequestReply) error {
	if err := b.call(ctx, message.HandleRequest, args, reply); err != nil {
		return err
	}
	data, err := object(reply.Response)
	if err != nil {
		return err
	}
	text, failed := errorOf(reply.Response, data)
	switch {
	case reply.Err != nil:
		_, err := refused(reply.Err, text)
		if err == nil {
			err = errkind.New(errkind.Internal, reply.Err.Text)
		}
		return err
	case failed:
		return errkind.New(errkind.Invalid, text)
	}
	return nil
}

// Renew implements engine.Leaser.
func (b *backend) Renew(ctx context.Context, _ engine.View, l engine.Lease) (*secrets.Response, error) {
	return b.lease(ctx, opRenew, l)
}

// Revoke implements engine.Leaser.
func (b *backend) Revoke(ctx context.Context, _ engine.View, l engine.Lease) (*secrets.Response, error) {
	return b.lease(ctx, opRevoke, l)
}

// Renewable implements engine.Renewer.
func (b *backend) Renewable(ctx context.Context, _ engine.View, _ *secrets.Request, l engine.Login) (engine.Terms,
	error) {
	args, kept, err := ofLogin(b.entry, l)
	if err != nil {
		return engine.Terms{}, err
	}
	terms := engine.Terms{TTL: kept.TTL, MaxTTL: kept.MaxTTL, Period: kept.Period}
	var reply message.RequestReply
	if err := b.done(ctx, args, &reply); err != nil {
		return terms, err
	}
	if reply.Response != nil && reply.Response.Auth != nil {
		a := reply.Response.Auth
		terms.Period = time.Duration(a.Period)
		if a.Lease != nil {
			terms.TTL, terms.MaxTTL = time.Duration(a.Lease.TTL), time.Duration(a.Lease.MaxTTL)
		}
	}
	return terms, nil
}
