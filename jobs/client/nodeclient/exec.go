package nodeclient

import (
	"context"
	"io"
	"sync"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
)

// maxSessions bounds the commands that run in tasks for operators at once.
const maxSessions = 256

// sessions are those commands, by their random ids.
type sessions struct {
	open struct {
		sync.Mutex // guards all
		all        map[jobs.ID]*session
	}
}

func (s *sessions) init() { s.open.all = map[jobs.ID]*session{} }

// session is what a command reads.
type session struct {
	in     *io.PipeWriter
	resize chan [2]int
}

func (s *sessions) add(id jobs.ID, one *session) error {
	s.open.Lock()
	defer s.open.Unlock()
	switch {
	case id.IsZero() || s.open.all[id] != nil:
		return errkind.New(errkind.Conflict, "the session's id is taken")
	case len(s.open.all) >= maxSessions:
		return errkind.New(errkind.Overloaded, "too many commands run in tasks of this node: end one first")
	}
	s.open.all[id] = one
	return nil
}

func (s *sessions) get(id jobs.ID) *session {
	s.open.Lock()
	defer s.open.Unlock()
	return s.open.all[id]
}

func (s *sessions) drop(id jobs.ID) {
	s.open.Lock()
	defer s.open.Unlock()
	delete(s.open.all, id)
}

// output sends what a command writes. send belongs to one goroutine at a time.
type output struct {
	mu     *sync.Mutex
	send   func([]byte) error
	stderr bool
}

// Write implements io.Writer.
func (o output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for rest := p; len(rest) > 0; {
		n := min(len(rest), noderpc.MaxChunkBytes)
		m := &noderpc.ExecOutput{Stdout: rest[:n]}
		if o.stderr {
			m = &noderpc.ExecOutput{Stderr: rest[:n]}
		}
		if err := o.send(noderpc.Bytes(m)); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// exec runs a command in a task until it ends or the stream does.
func (c answers) exec(ctx context.Context, req []byte, send func([]byte) error) error {
	ask, err := noderpc.Read[noderpc.ExecAsk](req)
	if err != nil {
		return err
	}
	a, err := c.find(ask.Alloc)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	defer r.Close()
	one := &session{in: w, resize: make(chan [2]int, 1)}
	if err := c.add(ask.Session, one); err != nil {
		return err
	}
	defer c.drop(ask.Session)
	if ask.Rows > 0 {
		one.resize <- [2]int{ask.Rows, ask.Columns}
	}
	var mu sync.Mutex
	code, err := a.Exec(ctx, ask.Task, driver.Exec{Command: ask.Command, TTY: ask.TTY, Stdin: r,
		Stdout: output{&mu, send, false}, Stderr: output{&mu, send, true}, Resize: one.resize})
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	return send(noderpc.Bytes(&noderpc.ExecOutput{StdoutClosed: true, StderrClosed: true, Exited: true, ExitCode: code}))
}

// input is for a session's command.
func (c answers) input(ctx context.Context, req []byte) ([]byte, error) {
	m, err := noderpc.Read[noderpc.ExecInput](req)
	if err != nil {
		return nil, err
	}
	one := c.get(m.Session)
	if one == nil {
		return nil, errkind.New(errkind.NotFound, "the session is over")
	}
	if m.Rows > 0 {
		select {
		case one.resize <- [2]int{m.Rows, m.Columns}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if len(m.Data) > 0 {
		stop := context.AfterFunc(ctx, func() { _ = one.in.CloseWithError(ctx.Err()) })
		_, err := one.in.Write(m.Data)
		stop()
		if err != nil {
			return nil, errkind.E(errkind.NotFound, "the session is over", err)
		}
	}
	if m.Close {
		return nil, one.in.Close()
	}
	return nil, nil
}
