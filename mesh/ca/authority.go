package ca

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// The keys of the authority's records.
const (
	configKey  = "config"
	rootPrefix = "root/"
)

// tries is how often a change is made again because the records have changed meanwhile.
const tries = 8

// Store holds the records.
type Store interface {
	State() *statestore.State
	SetRecords(ctx context.Context, ops ...catalog.RecordOp) (result catalog.Result, ok bool, err error)
}

// Authority keeps configuration and roots in the catalog's records, private keys
// among them: any server can sign, and a snapshot holds them.
type Authority struct {
	store Store
	now   func() time.Time
	first *Config
}

// New makes an Authority over the store. first is what a new cluster begins with; nil is the default.
func New(store Store, now func() time.Time, first *Config) *Authority {
	if first == nil {
		first = DefaultConfig()
	}
	return &Authority{store, now, first}
}

// Stored is a root with its record's indexes.
type Stored struct {
	*Root
	CreateIndex, ModifyIndex uint64
}

// Roots are the roots of a State, the active one first.
func Roots(st *statestore.State) ([]Stored, error) {
	var roots []Stored
	for r := range st.Records(catalog.RecordCA, rootPrefix) {
		root := &Root{}
		if err := json.Unmarshal(r.Value, root); err != nil {
			return nil, errkind.E(errkind.Corrupt, "record "+r.Key, err)
		}
		roots = append(roots, Stored{root, r.CreateIndex, r.ModifyIndex})
	}
	slices.SortFunc(roots, func(a, b Stored) int {
		switch {
		case a.Active != b.Active && a.Active:
			return -1
		case a.Active != b.Active:
			return 1
		}
		return b.RotatedOutAt.Compare(a.RotatedOutAt)
	})
	return roots, nil
}

// Epoch changes with the roots that peers are verified by.
func Epoch(st *statestore.State) uint64 {
	h := fnv.New64a()
	for r := range st.Records(catalog.RecordCA, rootPrefix) {
		_, _ = io.WriteString(h, r.Key) // hashes never fail
		_ = binary.Write(h, binary.BigEndian, r.ModifyIndex)
	}
	return h.Sum64()
}

// active returns the root that signs.
func active(roots []Stored) (Stored, bool) {
	if len(roots) == 0 || !roots[0].Active {
		return Stored{}, false
	}
	return roots[0], true
}

// Active is the root of a State that signs. Before there is one it is of kind Unavailable.
func Active(st *statestore.State) (Stored, error) {
	roots, err := Roots(st)
	if err != nil {
		return Stored{}, err
	}
	root, ok := active(roots)
	if !ok {
		return Stored{}, errNotFounded
	}
	return root, nil
}

// TrustDomainOf is the trust domain of a State. Before the cluster has an identity it is of kind Unavailable.
func TrustDomainOf(st *statestore.State) (string, error) {
	id, err := clusterID(st)
	return TrustDomain(id), err
}

// Configuration is the configuration of a State, with its record's indexes. Before
// there is one it is of kind Unavailable.
func Configuration(st *statestore.State) (c *Config, createIndex, modifyIndex uint64, err error) {
	r := st.Record(catalog.RecordCA, configKey)
	if r == nil {
		return nil, 0, 0, errNotFounded
	}
	if c, err = ParseConfig(r.Value); err != nil {
		return nil, 0, 0, errkind.E(errkind.Corrupt, "record "+configKey, err)
	}
	return c, r.CreateIndex, r.ModifyIndex, nil
}

var errNotFounded = errkind.New(errkind.Unavailable,
	"the certificate authority is not there yet: the first leader is about to make it")

// Tend sees to it, on the leader, that there is an authority and that roots go when
// nothing uses them any more. It does nothing when all is well, and may be called at any time.
func (a *Authority) Tend(ctx context.Context) error {
	st := a.store.State()
	c, _, _, err := Configuration(st)
	if errkind.Is(err, errkind.Unavailable) {
		return a.found(ctx, st)
	}
	if err != nil {
		return err
	}
	roots, err := Roots(st)
	if err != nil {
		return err
	}
	var ops []catalog.RecordOp
	for _, r := range roots {
		if r.Expired(c.LeafTTL, a.now()) {
			ops = append(ops, catalog.RecordOp{Verb: catalog.RecordDeleteCAS, Record: catalog.Record{Kind: catalog.RecordCA,
				Key: rootPrefix + r.ID, ModifyIndex: r.ModifyIndex}})
		}
	}
	if len(ops) > 0 {
		_, _, err = a.store.SetRecords(ctx, ops...) // who was faster did the same
	}
	return errkind.E(errkind.Of(err), "drop roots that were rotated out", err)
}

// found makes configuration and root in one command. Somebody who was faster is as well.
func (a *Authority) found(ctx context.Context, st *statestore.State) error {
	id, err := clusterID(st)
	if err != nil {
		return err
	}
	c := a.first
	root, err := NewRoot(c, id, a.now())
	if err != nil {
		return err
	}
	config, err := c.op(catalog.RecordCAS, 0)
	if err != nil {
		return err
	}
	first, err := root.op(0)
	if err != nil {
		return err
	}
	_, _, err = a.store.SetRecords(ctx, config, first)
	return errkind.E(errkind.Of(err), "found the certificate authority", err)
}

func clusterID(st *statestore.State) (string, error) {
	r := st.Record(catalog.RecordSystem, catalog.ClusterIDKey)
	if r == nil {
		return "", errNotFounded
	}
	return string(r.Value), nil
}

// op writes the configuration, if its record is at the index.
func (c *Config) op(verb catalog.RecordVerb, index uint64) (catalog.RecordOp, error) {
	value, err := c.Encode()
	return catalog.RecordOp{Verb: verb, Record: catalog.Record{Kind: catalog.RecordCA, Key: configKey, Value: value,
		ModifyIndex: index}}, err
}

// op writes the root, if its record is at the index.
func (r *Root) op(index uint64) (catalog.RecordOp, error) {
	value, err := json.Marshal(r)
	return catalog.RecordOp{Verb: catalog.RecordCAS, Record: catalog.Record{Kind: catalog.RecordCA, Key: rootPrefix + r.ID,
		Value: value, ModifyIndex: index}}, err
}

// SetConfiguration replaces the configuration, and rotates when it asks for another
// root. It is all or nothing. The State must be the leader's newest.
func (a *Authority) SetConfiguration(ctx context.Context, raw []byte) error {
	c, err := ParseConfig(raw)
	if err != nil {
		return err
	}
	for range tries {
		ops, err := a.change(a.store.State(), c)
		if err != nil {
			return err
		}
		_, ok, err := a.store.SetRecords(ctx, ops...)
		if err != nil {
			return errkind.E(errkind.Of(err), "set the authority's configuration", err)
		}
		if ok {
			return nil
		}
	}
	return errkind.New(errkind.Overloaded, "the authority's configuration changes too fast")
}

// change is what makes c the configuration. All records that it was made from are compared.
func (a *Authority) change(st *statestore.State, c *Config) ([]catalog.RecordOp, error) {
	id, err := clusterID(st)
	if err != nil {
		return nil, err
	}
	_, _, index, err := Configuration(st)
	if err != nil {
		return nil, err
	}
	roots, err := Roots(st)
	if err != nil {
		return nil, err
	}
	now, there := active(roots)
	if !there {
		return nil, errNotFounded
	}
	config, err := c.op(catalog.RecordCAS, index)
	if err != nil {
		return nil, err
	}
	ops := []catalog.RecordOp{config}
	rotate, err := NeedsRotation(c, now.Root)
	if err != nil || !rotate {
		return ops, err
	}
	next, old, err := Rotate(c, now.Root, id, a.now())
	if err != nil {
		return nil, err
	}
	var before uint64 // a root of the operator's own may come back
	if i := slices.IndexFunc(roots, func(r Stored) bool { return strings.EqualFold(r.ID, next.ID) }); i >= 0 {
		before = roots[i].ModifyIndex
	}
	fresh, err := next.op(before)
	if err != nil {
		return nil, err
	}
	retired, err := old.op(now.ModifyIndex)
	return append(ops, fresh, retired), err
}
