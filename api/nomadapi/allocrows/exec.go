package allocrows

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/ws"
)

// execLimits bound a session: clients send a heartbeat every ten seconds.
var execLimits = &ws.Limits{MessageBytes: 1 << 20, Idle: time.Minute}

// exec joins a WebSocket of the client with a stream of the node. It ends when the command has, when the client leaves,
// or when this server ends.
func exec(q *request) error {
	call := nomadrows.ExecCall{AllocID: q.Args["alloc"], Task: q.Query.Value("task")}
	if err := json.Unmarshal([]byte(q.Query.Value("command")), &call.Command); err != nil || len(call.Command) == 0 {
		return nomadrows.BadRequest("command must be a list of texts in JSON, with one at least")
	}
	var err error
	if call.TTY, err = q.Flag("tty"); err != nil {
		return err
	}
	late, err := q.Flag("ws_handshake") // browsers cannot set a header: the token comes as the first message
	if err != nil {
		return err
	}
	a, err := find(q, nomadrows.Anyone, unknown(q))
	if err != nil {
		return err
	}
	if !late {
		if err := mayExec(q, a, call.Task); err != nil {
			return err
		}
	}
	c, err := ws.Upgrade(q.W, q.R, nil, execLimits)
	if err != nil {
		return nil // it is answered
	}
	defer c.Close()
	if late {
		if q, err = handshake(q, c, a, call.Task); err != nil {
			return refused(c, err)
		}
	}
	held, release := q.Lasting(context.Background(), // the request's context ended with the upgrade
		func(q *request) error { return mayExec(q, a, call.Task) })
	defer release()
	ctx, cancel := context.WithCancel(held)
	defer cancel()
	session, err := q.Clients.Talk(ctx, a.NodeID, nomadrows.TalkExec, call)
	if err != nil {
		return refused(c, err)
	}
	var both sync.WaitGroup
	both.Go(func() {
		defer cancel()
		fromClient(c, session)
	})
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	toClient(c, session)
	_ = c.CloseWith(ws.CloseNormal, "") // a client that left does not hear it
	_ = c.Close()
	cancel()
	both.Wait()
	stop()
	_ = session.Close()
	return nil
}

// refused tells the client in a frame of standard error and as the reason of the end. The answer was given.
func refused(c *ws.Conn, err error) error {
	_ = c.CloseWith(ws.ClosePolicy, clipped(errkind.Text(err)))
	return nil
}

// clipped is a text that fits a close frame.
func clipped(text string) string { return text[:min(len(text), 120)] }

// bare tells whether nothing isolates a task from its host: who runs commands in it runs them there.
func bare(a *jobs.Allocation, task string) bool {
	g := a.Job.Group(a.Group)
	return g != nil && slices.ContainsFunc(g.Tasks, func(t *jobs.Task) bool {
		return (t.Name == task || task == "") && t.Driver == "raw_exec"
	})
}

// handshake reads the client's first message and returns the request with the token of it.
func handshake(q *request, c *ws.Conn, a *jobs.Allocation, task string) (*request, error) {
	text, err := c.Read(nil)
	if err != nil {
		return q, err
	}
	var hello struct {
		Version int    `json:"version"`
		Token   string `json:"auth_token"`
	}
	if err := json.Unmarshal(text, &hello); err != nil || hello.Version != 1 {
		return q, errkind.New(errkind.Invalid, "the first message is to be {\"version\": 1, \"auth_token\": ...}")
	}
	with := q.With(hello.Token)
	return with, mayExec(with, a, task)
}

// mayExec asks for the right to run commands beside a task.
func mayExec(q *request, a *jobs.Allocation, task string) error {
	err := q.May(a.Job.Namespace, nomadrows.AllocExec)
	if err == nil && bare(a, task) {
		err = q.May(a.Job.Namespace, nomadrows.AllocNodeExec)
	}
	return err
}

// fromClient passes the client's messages on until it leaves.
func fromClient(c *ws.Conn, session io.Writer) {
	var buf []byte
	for {
		text, err := c.Read(buf[:0])
		if err != nil {
			_ = c.Close() // its end was answered: browsers take a second close frame for a fault
			return
		}
		buf = text
		var in nomadrows.ExecInput
		if json.Unmarshal(text, &in) != nil {
			return
		}
		if in.Stdin == nil && in.TTYSize == nil {
			continue // a heartbeat
		}
		line, err := json.Marshal(in)
		if err != nil {
			return
		}
		if _, err := session.Write(append(line, '\n')); err != nil {
			return
		}
	}
}

// toClient passes the node's frames on until the command has ended.
func toClient(c *ws.Conn, session io.Reader) {
	decode := json.NewDecoder(session)
	for {
		var out nomadrows.ExecOutput
		if err := decode.Decode(&out); err != nil {
			if !errors.Is(err, io.EOF) {
				_ = c.CloseWith(ws.ClosePolicy, clipped(errkind.Text(err)))
			}
			return
		}
		text, err := json.Marshal(out)
		if err != nil || c.Write(text) != nil || c.Flush() != nil || out.Exited {
			return
		}
	}
}
