package allocrows

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/errkind"
)

// fileCall reads the parameters of a call about a file.
func fileCall(q *request, otherwise string) (*jobs.Allocation, nomadrows.FileCall, error) {
	call := nomadrows.FileCall{AllocID: q.Args["alloc"], Path: q.Query.Value("path")}
	if call.Path == "" {
		call.Path = otherwise
	}
	if call.Path == "" {
		return nil, call, nomadrows.BadRequest("must provide a file path")
	}
	a, err := find(q, nomadrows.ReadFS, unknown(q))
	return a, call, err
}

func ls(q *request) error {
	a, call, err := fileCall(q, "/")
	if err != nil {
		return err
	}
	list := []nomadrows.FileInfo{}
	if err := ask(q, a, nomadrows.CallList, call, &list); err != nil {
		return err
	}
	return q.JSON(list)
}

func stat(q *request) error {
	a, call, err := fileCall(q, "")
	if err != nil {
		return err
	}
	var info nomadrows.FileInfo
	if err := ask(q, a, nomadrows.CallStat, call, &info); err != nil {
		return err
	}
	return q.JSON(info)
}

// cat sends a file. Stock answers 200 with the error as the body when there is none.
func cat(q *request) error {
	a, call, err := fileCall(q, "")
	if err != nil {
		return err
	}
	err = reading(q, a, nomadrows.ReadFS, nomadrows.ReadFile, call, true)
	if errkind.Is(err, errkind.NotFound) {
		httpx.WriteText(q.W, 200, errkind.Text(err))
		return nil
	}
	return reached(err)
}

func readAt(q *request) error {
	a, call, err := fileCall(q, "")
	if err != nil {
		return err
	}
	if call.Offset, err = q.Int("offset", -1); err != nil || call.Offset < 0 {
		return nomadrows.BadRequest("must provide a file offset")
	}
	if call.Limit, err = q.Int("limit", -1); err != nil || call.Limit < 0 {
		return nomadrows.BadRequest("must provide a file limit")
	}
	return reached(reading(q, a, nomadrows.ReadFS, nomadrows.ReadFile, call, true))
}

func stream(q *request) error {
	a, call, err := fileCall(q, "")
	if err != nil {
		return err
	}
	call.Follow = true
	if q.Query.Has("follow") {
		if call.Follow, err = q.Flag("follow"); err != nil {
			return err
		}
	}
	if call.Origin, call.Offset, err = origin(q); err != nil {
		return err
	}
	return reached(reading(q, a, nomadrows.ReadFS, nomadrows.ReadFile, call, false))
}

func origin(q *request) (string, int64, error) {
	from := q.Query.Value("origin")
	if from != "" && from != "start" && from != "end" {
		return "", 0, nomadrows.BadRequest("origin must be start or end")
	}
	offset, err := q.Int("offset", 0)
	return from, offset, err
}

func logs(q *request) error {
	call := nomadrows.LogCall{AllocID: q.Args["alloc"], Task: q.Query.Value("task"), Type: q.Query.Value("type")}
	switch {
	case call.Task == "":
		return nomadrows.BadRequest("must provide task name")
	case call.Type != "stdout" && call.Type != "stderr":
		return nomadrows.BadRequest("log type must be stdout or stderr")
	}
	var err error
	if call.Follow, err = q.Flag("follow"); err != nil {
		return err
	}
	plain, err := q.Flag("plain")
	if err != nil {
		return err
	}
	if call.Origin, call.Offset, err = origin(q); err != nil {
		return err
	}
	a, err := find(q, nomadrows.ReadLogs, unknown(q))
	if err != nil {
		return err
	}
	if g := a.Job.Group(a.Group); g != nil && !hasTask(g, call.Task) {
		return nomadrows.NotFound("task \"" + call.Task + "\" not found in allocation \"" + call.AllocID + "\"")
	}
	return reached(reading(q, a, nomadrows.ReadLogs, nomadrows.ReadLogFrames, call, plain))
}

func hasTask(g *jobs.TaskGroup, name string) bool {
	for _, t := range g.Tasks {
		if t.Name == name {
			return true
		}
	}
	return false
}

// streamType is that of frames.
var streamType = []string{"application/json"}

// reading sends a node's frames on, as they are or only what they carry. The error is from before the first byte; one
// that comes later ends the answer, and so does the end of the right to it.
func reading(q *request, a *jobs.Allocation, what nomadrows.Capability, method string, call any, plain bool) error {
	ctx, release := q.Lasting(q.Ctx(), func(q *request) error { return q.May(a.Job.Namespace, what) })
	defer release()
	frames, err := q.Clients.Read(ctx, a.NodeID, method, call)
	if err != nil {
		return err
	}
	defer frames.Close()
	defer context.AfterFunc(ctx, func() { _ = frames.Close() })()
	decode := json.NewDecoder(frames)
	var out *httpx.Stream
	begin := func() {
		if out == nil {
			kind := streamType
			if plain {
				kind = httpx.TextType
			}
			out = httpx.NewStream(q.W, q.R, kind)
		}
	}
	for {
		var f nomadrows.Frame
		if err := decode.Decode(&f); err != nil {
			if !errors.Is(err, io.EOF) && out == nil && ctx.Err() == nil {
				return err
			}
			begin() // an empty file
			out.Close()
			return nil
		}
		begin()
		if err := send(out, &f, plain); err != nil {
			out.Close()
			return nil // the client left
		}
	}
}

func send(out *httpx.Stream, f *nomadrows.Frame, plain bool) error {
	text := f.Data
	if !plain {
		var err error
		if text, err = json.Marshal(f); err != nil {
			return err
		}
	}
	_, err := out.Write(text)
	out.Flush()
	return err
}
