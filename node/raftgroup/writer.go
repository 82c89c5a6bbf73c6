package raftgroup

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/errkind/errwire"
	"corbel.dev/corbel/kit/pack"
)

// Answers is what a Writer has to know of a plane whose commands are answered with an R.
type Answers[R any] struct {
	// Of divides what the state machine made of a command into its answer and its refusal.
	Of func(made any) (R, error)
	// Append and Read are the form of an answer between servers.
	Append func(b []byte, answer R) []byte
	Read   func(r *pack.Reader) R
	// Refusals are those that callers tell by errors.Is; they come over the wire as themselves.
	Refusals []error
	// Index is how far this server's state is, Changed is closed when it goes on. Changed is asked first.
	Index   func() uint64
	Changed func() <-chan struct{}
}

// Writer has a plane's commands committed from any server: where the group's leader is at once, elsewhere by an RPC to
// it. It is safe for concurrent use.
type Writer[R any] struct {
	group   *Group
	method  string
	answers Answers[R]
}

// NewWriter makes a Writer. The plane has its method served by Serve, for servers alone.
func NewWriter[R any](g *Group, method string, answers Answers[R]) *Writer[R] {
	return &Writer[R]{group: g, method: method, answers: answers}
}

// Do commits a command and returns once this server's state has it too. While nobody leads it tries again, for as long
// as raft.RPCHold. A refusal is an error of the plane's own; Unknown says that the command may have been committed.
func (w *Writer[R]) Do(ctx context.Context, cmd []byte) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, w.group.Base.Cfg.Limits.RPCClient)
	defer cancel()
	var answer R
	var refused error
	err := w.group.Hold(ctx, func() (err error) {
		answer, refused, err = w.try(ctx, cmd)
		return err
	})
	if err == nil {
		err = refused
	}
	return answer, err
}

// Here commits a command on this server, or fails at once: it is for the leader's own work.
func (w *Writer[R]) Here(ctx context.Context, cmd []byte) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, w.group.Base.Cfg.Limits.RPCClient)
	defer cancel()
	answer, refused, err := w.commit(ctx, cmd)
	if err == nil {
		err = refused
	}
	return answer, err
}

func (w *Writer[R]) commit(ctx context.Context, cmd []byte) (answer R, refused, err error) {
	made, err := w.group.Propose(ctx, cmd)
	if err != nil {
		return answer, nil, err
	}
	answer, refused = w.answers.Of(made)
	return answer, refused, nil
}

func (w *Writer[R]) try(ctx context.Context, cmd []byte) (answer R, refused, err error) {
	if w.group.IsLeader() {
		return w.commit(ctx, cmd)
	}
	reply, err := w.group.AtLeader(ctx, w.method, cmd)
	if err != nil {
		return answer, nil, err
	}
	index, answer, refused, err := w.answers.decode(reply)
	if err != nil {
		return answer, nil, errkind.E(errkind.Unknown, w.method, err)
	}
	if err := w.reach(ctx, index); err != nil && refused == nil {
		return answer, nil, err
	}
	return answer, refused, nil
}

// Serve answers the Writer's method on the leader: the index of its state, and the refusal or the answer.
func (w *Writer[R]) Serve(ctx context.Context, cmd []byte) ([]byte, error) {
	answer, refused, err := w.commit(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return w.answers.encode(answer, refused), nil
}

func (a *Answers[R]) encode(answer R, refused error) []byte {
	b := pack.Bool(pack.Uint(nil, a.Index()), refused != nil)
	if refused != nil {
		return errwire.Append(b, refused, 0)
	}
	return a.Append(b, answer)
}

func (a *Answers[R]) decode(reply []byte) (index uint64, answer R, refused, err error) {
	r := pack.Read(reply)
	index = r.Uint()
	if r.Bool() {
		refused = errwire.Read(r, a.Refusals...)
	} else {
		answer = a.Read(r)
	}
	return index, answer, refused, r.Err()
}

// reach waits until this server's state has index.
func (w *Writer[R]) reach(ctx context.Context, index uint64) error {
	for {
		changed := w.answers.Changed()
		if w.answers.Index() >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errkind.E(errkind.Unknown, "the change was made; this server does not show it yet", ctx.Err())
		}
	}
}

// Hold tries again while nobody leads, as soon as somebody may, for as long as raft.RPCHold. It returns f's last error.
func (p *Group) Hold(ctx context.Context, f func() error) error {
	clock := p.Base.Clock
	giveUp := clock.Now().Add(p.Base.Cfg.Raft.RPCHold)
	pause := backoff.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		changes := p.LeaderChanges()
		err := f()
		if !errkind.Is(err, errkind.NotLeader) && !errkind.Is(err, errkind.Unavailable) || ctx.Err() != nil ||
			clock.Now().After(giveUp) {
			return err
		}
		t := clock.NewTimer(pause.Next())
		select {
		case <-ctx.Done():
		case <-changes:
		case <-t.C:
		}
		t.Stop()
	}
}

// AtLeader calls a method of the group's leader; Unavailable says that nobody leads.
func (p *Group) AtLeader(ctx context.Context, method string, req []byte) ([]byte, error) {
	addr := p.LeaderAddr()
	if addr == "" || addr == p.Base.RPCAddr() {
		return nil, ErrForming
	}
	return p.Base.RPC.Call(ctx, addr, method, req)
}
