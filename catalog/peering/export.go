package peering

import (
	"cmp"
	"crypto/sha256"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/peered"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// Batch is a part of what one cluster exports to another. The first ones are a snapshot, up to Done; those that follow
// say what changed.
type Batch struct {
	Snapshot bool
	Done     bool
	// Services are encoded ones, Gone the names of those that are exported no more.
	Services [][]byte
	Gone     []string
	// Trust is what the cluster says of its mesh, encoded; empty: nothing new.
	Trust []byte
}

// Empty tells whether the batch says nothing.
func (b *Batch) Empty() bool {
	return !b.Snapshot && len(b.Services) == 0 && len(b.Gone) == 0 && len(b.Trust) == 0
}

func (b *Batch) pass(c *pack.Coder) {
	c.Bool(&b.Snapshot, &b.Done)
	pack.List(c, &b.Services, MaxServices, func(p *[]byte) { c.Copy(p) })
	pack.List(c, &b.Gone, MaxServices, func(p *string) { c.String(p) })
	c.Copy(&b.Trust)
}

// ExportedTo lists the services of a State that exported-services names for a peer, by name. A wildcard is every
// service but the servers' own, and but proxies and gateways, which go with what they stand for.
func ExportedTo(st *statestore.State, peer string) (names []string) {
	e, ok := entry.Stored(st, entry.ExportedServices, "default").(*entry.Exported)
	if !ok {
		return nil
	}
	for _, s := range e.Services {
		for _, c := range s.Consumers {
			if c.Peer != peer {
				continue
			}
			if s.Name != "*" {
				names = append(names, strings.ToLower(s.Name))
				continue
			}
			for sum := range st.ServiceNames() {
				if sum.Name != catalog.ServerServiceName && plain(st, sum.Name) {
					names = append(names, strings.ToLower(sum.Name))
				}
			}
		}
	}
	return sorted(names)
}

// plain tells whether a service has an instance that is neither a proxy nor a gateway.
func plain(st *statestore.State, name string) bool {
	for s := range st.Instances(name) {
		if s.Kind == catalog.KindTypical {
			return true
		}
	}
	return false
}

// Exporter remembers what a peer was sent. It belongs to one connection of one goroutine; another connection begins
// anew, and costs the peer nothing for what it has already.
type Exporter struct {
	Peer string
	// Trust is what is said of this cluster's mesh to a peer; nil, or no value, where there is none.
	Trust func(st *statestore.State, peer string) *peered.Trust

	done bool // the snapshot is out
	sent map[string]sent
	told []byte // of the mesh
	// large are the services that are too large to be sent, as of the last batch.
	large []string
}

// sent is a service that the peer has: at an index of the State, in these bytes. Nothing was sent of a service without
// instances.
type sent struct {
	index uint64
	sum   [sha256.Size]byte
	there bool
}

// Large lists the services that were left out because they are larger than MaxServiceBytes.
func (e *Exporter) Large() []string { return e.large }

// Next is what the peer lacks of a State, as far as it fits into one batch. more says that another one is due at once.
func (e *Exporter) Next(st *statestore.State) (b *Batch, more bool) {
	if e.sent == nil {
		e.sent = map[string]sent{}
	}
	b = &Batch{Snapshot: !e.done}
	if e.Trust != nil {
		if t := e.Trust(st, e.Peer); t != nil {
			if body := t.Encode(); string(body) != string(e.told) {
				b.Trust, e.told = body, body
			}
		}
	}
	names := ExportedTo(st, e.Peer)
	if len(names) > MaxServices {
		names = names[:MaxServices]
	}
	size, current := 0, make(map[string]bool, len(names))
	e.large = e.large[:0]
	for _, name := range names {
		current[name] = true
		index := max(st.ServiceIndex(name), st.ConnectIndex(name), protocolIndex(st, name))
		old, known := e.sent[name]
		if known && old.index == index {
			continue
		}
		if size > MaxBatchBytes {
			more = true
			continue
		}
		size += e.one(b, st, name, index, old)
	}
	if !more {
		for name, old := range e.sent {
			if !current[name] {
				if old.there {
					b.Gone = append(b.Gone, name)
				}
				delete(e.sent, name)
			}
		}
		b.Gone, b.Done, e.done = sorted(b.Gone), true, true
	}
	return b, more
}

// protocolIndex changes when a service may speak another protocol.
func protocolIndex(st *statestore.State, name string) uint64 {
	return max(st.RecordIndex(catalog.RecordConfigEntry, entry.Key(entry.ServiceDefaults, name)),
		st.RecordIndex(catalog.RecordConfigEntry, entry.Key(entry.ProxyDefaults, entry.Global)))
}

// one adds a service to a batch unless the peer has it so, and returns how many bytes that took.
func (e *Exporter) one(b *Batch, st *statestore.State, name string, index uint64, old sent) int {
	next := sent{index: index}
	var body []byte
	if s := ServiceOf(st, name); s != nil {
		if body = s.Encode(); len(body) > MaxServiceBytes {
			e.large = append(e.large, name)
			body = nil
		}
	}
	if body == nil {
		if old.there {
			b.Gone = append(b.Gone, name)
		}
		e.sent[name] = next
		return 0
	}
	next.sum, next.there = sha256.Sum256(body), true
	e.sent[name] = next
	if old.there && old.sum == next.sum {
		return 0
	}
	b.Services = append(b.Services, body)
	return len(body)
}

// Importer takes in what a peer sends, over one connection.
type Importer struct {
	// Domain is this cluster's own trust domain, which no peer may claim.
	Domain string

	doubt string
	begun bool
	done  bool // the snapshot is in
	seen  map[string]bool
	// mostBytes is in the place of MaxImportedBytes, in tests.
	mostBytes int
}

// Take is the operations that make the catalog of a State agree with a batch; none when it does already. They belong
// into one command with p.Same. Errors are what no honest peer does, and end the connection.
func (im *Importer) Take(st *statestore.State, p *Peering, b *Batch) (ops []catalog.RecordOp, err error) {
	switch {
	case b.Snapshot && im.done, !b.Snapshot && !im.done:
		return nil, errkind.New(errkind.Invalid, "a batch of a peer that is out of turn")
	case !im.begun:
		im.begun, im.seen = true, map[string]bool{}
	}
	if len(b.Trust) > 0 {
		if ops, err = im.trust(st, p, b.Trust); err != nil {
			return nil, err
		}
	}
	have, addresses := measure(st, p.Name), &virtuals{st: st}
	for _, body := range b.Services {
		s, err := ReadService(body)
		if err != nil {
			return nil, err
		}
		key := importKey(p.Name, s.Name)
		if b.Snapshot {
			im.seen[key] = true
		}
		body = s.Encode() // as we write it, whatever a newer release adds
		if old := st.Record(catalog.RecordImported, key); old == nil || string(old.Value) != string(body) {
			have.put(old, len(body))
			ops = append(ops, catalog.RecordOp{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordImported,
				Key: key, Value: body}})
		}
		ops = append(ops, addresses.give(p.Name, s)...)
	}
	for _, name := range b.Gone {
		if key := importKey(p.Name, name); st.Record(catalog.RecordImported, key) != nil {
			ops = append(append(ops, dropImport(key)), dropVirtual(st, key)...)
		}
	}
	most := cmp.Or(im.mostBytes, MaxImportedBytes)
	if have.services > MaxServices || have.bytes > most || len(im.seen) > MaxServices {
		return nil, errkind.Errorf(errkind.TooLarge, "the peer exports %d services of %d bytes: at most %d of %d are taken",
			have.services, have.bytes, MaxServices, most)
	}
	if b.Snapshot && b.Done {
		for r := range st.Records(catalog.RecordImported, importKey(p.Name, "")) {
			if !im.seen[r.Key] {
				ops = append(append(ops, dropImport(r.Key)), dropVirtual(st, r.Key)...)
			}
		}
		im.done, im.seen = true, nil
	}
	return ops, nil
}

// Doubt is why nothing that the peer said last of its mesh is believed; "" when it is. Services go to and fro all the
// same: a cluster may be a peer twice, and one that was made from a copy of another one's data has the other's domain.
func (im *Importer) Doubt() string { return im.doubt }

// trust takes in what a peer says of its mesh.
func (im *Importer) trust(st *statestore.State, p *Peering, body []byte) ([]catalog.RecordOp, error) {
	t, err := peered.Read(body)
	if err != nil {
		return nil, err
	}
	if im.doubt = ""; t.Domain == im.Domain || peered.Taken(st, p.Name, t.Domain) {
		im.doubt = "its trust domain " + t.Domain + " is this cluster's own or another peer's"
		return peered.Drop(st, p.Name), nil
	}
	return peered.Put(st, p.Name, t), nil
}

// amount is how much is kept of a peer.
type amount struct{ services, bytes int }

func measure(st *statestore.State, peer string) (a amount) {
	for r := range st.Records(catalog.RecordImported, importKey(peer, "")) {
		a.services++
		a.bytes += len(r.Value)
	}
	return a
}

func (a *amount) put(old *catalog.Record, size int) {
	if old == nil {
		a.services++
	} else {
		a.bytes -= len(old.Value)
	}
	a.bytes += size
}

// importKey is the key of an imported service's record.
func importKey(peer, service string) string { return peered.ImportKey(peer, service) }

func dropImport(key string) catalog.RecordOp {
	return catalog.RecordOp{Verb: catalog.RecordDelete, Record: catalog.Record{Kind: catalog.RecordImported, Key: key}}
}

// Forget is the operations that remove at most some of what came from a peer, and at last what it said of its mesh;
// none when nothing is left.
func Forget(st *statestore.State, peer string, most int) (ops []catalog.RecordOp) {
	for r := range st.Records(catalog.RecordImported, importKey(peer, "")) {
		if len(ops) >= most {
			return ops
		}
		ops = append(append(ops, dropImport(r.Key)), dropVirtual(st, r.Key)...)
	}
	if len(ops) < most {
		ops = append(ops, peered.Drop(st, peer)...)
	}
	return ops
}
