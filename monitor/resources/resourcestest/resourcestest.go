// Package resourcestest has configurations for tests of what reads them: writes are applied at once, without servers.
package resourcestest

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
)

// Direct applies commands at once, one after the other, as a group of one would, and counts them.
type Direct struct {
	Writes atomic.Int64

	mu sync.Mutex
	to *resources.Resources
}

// Propose implements what Serve wants.
func (d *Direct) Propose(_ context.Context, cmd []byte) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Writes.Add(1)
	return d.to.ApplyBatch([][]byte{cmd})[0], nil
}

// New returns an empty configuration, and what it writes by.
func New() (*resources.Resources, *Direct) {
	r := resources.New(slog.New(slog.DiscardHandler))
	d := &Direct{to: r}
	r.Serve(d)
	return r, d
}

// Put writes an object under its own name.
func Put(t testing.TB, r *resources.Resources, typ string, o monitor.Object) {
	t.Helper()
	namespace, name := o.Key()
	if err := r.Write(t.Context(), objects.Op{Verb: objects.Put, Type: typ, Namespace: namespace, Name: name,
		Encoded: tagproto.Append(nil, o)}); err != nil {
		t.Fatal(err)
	}
}
