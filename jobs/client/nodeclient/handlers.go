package nodeclient

import (
	"context"
	"encoding/json"
	"time"

	"corbel.dev/corbel/jobs/client/allocdir"
	"corbel.dev/corbel/jobs/client/tasklog"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
)

// followEvery is how often a file that is followed is looked at.
const followEvery = 100 * time.Millisecond

// answers is a Client as servers call it.
type answers struct{ *Client }

// Handlers are what servers may call, by method.
func (c *Client) Handlers() map[string]func(ctx context.Context, req []byte) ([]byte, error) {
	a := answers{c}
	return map[string]func(ctx context.Context, req []byte) ([]byte, error){
		noderpc.MethodList: a.list, noderpc.MethodStat: a.stat, noderpc.MethodInput: a.input,
		noderpc.MethodRestart: a.restart, noderpc.MethodSignal: a.signal, noderpc.MethodCollect: a.collect,
		noderpc.MethodStats: a.stats, noderpc.MethodHostStats: a.hostStats, noderpc.MethodChecks: a.checks,
		noderpc.MethodMeta: a.meta,
	}
}

// Streams are the streams that servers may open, by method.
func (c *Client) Streams() map[string]func(ctx context.Context, req []byte, send func([]byte) error) error {
	a := answers{c}
	return map[string]func(ctx context.Context, req []byte, send func([]byte) error) error{
		noderpc.MethodLogs: a.logs, noderpc.MethodRead: a.read, noderpc.MethodExec: a.exec,
	}
}

func (c answers) file(req []byte) (*noderpc.FileAsk, *alloc, *allocdir.Dir, error) {
	ask, err := noderpc.Read[noderpc.FileAsk](req)
	if err != nil {
		return nil, nil, nil, err
	}
	a, d, err := c.folder(ask)
	return ask, a, d, err
}

func (c answers) folder(ask *noderpc.FileAsk) (*alloc, *allocdir.Dir, error) {
	a, err := c.find(ask.Alloc)
	if err != nil {
		return nil, nil, err
	}
	d := a.Dir()
	if d == nil {
		return nil, nil, errkind.New(errkind.NotFound, "the allocation has no folder: its node is simulated")
	}
	return a, d, nil
}

func (c answers) list(_ context.Context, req []byte) ([]byte, error) {
	ask, _, d, err := c.file(req)
	if err != nil {
		return nil, err
	}
	list, err := d.List(ask.Path)
	if err != nil {
		return nil, err
	}
	return json.Marshal(list)
}

func (c answers) stat(_ context.Context, req []byte) ([]byte, error) {
	ask, _, d, err := c.file(req)
	if err != nil {
		return nil, err
	}
	e, err := d.Stat(ask.Path)
	if err != nil {
		return nil, err
	}
	return json.Marshal(e)
}

// read streams a file.
func (c answers) read(ctx context.Context, req []byte, send func([]byte) error) error {
	ask, a, d, err := c.file(req)
	if err != nil {
		return err
	}
	f, err := d.Open(ask.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return errkind.Errorf(errkind.Invalid, "file %q is a directory", ask.Path)
	}
	offset := ask.Offset
	if ask.AtEnd {
		offset = max(0, info.Size()-ask.Offset)
	}
	left := ask.Limit
	buf := make([]byte, noderpc.MaxChunkBytes)
	for {
		piece := buf
		if ask.Limit > 0 {
			piece = buf[:min(int64(len(buf)), left)]
		}
		n, _ := f.ReadAt(piece, offset)
		if n > 0 {
			offset, left = offset+int64(n), left-int64(n)
			data := append([]byte(nil), piece[:n]...)
			if err := send(noderpc.Bytes(&noderpc.Chunk{File: ask.Path, Offset: offset, Data: data})); err != nil {
				return err
			}
		}
		switch {
		case ask.Limit > 0 && left <= 0:
			return nil
		case n > 0:
		case !ask.Follow:
			return nil
		default:
			if info, err := f.Stat(); err == nil && info.Size() < offset {
				offset = 0
				if err := send(noderpc.Bytes(&noderpc.Chunk{File: ask.Path, Event: "file truncated"})); err != nil {
					return err
				}
			}
			if _, err := d.Stat(ask.Path); err != nil {
				return send(noderpc.Bytes(&noderpc.Chunk{File: ask.Path, Offset: offset, Event: "file deleted"}))
			}
			if a.Done() || !c.pause(ctx, followEvery) {
				return nil
			}
		}
	}
}

// logs streams a task's output.
func (c answers) logs(ctx context.Context, req []byte, send func([]byte) error) error {
	ask, err := noderpc.Read[noderpc.LogAsk](req)
	if err != nil {
		return err
	}
	a, d, err := c.folder(&noderpc.FileAsk{Alloc: ask.Alloc})
	if err != nil {
		return err
	}
	if !a.Has(ask.Task) {
		return errkind.Errorf(errkind.NotFound, "unknown task name %q", ask.Task)
	}
	cursor, err := tasklog.Open(d.Logs(), tasklog.Name(ask.Task, ask.Stderr), ask.Offset, ask.AtEnd)
	if err != nil {
		return err
	}
	for {
		over := a.Done() // asked before the last read: what is written until then is sent
		piece, err := cursor.Next(make([]byte, noderpc.MaxChunkBytes))
		if err != nil {
			return err
		}
		if len(piece.Data) > 0 {
			if err := send(noderpc.Bytes(&noderpc.Chunk{File: piece.File, Offset: piece.Offset, Data: piece.Data})); err != nil {
				return err
			}
			continue
		}
		if !ask.Follow || over || !c.pause(ctx, followEvery) {
			return nil
		}
	}
}

func (c answers) task(req []byte) (*noderpc.TaskAsk, *alloc, error) {
	ask, err := noderpc.Read[noderpc.TaskAsk](req)
	if err != nil {
		return nil, nil, err
	}
	a, err := c.find(ask.Alloc)
	return ask, a, err
}

func (c answers) restart(_ context.Context, req []byte) ([]byte, error) {
	ask, a, err := c.task(req)
	if err != nil {
		return nil, err
	}
	return nil, a.Restart(ask.Task, "User requested task to restart")
}

func (c answers) signal(_ context.Context, req []byte) ([]byte, error) {
	ask, a, err := c.task(req)
	if err != nil {
		return nil, err
	}
	return nil, a.Signal(ask.Task, ask.Signal)
}

func (c answers) collect(_ context.Context, req []byte) ([]byte, error) {
	ask, err := noderpc.Read[noderpc.TaskAsk](req)
	if err != nil {
		return nil, err
	}
	return nil, c.Collect(ask.Alloc)
}
