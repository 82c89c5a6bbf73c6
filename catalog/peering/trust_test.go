package peering

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/peered"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/pack"
)

func trustOf(t testing.TB, domain string) *peered.Trust {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &peered.Trust{Domain: domain, Datacenter: "dc1", As: "east",
		Roots: []string{string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}}
}

// TestTrustIsTold: what a cluster says of its mesh arrives with the snapshot, follows its changes, and goes with all
// else that came from the peer.
func TestTrustIsTold(t *testing.T) {
	t.Parallel()
	from, to := newWorld(t), newWorld(t)
	says := trustOf(t, "far.consul")
	e := &Exporter{Peer: "east", Trust: func(_ *statestore.State, peer string) *peered.Trust { return says }}
	p, im := to.peer("west"), &Importer{Domain: "near.consul"}
	if n := send(t, from, e, to, im, p); n != 1 || peered.Of(to.st, "west") == nil {
		t.Fatalf("%d batches, %+v", n, peered.Of(to.st, "west"))
	}
	if n := send(t, from, e, to, im, p); n != 0 {
		t.Errorf("the same again: %d batches", n)
	}
	next := *says
	next.Gateways = []peered.Gateway{{Address: "192.0.2.1", Port: 8443}}
	says = &next
	if n := send(t, from, e, to, im, p); n != 1 || len(peered.Of(to.st, "west").Gateways) != 1 {
		t.Errorf("another gateway: %d batches, %+v", n, peered.Of(to.st, "west"))
	}
	to.records(Forget(to.st, "west", 500)...)
	if peered.Of(to.st, "west") != nil || len(Forget(to.st, "west", 500)) != 0 {
		t.Error("it is there still")
	}
}

// TestForeignTrustDomains: no peer says that it is this cluster, or another peer.
func TestForeignTrustDomains(t *testing.T) {
	t.Parallel()
	to := newWorld(t)
	p := to.peer("west")
	to.records(peered.Put(to.st, "north", trustOf(t, "north.consul"))...)
	for domain, want := range map[string]bool{"far.consul": true, "near.consul": false, "north.consul": false} {
		im := &Importer{Domain: "near.consul"}
		ops, err := im.Take(to.st, p, &Batch{Snapshot: true, Trust: trustOf(t, domain).Encode()})
		if doubt := im.Doubt(); err != nil || want != (len(ops) == 1) || want != (doubt == "") ||
			!want && !strings.Contains(doubt, domain) {
			t.Errorf("%s: %v, %q, %v", domain, ops, im.Doubt(), err)
		}
	}
}

// TestFormerReleasesAreUnderstood: a batch without trust and a service without a protocol are what a former release
// sends, and it passes over both.
func TestFormerReleasesAreUnderstood(t *testing.T) {
	t.Parallel()
	former := pack.AppendRecord(nil, func(c *pack.Coder) {
		b := Batch{Snapshot: true, Done: true, Gone: []string{"x"}}
		c.Bool(&b.Snapshot, &b.Done)
		pack.List(c, &b.Services, MaxServices, func(p *[]byte) { c.Copy(p) })
		pack.List(c, &b.Gone, MaxServices, func(p *string) { c.String(p) })
	})
	var b Batch
	r := pack.Read(former)
	pack.ReadRecord(r, b.pass)
	if r.Err() != nil || !b.Done || len(b.Trust) != 0 || !slices.Equal(b.Gone, []string{"x"}) {
		t.Errorf("%+v, %v", b, r.Err())
	}
	s := Service{Name: "web"}
	old := pack.AppendRecord(nil, func(c *pack.Coder) {
		c.String(&s.Name)
		pack.List(c, &s.Instances, maxInstances, func(i *Instance) { c.Record(i.pass) })
	})
	if got, err := ReadService(old); err != nil || got.Name != "web" || got.Protocol != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestProtocolIsExported: what the proxies of a service speak goes with it, and follows the config entries.
func TestProtocolIsExported(t *testing.T) {
	t.Parallel()
	from, to := newWorld(t), newWorld(t)
	from.register("n1", "web", catalog.Passing)
	from.export(`[{"Name":"web","Consumers":[{"Peer":"east"}]}]`)
	p, e, im := to.peer("west"), &Exporter{Peer: "east"}, &Importer{}
	send(t, from, e, to, im, p)
	if protocol, ok := Exported(to.st, "west", "Web"); protocol != "tcp" || !ok {
		t.Errorf("%q %t", protocol, ok)
	}
	from.records(catalog.RecordOp{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordConfigEntry,
		Key: "service-defaults/web", Value: []byte(`{"Kind":"service-defaults","Name":"web","Protocol":"grpc"}`)}})
	send(t, from, e, to, im, p)
	if protocol, ok := Exported(to.st, "west", "web"); protocol != "grpc" || !ok {
		t.Errorf("%q %t", protocol, ok)
	}
	if _, ok := Exported(to.st, "west", "db"); ok {
		t.Error("a service that nobody exports")
	}
}
