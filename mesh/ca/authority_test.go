package ca

import (
	"context"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// memory is a Store of one process.
type memory struct {
	st     *statestore.State
	before func() // runs once, before the next command
}

func newMemory(t *testing.T) *memory {
	t.Helper()
	m := &memory{st: statestore.Empty()}
	op := catalog.RecordOp{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordSystem,
		Key: catalog.ClusterIDKey, Value: []byte(cluster)}}
	if _, ok, err := m.SetRecords(t.Context(), op); err != nil || !ok {
		t.Fatal(ok, err)
	}
	return m
}

// State implements Store.
func (m *memory) State() *statestore.State { return m.st }

// SetRecords implements Store.
func (m *memory) SetRecords(_ context.Context, ops ...catalog.RecordOp) (catalog.Result, bool, error) {
	if run := m.before; run != nil {
		m.before = nil
		run()
	}
	next, results, _ := m.st.Apply([]catalog.Command{&catalog.Records{Ops: ops}})
	m.st = next
	return results[0], results[0].OK, results[0].Err
}

func rootsIn(t *testing.T, m *memory, want int) []Stored {
	t.Helper()
	roots, err := Roots(m.st)
	if err != nil || len(roots) != want {
		t.Fatalf("%d roots, want %d: %v", len(roots), want, err)
	}
	return roots
}

func TestAuthorityOverItsLife(t *testing.T) {
	m, clock := newMemory(t), now
	a := New(m, func() time.Time { return clock }, nil)
	if err := a.SetConfiguration(t.Context(), []byte(`{"Provider":"consul"}`)); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("configured before it is there: %v", err)
	}
	for range 2 { // the second finds all well
		if err := a.Tend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first := rootsIn(t, m, 1)[0]
	index := m.st.RecordsIndex(catalog.RecordCA)
	if err := a.SetConfiguration(t.Context(), []byte(`{"Provider":"consul","Config":{"LeafCertTTL":"2h"}}`)); err != nil {
		t.Fatal(err)
	}
	if c, _, at, err := Configuration(m.st); err != nil || c.LeafTTL != 2*time.Hour || at <= index {
		t.Errorf("configuration %+v at %d: %v", c, at, err)
	}
	rootsIn(t, m, 1)

	// Somebody else changes the configuration between the look and the write: it is looked at again.
	other := New(m, a.now, nil)
	m.before = func() {
		if err := other.SetConfiguration(t.Context(),
			[]byte(`{"Provider":"consul","Config":{"LeafCertTTL":"3h"}}`)); err != nil {
			t.Error(err)
		}
	}
	if err := a.SetConfiguration(t.Context(),
		[]byte(`{"Provider":"consul","Config":{"LeafCertTTL":"2h","PrivateKeyBits":384}}`)); err != nil {
		t.Fatal(err)
	}
	roots := rootsIn(t, m, 2)
	if roots[0].PrivateKeyBits != 384 || roots[1].ID != first.ID || roots[1].Active ||
		roots[1].CreateIndex != first.CreateIndex || roots[1].ModifyIndex <= first.ModifyIndex {
		t.Errorf("after the rotation: %+v", roots)
	}
	clock = clock.Add(3 * time.Hour)
	if err := a.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	rootsIn(t, m, 2)
	clock = clock.Add(2 * time.Hour)
	if err := a.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := rootsIn(t, m, 1); left[0].ID != roots[0].ID {
		t.Errorf("left is %s", left[0].ID)
	}
}

// Two leaders-to-be that found at once make one root between them.
func TestFoundedOnce(t *testing.T) {
	m := newMemory(t)
	a := New(m, func() time.Time { return now }, nil)
	m.before = func() {
		if err := a.Tend(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := a.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	rootsIn(t, m, 1)
}
