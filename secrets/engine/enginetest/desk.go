// Package enginetest calls engines in tests as the keeper does, without one.
package enginetest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// Desk is one mount over memory. What its engine answers with is committed.
type Desk struct {
	T      testing.TB
	Engine engine.Engine
	Store  *memstore.Store
	Mount  string

	mu  sync.Mutex
	now time.Time
}

// New makes a desk at the machine's time.
func New(t testing.TB, e engine.Engine, mount string) *Desk {
	return &Desk{T: t, Engine: e, Store: memstore.New(), Mount: mount, now: time.Now().UTC().Truncate(time.Second)}
}

// Now is the desk's time.
func (d *Desk) Now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// Wait lets time pass.
func (d *Desk) Wait(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = d.now.Add(by)
}

// Ask calls the engine with a body: an object that is encoded, or the bytes themselves.
func (d *Desk) Ask(op secrets.Operation, path string, body any) (*secrets.Response, error) {
	raw, is := body.([]byte)
	if !is && body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			d.T.Fatal(err)
		}
	}
	return d.do(&secrets.Request{Op: op, Path: d.Mount + path, Mount: d.Mount, Rest: path, Body: raw, Now: d.Now()})
}

func (d *Desk) do(r *secrets.Request) (*secrets.Response, error) {
	ctx := context.Background()
	resp, err := d.Engine.Handle(ctx, d.Store, r)
	for err == nil && resp.Then != nil {
		if err = d.Store.Commit(ctx, 0, resp.Ops); err == nil {
			resp, err = d.Engine.(engine.Stepper).Step(ctx, resp.Then)
		}
	}
	if err == nil && len(resp.Ops) > 0 {
		err = d.Store.Commit(ctx, 0, resp.Ops)
	}
	return resp, err
}

// Tend does what the engine asks of itself, until it asks for nothing.
func (d *Desk) Tend() {
	d.T.Helper()
	for range 1000 {
		list, err := d.Engine.(engine.Tender).Due(context.Background(), d.Store, d.Now())
		if err != nil {
			d.T.Fatal(err)
		}
		if len(list) == 0 {
			return
		}
		for _, r := range list {
			r.Mount, r.Path, r.Now, r.Due = d.Mount, d.Mount+r.Rest, d.Now(), true
			if _, err := d.do(r); err != nil {
				d.T.Fatal(err)
			}
		}
	}
	d.T.Fatal("the engine never stops asking for work")
}

// Data is an answer's object.
type Data map[string]any

// Text is a member that is a text; "" is anything else.
func (m Data) Text(name string) string { s, _ := m[name].(string); return s }

// OK calls the engine and gives the answer's data.
func (d *Desk) OK(op secrets.Operation, path string, body any) Data {
	d.T.Helper()
	resp, err := d.Ask(op, path, body)
	if err != nil {
		d.T.Fatalf("%v %s %v: %v", op, path, body, err)
	}
	out := Data{}
	if resp.Data != nil {
		if err := json.Unmarshal(resp.Data, &out); err != nil {
			d.T.Fatalf("%v %s: %s is no object", op, path, resp.Data)
		}
	}
	return out
}

// Raw calls the engine and gives the body that replaces the envelope.
func (d *Desk) Raw(op secrets.Operation, path string, body any) []byte {
	d.T.Helper()
	resp, err := d.Ask(op, path, body)
	if err != nil || resp.Raw == nil {
		d.T.Fatalf("%v %s: no raw answer: %v", op, path, err)
	}
	return resp.Raw.Body
}

// Refused calls the engine, which must refuse with this kind and, where one is given, text.
func (d *Desk) Refused(kind errkind.Kind, text string, op secrets.Operation, path string, body any) {
	d.T.Helper()
	_, err := d.Ask(op, path, body)
	if !errkind.Is(err, kind) || !strings.Contains(errkind.Text(err), text) {
		d.T.Errorf("%v %s %v: %v, want %v %q", op, path, body, err, kind, text)
	}
}
