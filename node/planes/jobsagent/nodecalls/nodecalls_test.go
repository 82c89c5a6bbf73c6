package nodecalls

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
)

const id = "01000000-0000-0000-0000-000000000000"

// node answers as a node's agent does: its command echoes what it reads.
func node(t *testing.T) *Clients {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := rpc.NewServer(rpc.ServerConfig{Drain: time.Second})
	input := make(chan *noderpc.ExecInput, 8)
	srv.Handle(wire.Anyone, noderpc.MethodList, func(_ context.Context, req []byte) ([]byte, error) {
		m, err := noderpc.Read[noderpc.FileAsk](req)
		if err == nil && m.Path != "alloc" {
			err = errkind.New(errkind.NotFound, "no such file")
		}
		return []byte(`[{"Name":"logs","IsDir":true}]`), err
	})
	srv.Handle(wire.Anyone, noderpc.MethodSignal, func(_ context.Context, req []byte) ([]byte, error) {
		m, err := noderpc.Read[noderpc.TaskAsk](req)
		if err == nil && (m.Signal != "SIGHUP" || m.Alloc != jobs.ID{1}) {
			err = errkind.New(errkind.Invalid, "not that")
		}
		return nil, err
	})
	srv.HandleStream(wire.Anyone, noderpc.MethodLogs, func(_ context.Context, req []byte, send func([]byte) error) error {
		m, err := noderpc.Read[noderpc.LogAsk](req)
		if err != nil || !m.Stderr || !m.AtEnd {
			return errkind.New(errkind.Invalid, "not that")
		}
		for i, text := range []string{"one", "two"} {
			c := &noderpc.Chunk{File: "t.stderr.0", Offset: int64(3 * (i + 1)), Data: []byte(text)}
			if err := send(noderpc.Bytes(c)); err != nil {
				return err
			}
		}
		return nil
	})
	srv.HandleStream(wire.Anyone, noderpc.MethodMonitor, FollowLog(talker{}))
	srv.Handle(wire.Anyone, noderpc.MethodMeta, func(_ context.Context, req []byte) ([]byte, error) {
		m, err := noderpc.Read[noderpc.MetaAsk](req)
		if err != nil {
			return nil, err
		}
		return json.Marshal(m)
	})
	srv.Handle(wire.Anyone, noderpc.MethodInput, func(_ context.Context, req []byte) ([]byte, error) {
		m, err := noderpc.Read[noderpc.ExecInput](req)
		input <- m
		return nil, err
	})
	srv.HandleStream(wire.Anyone, noderpc.MethodExec, func(ctx context.Context, _ []byte, send func([]byte) error) error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case m := <-input:
				out := &noderpc.ExecOutput{Stdout: append([]byte(nil), m.Data...)}
				if m.Close {
					out = &noderpc.ExecOutput{StdoutClosed: true, Exited: true, ExitCode: 3}
				}
				if err := send(noderpc.Bytes(out)); err != nil || m.Close {
					return err
				}
			}
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = srv.Run(ctx, l); close(done) }()
	client := rpc.NewClient(rpc.ClientConfig{Timeout: time.Minute,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}})
	t.Cleanup(func() { _ = client.Close(); cancel(); <-done })
	return &Clients{RPC: client, Addr: func(n jobs.ID) (string, bool) { return l.Addr().String(), n == jobs.ID{9} }}
}

func TestCalls(t *testing.T) {
	c, n := node(t), jobs.ID{9}
	var list []nomadrows.FileInfo
	err := c.Ask(t.Context(), n, nomadrows.CallList, nomadrows.FileCall{AllocID: id, Path: "alloc"}, &list)
	if err != nil || len(list) != 1 || !list[0].IsDir {
		t.Error(list, err)
	}
	for _, x := range []struct {
		node   jobs.ID
		method string
		in     any
		want   errkind.Kind
	}{
		{n, nomadrows.CallList, &nomadrows.FileCall{AllocID: id, Path: "none"}, errkind.NotFound},
		{n, nomadrows.CallList, nomadrows.FileCall{AllocID: "x"}, errkind.Invalid},
		{n, "alloc.nothing", nomadrows.FileCall{}, errkind.Invalid},
		{jobs.ID{8}, nomadrows.CallList, nomadrows.FileCall{AllocID: id}, errkind.Unavailable},
	} {
		if err := c.Ask(t.Context(), x.node, x.method, x.in, nil); !errkind.Is(err, x.want) {
			t.Errorf("%s: %v", x.method, err)
		}
	}
	signal := &nomadrows.TaskCall{AllocID: id, Signal: "SIGHUP"}
	if err := c.Ask(t.Context(), n, nomadrows.CallSignal, signal, nil); err != nil {
		t.Error(err)
	}
	r, err := c.Read(t.Context(), n, nomadrows.ReadLogFrames, nomadrows.LogCall{AllocID: id, Type: "stderr",
		Origin: "end"})
	if err != nil {
		t.Fatal(err)
	}
	d, text := json.NewDecoder(r), ""
	for {
		var f nomadrows.Frame
		if err := d.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		text += string(f.Data)
	}
	if text != "onetwo" {
		t.Error(text)
	}
	_ = r.Close()
}

// TestTalk: input arrives in order, also in pieces, and the exit code comes back.
func TestTalk(t *testing.T) {
	talk, err := node(t).Talk(t.Context(), jobs.ID{9}, nomadrows.TalkExec, nomadrows.ExecCall{AllocID: id,
		Command: []string{"cat"}})
	if err != nil {
		t.Fatal(err)
	}
	defer talk.Close()
	d := json.NewDecoder(talk)
	for _, piece := range []string{`{"stdin":{"data":"aGk`, `="}}{"tty_size":{"height":1,"width":2}}`} {
		if n, err := talk.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	var out nomadrows.ExecOutput
	if err := d.Decode(&out); err != nil || string(out.Stdout.Data) != "hi" {
		t.Error(out, err)
	}
	if _, err := talk.Write([]byte(`{"stdin":{"close":true}}`)); err != nil {
		t.Fatal(err)
	}
	for !out.Exited {
		out = nomadrows.ExecOutput{}
		if err := d.Decode(&out); err != nil {
			t.Fatal(err)
		}
	}
	if out.Result.ExitCode != 3 {
		t.Error(out.Result)
	}
	if _, err := talk.Write([]byte(`nonsense`)); !errkind.Is(err, errkind.Invalid) {
		t.Error(err)
	}
}

// talker is a log that says what it was asked for, more than a message holds, and goes on until its reader leaves.
type talker struct{}

func (talker) Follow(ctx context.Context, level slog.Level, structured bool, w io.Writer, _ func()) error {
	text := fmt.Sprintln(level, structured)
	if _, err := io.WriteString(w, text+strings.Repeat("x", 3*noderpc.MaxChunkBytes)+"end"); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// TestMonitor: the log of another process comes whole, and ends with who reads it.
func TestMonitor(t *testing.T) {
	c := node(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := c.Read(ctx, jobs.ID{9}, nomadrows.ReadMonitor, nomadrows.MonitorCall{Level: slog.LevelWarn, JSON: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []byte
	decode := json.NewDecoder(r)
	for !bytes.HasSuffix(got, []byte("end")) {
		var f nomadrows.Frame
		if err := decode.Decode(&f); err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
		got = append(got, f.Data...)
	}
	want := 3*noderpc.MaxChunkBytes + len("WARN true\nend")
	if len(got) != want || !bytes.HasPrefix(got, []byte("WARN true\n")) {
		t.Errorf("%d bytes, want %d: %.20q", len(got), want, got)
	}
	cancel()
	if err := decode.Decode(new(nomadrows.Frame)); err == nil {
		t.Error("it goes on without a reader")
	}
}

// TestMetaCall: names that are set and unset reach the node as they are.
func TestMetaCall(t *testing.T) {
	c := node(t)
	var got noderpc.MetaAsk
	err := c.Ask(t.Context(), jobs.ID{9}, nomadrows.CallMeta, nomadrows.MetaCall{Change: true,
		Set: map[string]string{"a": "b", "": ""}, Unset: []string{"c"}}, &got)
	if err != nil || !got.Change || len(got.Set) != 2 || got.Set["a"] != "b" || len(got.Unset) != 1 ||
		got.Unset[0] != "c" {
		t.Errorf("%+v, %v", got, err)
	}
}
