// Package nodecalls calls the agents of nodes for the HTTP API: its JSON objects on one side, noderpc on the other.
//
// A stream that is read holds at most one frame that is not taken; when its reader closes it, the node's work ends.
package nodecalls

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
)

// callLimit bounds a call.
const callLimit = 30 * time.Second

// Clients implements nomadrows.Clients.
type Clients struct {
	RPC *rpc.Client // to members that may be agents
	// Addr is where a node's agent answers.
	Addr func(node jobs.ID) (string, bool)
}

var _ nomadrows.Clients = (*Clients)(nil)

func (c *Clients) addr(node jobs.ID) (string, error) {
	if addr, ok := c.Addr(node); ok && addr != "" {
		return addr, nil
	}
	return "", errkind.New(errkind.Unavailable, "No path to node")
}

func parseID(text string) (id jobs.ID, err error) {
	if text == "" {
		return id, nil
	}
	id, ok := nomadrows.ParseID(text)
	if !ok {
		return id, errkind.Errorf(errkind.Invalid, "%.64q is no id of an allocation", text)
	}
	return id, nil
}

// Ask implements nomadrows.Clients.
func (c *Clients) Ask(ctx context.Context, node jobs.ID, method string, in, out any) error {
	addr, err := c.addr(node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	name, req, err := request(method, in)
	if err != nil {
		return err
	}
	answer, err := c.RPC.Call(ctx, addr, name, req)
	if err != nil || out == nil || len(answer) == 0 {
		return err
	}
	return json.Unmarshal(answer, out)
}

// taskMethods take a TaskCall, fileMethods a FileCall.
var (
	taskMethods = map[string]string{nomadrows.CallRestart: noderpc.MethodRestart,
		nomadrows.CallSignal: noderpc.MethodSignal, nomadrows.CallAllocStats: noderpc.MethodStats,
		nomadrows.CallCollect: noderpc.MethodCollect, nomadrows.CallChecks: noderpc.MethodChecks,
		nomadrows.CallHostStats: noderpc.MethodHostStats}
	fileMethods = map[string]string{nomadrows.CallList: noderpc.MethodList, nomadrows.CallStat: noderpc.MethodStat,
		nomadrows.ReadFile: noderpc.MethodRead}
)

// request is a call as the node reads it.
func request(method string, in any) (name string, req []byte, err error) {
	if name, ok := taskMethods[method]; ok {
		call, err := as[nomadrows.TaskCall](in)
		if err != nil {
			return "", nil, err
		}
		id, err := parseID(call.AllocID)
		m := &noderpc.TaskAsk{Alloc: id, Task: call.Task, Signal: call.Signal, All: call.AllTasks}
		return name, noderpc.Bytes(m), err
	}
	if name, ok := fileMethods[method]; ok {
		call, err := as[nomadrows.FileCall](in)
		if err != nil {
			return "", nil, err
		}
		id, err := parseID(call.AllocID)
		m := &noderpc.FileAsk{Alloc: id, Path: call.Path, AtEnd: call.Origin == "end", Offset: call.Offset,
			Limit: call.Limit, Follow: call.Follow}
		return name, noderpc.Bytes(m), err
	}
	if method == nomadrows.CallMeta {
		call, err := as[nomadrows.MetaCall](in)
		return noderpc.MethodMeta, noderpc.Bytes(&noderpc.MetaAsk{Change: call.Change, Set: call.Set, Unset: call.Unset}), err
	}
	if method == nomadrows.ReadMonitor {
		call, err := as[nomadrows.MonitorCall](in)
		return noderpc.MethodMonitor, monitorAsk(call), err
	}
	if method == nomadrows.ReadLogFrames {
		call, err := as[nomadrows.LogCall](in)
		if err != nil {
			return "", nil, err
		}
		id, err := parseID(call.AllocID)
		m := &noderpc.LogAsk{Alloc: id, Task: call.Task, Stderr: call.Type == "stderr", Follow: call.Follow,
			AtEnd: call.Origin == "end", Offset: call.Offset}
		return noderpc.MethodLogs, noderpc.Bytes(m), err
	}
	return "", nil, errkind.Errorf(errkind.Invalid, "nodes have no method %q", method)
}

// as takes in as a T, also behind a pointer or as another object with the same JSON.
func as[T any](in any) (v T, err error) {
	switch in := in.(type) {
	case T:
		return in, nil
	case *T:
		return *in, nil
	}
	text, err := json.Marshal(in)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	return v, err
}

// Read implements nomadrows.Clients.
func (c *Clients) Read(ctx context.Context, node jobs.ID, method string, in any) (io.ReadCloser, error) {
	addr, err := c.addr(node)
	if err != nil {
		return nil, err
	}
	name, req, err := request(method, in)
	if err != nil {
		return nil, err
	}
	return open(ctx, c.RPC, addr, name, req)
}

// open opens a stream of Chunks, to be read as Frames.
func open(ctx context.Context, c *rpc.Client, addr, name string, req []byte) (io.ReadCloser, error) {
	stream, err := c.Stream(ctx, addr, name, req)
	if err != nil {
		return nil, err
	}
	return &frames{stream: stream, convert: fileFrame}, nil
}

func fileFrame(text []byte) ([]byte, error) {
	m, err := noderpc.Read[noderpc.Chunk](text)
	if err != nil {
		return nil, err
	}
	return json.Marshal(nomadrows.Frame{Offset: m.Offset, Data: m.Data, File: m.File, FileEvent: m.Event})
}

// frames reads a stream as JSON objects. Read belongs to one goroutine.
type frames struct {
	stream  *rpc.Stream
	convert func([]byte) ([]byte, error)
	rest    []byte
	first   error
}

// Read implements io.Reader.
func (f *frames) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		if f.first != nil {
			return 0, f.first
		}
		text, err := f.stream.Recv()
		if err == nil {
			f.rest, err = f.convert(text)
		}
		f.first = err
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (f *frames) Close() error { return f.stream.Close() }

// Talk implements nomadrows.Clients.
func (c *Clients) Talk(ctx context.Context, node jobs.ID, method string, in any) (io.ReadWriteCloser, error) {
	addr, err := c.addr(node)
	if err != nil {
		return nil, err
	}
	call, err := as[nomadrows.ExecCall](in)
	if err != nil || method != nomadrows.TalkExec {
		return nil, errkind.Errorf(errkind.Invalid, "nodes have no conversation %q", method)
	}
	id, err := parseID(call.AllocID)
	if err != nil {
		return nil, err
	}
	m := &noderpc.ExecAsk{Alloc: id, Task: call.Task, Command: call.Command, TTY: call.TTY}
	if _, err := rand.Read(m.Session[:]); err != nil {
		return nil, err
	}
	stream, err := c.RPC.Stream(ctx, addr, noderpc.MethodExec, noderpc.Bytes(m))
	if err != nil {
		return nil, err
	}
	return &talk{frames: frames{stream: stream, convert: execFrame}, ctx: ctx, clients: c, addr: addr, session: m.Session},
		nil
}

func execFrame(text []byte) ([]byte, error) {
	m, err := noderpc.Read[noderpc.ExecOutput](text)
	if err != nil {
		return nil, err
	}
	out := nomadrows.ExecOutput{Exited: m.Exited}
	if len(m.Stdout) > 0 || m.StdoutClosed {
		out.Stdout = &nomadrows.ExecData{Data: m.Stdout, Close: m.StdoutClosed}
	}
	if len(m.Stderr) > 0 || m.StderrClosed {
		out.Stderr = &nomadrows.ExecData{Data: m.Stderr, Close: m.StderrClosed}
	}
	if m.Exited {
		out.Result = &nomadrows.ExecResult{ExitCode: m.ExitCode}
	}
	return json.Marshal(out)
}

// talk is a session of exec. Write takes whole or partial JSON objects, of one goroutine at a time.
type talk struct {
	frames
	ctx     context.Context //nolint:containedctx // of the session
	clients *Clients
	addr    string
	session jobs.ID

	mu   sync.Mutex // guards what follows: one input at a time, in order
	part []byte
}

// maxPart bounds an object that is not whole yet.
const maxPart = 1 << 20

// Write implements io.Writer.
func (t *talk) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part = append(t.part, p...)
	for len(t.part) > 0 {
		var in nomadrows.ExecInput
		n, err := firstObject(t.part, &in)
		if err != nil {
			return 0, errkind.E(errkind.Invalid, "input of exec", err)
		}
		if n == 0 {
			if len(t.part) > maxPart {
				return 0, errkind.New(errkind.TooLarge, "input of exec: an object is too large")
			}
			break
		}
		t.part = t.part[n:]
		m := &noderpc.ExecInput{Session: t.session}
		if s := in.Stdin; s != nil {
			m.Data, m.Close = s.Data, s.Close
		}
		if s := in.TTYSize; s != nil {
			m.Rows, m.Columns = s.Height, s.Width
		}
		if err := t.send(m); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// inputTries bounds how often input is tried for a session whose command is not there yet.
const inputTries = 20

func (t *talk) send(m *noderpc.ExecInput) (err error) {
	for range inputTries {
		ctx, cancel := context.WithTimeout(t.ctx, callLimit)
		_, err = t.clients.RPC.Call(ctx, t.addr, noderpc.MethodInput, noderpc.Bytes(m))
		cancel()
		if !errkind.Is(err, errkind.NotFound) {
			return err
		}
		select { // the stream may have been opened a moment ago
		case <-time.After(50 * time.Millisecond):
		case <-t.ctx.Done():
			return t.ctx.Err()
		}
	}
	return err
}

// firstObject decodes the first JSON value of text; n is 0 when it is not whole.
func firstObject(text []byte, v any) (n int, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	switch err := d.Decode(v); {
	case err == nil:
		return int(d.InputOffset()), nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, nil
	default:
		return 0, err
	}
}
