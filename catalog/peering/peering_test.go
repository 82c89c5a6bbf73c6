package peering

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// world is a catalog whose commands are applied at once.
type world struct {
	t  testing.TB
	st *statestore.State
}

func newWorld(t testing.TB) *world { return &world{t, statestore.Empty()} }

func (w *world) apply(cmds ...catalog.Command) {
	w.t.Helper()
	next, results, _ := w.st.Apply(cmds)
	for _, r := range results {
		if r.Err != nil || !r.OK || len(r.TxnErrors) > 0 {
			w.t.Fatalf("refused: %+v", r)
		}
	}
	w.st = next
}

func (w *world) records(ops ...catalog.RecordOp) {
	w.t.Helper()
	if len(ops) > 0 {
		w.apply(&catalog.Records{Ops: ops})
	}
}

func (w *world) register(node, service string, status catalog.Health, more ...func(*catalog.Service)) {
	w.t.Helper()
	s := &catalog.Service{Node: node, ID: service, Name: service, Port: 80, Tags: []string{"v1"},
		Weights: catalog.Weights{Passing: 1, Warning: 1}}
	for _, f := range more {
		f(s)
	}
	w.apply(&catalog.Register{Node: catalog.Node{Name: node, Address: "10.0.0.1", Datacenter: "dc1"}, Service: s,
		Checks: []*catalog.Check{{Node: node, ID: "c-" + s.ID, Name: "c", Status: status, ServiceID: s.ID,
			ServiceName: s.Name, Output: "secret words"}}})
}

func (w *world) export(json string) {
	w.t.Helper()
	w.records(catalog.RecordOp{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordConfigEntry,
		Key: "exported-services/default", Value: []byte(`{"Kind":"exported-services","Name":"default","Services":` + json +
			`}`)}})
}

func (w *world) peer(name string) *Peering {
	w.t.Helper()
	w.records((&Peering{ID: "id-" + name, Name: name, State: Active}).Put())
	p, err := Named(w.st, name)
	if err != nil || p == nil {
		w.t.Fatal(p, err)
	}
	return p
}

// send carries everything that e has for im over, as the wire would.
func send(t testing.TB, from *world, e *Exporter, to *world, im *Importer, p *Peering) (batches int) {
	t.Helper()
	for {
		b, more := e.Next(from.st)
		a, err := ReadAsk((&Ask{ID: "x", Batch: *b}).Encode())
		if err != nil {
			t.Fatal(err)
		}
		if !a.Batch.Empty() {
			ops, err := im.Take(to.st, p, &a.Batch)
			if err != nil {
				t.Fatal(err)
			}
			to.records(ops...)
			batches++
		}
		if !more {
			return batches
		}
	}
}

func TestExportedServicesArrive(t *testing.T) {
	t.Parallel()
	from, to := newWorld(t), newWorld(t)
	from.register("n1", "web", catalog.Passing)
	from.register("n2", "web", catalog.Warning)
	from.register("n1", "web-proxy", catalog.Passing, func(s *catalog.Service) {
		s.Kind, s.ProxyDestination, s.Proxy = catalog.KindConnectProxy, "web", []byte(`{"DestinationServiceName":"web"}`)
	})
	from.register("n1", "db", catalog.Passing)
	from.register("n3", "consul", catalog.Passing)
	from.export(`[{"Name":"web","Consumers":[{"Peer":"east"}]},{"Name":"db","Consumers":[{"Peer":"other"}]}]`)
	p, e, im := to.peer("west"), &Exporter{Peer: "east"}, &Importer{}
	if n := send(t, from, e, to, im, p); n != 1 {
		t.Errorf("%d batches", n)
	}
	if got := Names(to.st, "west"); !slices.Equal(got, []string{"web"}) {
		t.Fatalf("imported: %v", got)
	}
	view := Imported(to.st, "west", "WEB")
	var health []string
	for s := range view.Instances("web") {
		n := view.Node(s.Node)
		if n.Peer != "west" {
			t.Errorf("%s is of the peer %q", n.Name, n.Peer)
		}
		for c := range view.InstanceChecks(s.Node, s.ID) {
			health = append(health, s.Node+" "+c.ID+" "+c.Status.String()+c.Output)
		}
	}
	if want := []string{"n1 web:overall-check passing", "n2 web:overall-check warning"}; !slices.Equal(health, want) {
		t.Errorf("health: %q", health)
	}
	if n := len(slices.Collect(view.ConnectInstances("web"))); n != 1 {
		t.Errorf("%d proxies of web", n)
	}
	if n := to.st.Node("n1"); n != nil || len(slices.Collect(to.st.Instances("web"))) != 0 {
		t.Error("what is imported shows in the catalog itself")
	}
	if got := Nodes(to.st, "west"); len(got) != 2 || got[0].Name != "n1" {
		t.Errorf("nodes: %v", got)
	}

	// What is known already costs nothing, and what changes arrives alone.
	index := Index(to.st, "west", "web")
	from.register("n1", "db", catalog.Critical)
	if n := send(t, from, e, to, im, p); n != 0 {
		t.Errorf("a service that is not exported made %d batches", n)
	}
	if n := send(t, from, &Exporter{Peer: "east"}, to, &Importer{}, p); n != 1 || Index(to.st, "west", "web") != index {
		t.Error("a second connection changed what was the same")
	}
	from.register("n2", "web", catalog.Critical)
	if send(t, from, e, to, im, p); Index(to.st, "west", "web") == index {
		t.Error("a change did not arrive")
	}

	// A wildcard is all but the servers and what only connects.
	from.export(`[{"Name":"*","Consumers":[{"Peer":"east"}]}]`)
	send(t, from, e, to, im, p)
	if got := Names(to.st, "west"); !slices.Equal(got, []string{"db", "web"}) {
		t.Errorf("by the wildcard: %v", got)
	}
	from.apply(&catalog.Deregister{Node: "n1", ServiceID: "db"})
	from.export(`[{"Name":"db","Consumers":[{"Peer":"east"}]}]`)
	send(t, from, e, to, im, p)
	if got := Names(to.st, "west"); len(got) != 0 {
		t.Errorf("taken back: %v", got)
	}
}

// TestSnapshotTakesAway: what was exported when the peer was last heard and is no more goes with the next snapshot, and
// another peer's services of the same name stay.
func TestSnapshotTakesAway(t *testing.T) {
	t.Parallel()
	from, to := newWorld(t), newWorld(t)
	from.register("n1", "web", catalog.Passing)
	from.register("n1", "old", catalog.Passing)
	from.export(`[{"Name":"*","Consumers":[{"Peer":"east"}]}]`)
	p, other := to.peer("west"), to.peer("west2")
	send(t, from, &Exporter{Peer: "east"}, to, &Importer{}, p)
	send(t, from, &Exporter{Peer: "east"}, to, &Importer{}, other)
	from.apply(&catalog.Deregister{Node: "n1", ServiceID: "old"})
	send(t, from, &Exporter{Peer: "east"}, to, &Importer{}, p)
	if got := fmt.Sprint(Names(to.st, "west"), Names(to.st, "west2")); got != "[web] [old web]" {
		t.Error(got)
	}
	for ops := Forget(to.st, "west2", 1); len(ops) > 0; ops = Forget(to.st, "west2", 1) {
		to.records(ops...)
	}
	if got := fmt.Sprint(Names(to.st, "west"), Names(to.st, "west2")); got != "[web] []" {
		t.Error(got)
	}
}

// TestBatchesAreBounded: many services go in several batches, and one that is too large is left out.
func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	from, to := newWorld(t), newWorld(t)
	big := func(n int) func(*catalog.Service) {
		return func(s *catalog.Service) { s.Meta = map[string]string{"x": strings.Repeat("y", n)} }
	}
	for i := range 5 {
		from.register("n1", fmt.Sprintf("s%d", i), catalog.Passing, big(500<<10))
	}
	from.register("n1", "huge", catalog.Passing, big(MaxServiceBytes))
	from.export(`[{"Name":"*","Consumers":[{"Peer":"east"}]}]`)
	e := &Exporter{Peer: "east"}
	if n := send(t, from, e, to, &Importer{}, to.peer("west")); n != 2 {
		t.Errorf("%d batches", n)
	}
	if got := Names(to.st, "west"); len(got) != 5 || slices.Contains(got, "huge") {
		t.Errorf("imported: %v", got)
	}
}

// TestHostilePeer: what no honest peer sends is refused as a whole, and nothing of it is kept.
func TestHostilePeer(t *testing.T) {
	t.Parallel()
	to := newWorld(t)
	p := to.peer("west")
	one := func(change func(*Service)) []byte {
		s := &Service{Name: "web", Instances: []Instance{{Node: &catalog.Node{Name: "n", Address: "10.0.0.1"},
			Service: &catalog.Service{Node: "n", ID: "web", Name: "web", Port: 80}}}}
		change(s)
		return s.Encode()
	}
	long := strings.Repeat("x", 300)
	for name, body := range map[string][]byte{
		"no name":               one(func(s *Service) { s.Name = "" }),
		"a gigantic name":       one(func(s *Service) { s.Name = long }),
		"another service":       one(func(s *Service) { s.Instances[0].Service.Name = "db" }),
		"a node without a name": one(func(s *Service) { s.Instances[0].Node.Name = "" }),
		"a gigantic node":       one(func(s *Service) { s.Instances[0].Node.Name = long }),
		"a gigantic ID":         one(func(s *Service) { s.Instances[0].Service.ID = long }),
		"a port":                one(func(s *Service) { s.Instances[0].Service.Port = 1 << 20 }),
		"too many bytes":        bytes.Repeat([]byte{1}, MaxServiceBytes+1),
		"noise":                 {0xff, 0xff, 0xff},
	} {
		good := one(func(*Service) {})
		ops, err := (&Importer{}).Take(to.st, p, &Batch{Snapshot: true, Done: true, Services: [][]byte{good, body}})
		if err == nil || len(ops) > 0 {
			t.Errorf("%s: %d operations, %v", name, len(ops), err)
		}
	}
	if _, err := (&Importer{}).Take(to.st, p, &Batch{Gone: []string{"web"}}); err == nil {
		t.Error("a change before the snapshot was taken")
	}
	flood := &Importer{mostBytes: 3 * MaxServiceBytes}
	var err error
	for i := 0; err == nil && i < 6; i++ {
		var ops []catalog.RecordOp
		body := one(func(s *Service) {
			s.Name = fmt.Sprint("s", i)
			s.Instances[0].Service.Name, s.Instances[0].Service.Meta = s.Name,
				map[string]string{"x": strings.Repeat("y", MaxServiceBytes-1024)}
		})
		if ops, err = flood.Take(to.st, p, &Batch{Snapshot: true, Services: [][]byte{body}}); err == nil {
			to.records(ops...)
		}
	}
	if !errkind.Is(err, errkind.TooLarge) {
		t.Errorf("a flood of services: %v", err)
	}
	if a := measure(to.st, "west"); a.bytes > flood.mostBytes {
		t.Errorf("%d bytes are kept", a.bytes)
	}
}

// TestPeeringChangedMeanwhile: a batch is refused by the log when its peering was changed since it was read.
func TestPeeringChangedMeanwhile(t *testing.T) {
	t.Parallel()
	from, to := newWorld(t), newWorld(t)
	from.register("n1", "web", catalog.Passing)
	from.export(`[{"Name":"web","Consumers":[{"Peer":"east"}]}]`)
	p := to.peer("west")
	b, _ := (&Exporter{Peer: "east"}).Next(from.st)
	ops, err := (&Importer{}).Take(to.st, p, b)
	if err != nil {
		t.Fatal(err)
	}
	ops = append(ops, p.Same())
	p.State = Deleting
	to.records(p.Put())
	if _, results, _ := to.st.Apply([]catalog.Command{&catalog.Records{Ops: ops}}); results[0].OK {
		t.Error("a deleted peering took something in")
	}
}

// TestNodesOfPeersByName: nodes come and go with the services on them, and each peer has its own.
func TestNodesOfPeersByName(t *testing.T) {
	t.Parallel()
	from, to := newWorld(t), newWorld(t)
	from.register("N1", "web", catalog.Passing)
	from.register("n2", "db", catalog.Passing)
	from.export(`[{"Name":"*","Consumers":[{"Peer":"east"}]}]`)
	p, e, im, x := to.peer("west"), &Exporter{Peer: "east"}, &Importer{}, &NodeIndex{}
	found := func(peer, name, want string) {
		t.Helper()
		got := ""
		if n := x.Find(to.st, peer, name); n != nil {
			got = n.Name + " of " + n.Peer
		}
		if got != want {
			t.Errorf("%s of %s: %q, want %q", name, peer, got, want)
		}
	}
	found("west", "n1", "")
	send(t, from, e, to, im, p)
	found("west", "n1", "N1 of west")
	found("west", "n2", "n2 of west")
	found("west", "n3", "")
	found("north", "n1", "")
	from.apply(&catalog.Deregister{Node: "n2"})
	send(t, from, e, to, im, p)
	found("west", "N1", "N1 of west")
	found("west", "n2", "")
	to.records(Forget(to.st, "west", 10)...)
	found("west", "n1", "")
	if len(x.peers) != 0 {
		t.Errorf("%d peers are kept", len(x.peers))
	}
}

// TestImportedServicesHaveAddresses: each service that proxies reach gets one address that no other has, and keeps it
// until it is gone.
func TestImportedServicesHaveAddresses(t *testing.T) {
	t.Parallel()
	from, to := newWorld(t), newWorld(t)
	proxied := func(name string) {
		from.register("n1", name, catalog.Passing)
		from.register("n1", name+"-proxy", catalog.Passing, func(s *catalog.Service) {
			s.Kind, s.ProxyDestination = catalog.KindConnectProxy, name
			s.Proxy = []byte(`{"DestinationServiceName":"` + name + `"}`)
		})
	}
	proxied("Web")
	proxied("db")
	from.register("n1", "plain", catalog.Passing)
	from.export(`[{"Name":"*","Consumers":[{"Peer":"east"}]}]`)
	p, e, im := to.peer("west"), &Exporter{Peer: "east"}, &Importer{}
	address := func(name string) string {
		t.Helper()
		v := catalog.ReadManualIPs(to.st.Record(catalog.RecordVirtualIP, catalog.ManualIPsKey("west", name)))
		if len(v.IPs) == 0 {
			return ""
		}
		a, err := netip.ParseAddr(v.IPs[0])
		if len(v.IPs) != 1 || v.Peer != "west" || err != nil || !netip.MustParsePrefix("240.0.0.0/4").Contains(a) {
			t.Errorf("%s: %+v %v", name, v, err)
		}
		return v.IPs[0]
	}
	send(t, from, e, to, im, p)
	web := address("web")
	if web == "" || address("db") == "" || web == address("db") || address("plain") != "" {
		t.Errorf("web %s, db %s, plain %s", web, address("db"), address("plain"))
	}
	// Somebody else has it: the search goes on.
	other := newWorld(t)
	other.records(catalog.ManualIPs{Service: "own", IPs: []string{web}}.Put(0))
	send(t, from, &Exporter{Peer: "east"}, other, &Importer{}, other.peer("west"))
	v := catalog.ReadManualIPs(other.st.Record(catalog.RecordVirtualIP, "west/web"))
	if len(v.IPs) != 1 || v.IPs[0] == web {
		t.Errorf("an address that is taken: %v", v.IPs)
	}
	from.register("n2", "Web", catalog.Warning)
	send(t, from, e, to, im, p)
	if got := address("web"); got != web {
		t.Errorf("another instance: %s, was %s", got, web)
	}
	from.apply(&catalog.Deregister{Node: "n1", ServiceID: "db"}, &catalog.Deregister{Node: "n1", ServiceID: "db-proxy"})
	send(t, from, e, to, im, p)
	if address("db") != "" || address("web") != web {
		t.Errorf("a service that is gone: db %s, web %s", address("db"), address("web"))
	}
	for ops := Forget(to.st, "west", 1); len(ops) > 0; ops = Forget(to.st, "west", 1) {
		to.records(ops...)
	}
	if address("web") != "" {
		t.Error("the end of the peering leaves an address")
	}
}

// TestAddressesAreToldApart: a service here that is called as a peer's service is by its key has addresses of its own,
// also those that an older release stored, and neither takes the other's.
func TestAddressesAreToldApart(t *testing.T) {
	t.Parallel()
	from, old, fresh := newWorld(t), newWorld(t), newWorld(t)
	from.register("n1", "web", catalog.Passing, func(s *catalog.Service) { s.Native = true })
	from.export(`[{"Name":"*","Consumers":[{"Peer":"east"}]}]`)
	own := catalog.ManualIPs{Service: "West/Web", IPs: []string{"10.9.0.1"}}
	legacy := own.Put(0)
	legacy.Record.Key = "west/web"
	old.records(legacy)
	fresh.records(own.Put(0))
	theirs := ""
	for _, w := range []*world{old, fresh} {
		ips := func(peer, service string) string {
			return strings.Join(catalog.ManualIPsOf(w.st, peer, service).IPs, " ")
		}
		if here, there := ips("", "west/web"), ips("west", "web"); here != "10.9.0.1" || there != "" {
			t.Errorf("before the peer: %q and %q", here, there)
		}
		e, im, p := &Exporter{Peer: "east"}, &Importer{}, w.peer("west")
		send(t, from, e, w, im, p)
		here, there := ips("", "west/web"), ips("west", "web")
		if here != "10.9.0.1" || there == "" || theirs != "" && there != theirs {
			t.Errorf("with the peer: %q and %q, %q elsewhere", here, there, theirs)
		}
		theirs = there
		w.records(Forget(w.st, "west", 10)...)
		if here, there := ips("", "west/web"), ips("west", "web"); here != "10.9.0.1" || there != "" {
			t.Errorf("after the peer: %q and %q", here, there)
		}
	}
	// What an older release stores, and a peer that goes before it is moved.
	last := newWorld(t)
	last.records(legacy)
	if ops := dropVirtual(last.st, "west/web"); ops != nil {
		t.Errorf("%+v", ops)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	good := Token{Addresses: []string{"10.0.0.1:8300"}, ServerName: "server.dc1.consul", PeerID: "id", Secret: "s",
		Remote: Remote{Datacenter: "dc1"}}
	got, err := ReadToken(good.Encode())
	if err != nil || got.PeerID != "id" || got.Targets()[0] != "10.0.0.1:8300" || got.Remote.Datacenter != "dc1" {
		t.Fatal(got, err)
	}
	manual := good
	manual.Manual = []string{"lb.example:443"}
	if got, err := ReadToken(manual.Encode()); err != nil || got.Targets()[0] != "lb.example:443" {
		t.Error(got, err)
	}
	for name, change := range map[string]func(*Token){
		"no ID":        func(t *Token) { t.PeerID = "" },
		"no secret":    func(t *Token) { t.Secret = "" },
		"no addresses": func(t *Token) { t.Addresses = nil },
		"an address":   func(t *Token) { t.Addresses = []string{"nowhere"} },
		"a port":       func(t *Token) { t.Addresses = []string{"a:99999"} },
		"no name":      func(t *Token) { t.CA, t.ServerName = []string{"x"}, "" },
		"a CA":         func(t *Token) { t.CA = []string{"x"} },
		"many":         func(t *Token) { t.Addresses = slices.Repeat([]string{"a:1"}, 100) },
	} {
		bad := good
		change(&bad)
		if _, err := ReadToken(bad.Encode()); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "%", base64.StdEncoding.EncodeToString([]byte("[]")),
		strings.Repeat("A", maxTokenBytes+4)} {
		if _, err := ReadToken(text); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestNamesAndSecrets(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"east": true, "a": true, "dc-2_x": true, "": false, "East": false, "-a": false,
		"a-": false, "a.b": false, "a/b": false, strings.Repeat("a", 65): false} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	if !Is(Hash("x"), "x") || Is(Hash("x"), "y") || Is(nil, "") || Is(make([]byte, 32), "") {
		t.Error("secrets")
	}
}

func FuzzToken(f *testing.F) {
	f.Add((&Token{Addresses: []string{"10.0.0.1:8300"}, PeerID: "id", Secret: "s"}).Encode())
	f.Add("e30=")
	f.Fuzz(func(t *testing.T, text string) {
		if token, err := ReadToken(text); err == nil {
			if _, err := ReadToken(token.Encode()); err != nil {
				t.Errorf("read again: %v", err)
			}
		}
	})
}

// FuzzMessages: whatever comes is refused, or is the same when it is written and read again.
func FuzzMessages(f *testing.F) {
	s := &Service{Name: "web", Instances: []Instance{{Node: &catalog.Node{Name: "n"},
		Service: &catalog.Service{ID: "web", Name: "web"}}}}
	f.Add((&Ask{ID: "a", Secret: "b", Batch: Batch{Snapshot: true, Services: [][]byte{s.Encode()}}}).Encode())
	f.Add((&Reply{Session: 7, Batch: Batch{Gone: []string{"x"}}}).Encode())
	f.Add(s.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := ReadAsk(b); err == nil {
			if again, err := ReadAsk(a.Encode()); err != nil || !bytes.Equal(again.Encode(), a.Encode()) {
				t.Errorf("a request: %v", err)
			}
		}
		if r, err := ReadReply(b); err == nil {
			if again, err := ReadReply(r.Encode()); err != nil || !bytes.Equal(again.Encode(), r.Encode()) {
				t.Errorf("a reply: %v", err)
			}
		}
		if s, err := ReadService(b); err == nil {
			if again, err := ReadService(s.Encode()); err != nil || !bytes.Equal(again.Encode(), s.Encode()) {
				t.Errorf("a service: %v", err)
			}
			_ = s.registrations("p")
		}
	})
}
