package snapcache

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/peered"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/ca"
)

// A change of terminating gateways that is heard of while a value is made does not make the value newer than its State:
// another server's value of that index would then count as known.
func TestNoIndexBeyondTheState(t *testing.T) {
	h := newHarness(t, Config{Window: -1})
	h.do(proxy("n1", "web", 1))
	h.log.terminating.Store(h.State().Index() + 5)
	if v := h.follow("endpoints/dc1/web/", "").last(); v.Index > h.State().Index() {
		t.Errorf("index %d of a State at %d", v.Index, h.State().Index())
	}
}

// A server that applies a change and its undoing at once finds what there was before. It says so under the index of the
// undoing: an agent may come with what was between, from a server that was faster.
func TestToAndFroAtOnce(t *testing.T) {
	h := newHarness(t, Config{Window: -1})
	allow := configEntry(t, `{"Kind":"service-intentions","Name":"*","Sources":[{"Name":"api","Action":"allow"}]}`)
	deny := configEntry(t, `{"Kind":"service-intentions","Name":"*","Sources":[{"Name":"api","Action":"deny"}]}`)
	h.do(allow)
	s := h.follow("rules/", "")
	before := s.last()
	h.do(deny, allow)
	h.settle()
	if v := s.last(); v.Index != h.State().Index() || s.count() != 1 {
		t.Errorf("%d values, the last at %d of %d", s.count(), v.Index, h.State().Index())
	}
	if v := h.follow("rules/", "").last(); v.Index != h.State().Index() || !bytes.Equal(v.Body, before.Body) {
		t.Errorf("who comes now is told of index %d of %d", v.Index, h.State().Index())
	}
	if told := h.Stats().Told; told != 0 {
		t.Errorf("%d were told of it", told)
	}
}

// TestRulesAreNotOlderThanWhatIsKnown: who comes for rules while those that follow them wait for their window may have
// heard of a newer State by another subject, and is given what holds now. The others are told when their time comes.
func TestRulesAreNotOlderThanWhatIsKnown(t *testing.T) {
	h := newHarness(t, Config{Window: time.Hour})
	s := h.follow("rules/web", "")
	for i, action := range []string{"allow", "deny", "allow"} {
		h.do(configEntry(t, fmt.Sprintf(
			`{"Kind":"service-intentions","Name":"web","Sources":[{"Name":"caller-%d","Action":%q}]}`, i, action)))
		if i == 0 {
			h.settle() // the first is told at once
		}
	}
	come := func(n int, builds uint64) {
		t.Helper()
		before := h.Stats().Builds
		for range n {
			h.follow("rules/web", "").isNow(h.State())
		}
		if got := h.Stats().Builds - before; got != builds {
			t.Errorf("%d builds for %d who came, want %d", got, n, builds)
		}
	}
	come(20, 1) // one for all of them
	h.do(proxy("n1", "other", 1))
	come(20, 0)
	h.do(configEntry(t, `{"Kind":"service-intentions","Name":"web","Sources":[{"Name":"late","Action":"allow"}]}`))
	come(20, 1)
	if s.count() != 2 {
		t.Errorf("who followed was told %d times", s.count())
	}
}

// The first intention of a service says nothing new to the others: they are sent nothing. Who comes later learns that
// the rules of the others are not for that service, whatever it has heard of the service itself.
func TestOwnersAreToldWithTheRules(t *testing.T) {
	h := newHarness(t, Config{Window: -1})
	h.do(configEntry(t, `{"Kind":"service-intentions","Name":"*","Sources":[{"Name":"api","Action":"allow"}]}`))
	s := h.follow("rules/", "")
	owned := func(v feed.Value) bool {
		t.Helper()
		r, err := mesh.ReadRules(v.Body, v.At)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mesh.ReadRules(v.Body[:len(v.Body)-v.Tail], v.At); err != nil {
			t.Errorf("without the tail: %v", err)
		}
		return r.Owners.Have("web")
	}
	if owned(s.last()) {
		t.Error("no intention names it")
	}
	own := configEntry(t, `{"Kind":"service-intentions","Name":"web","Sources":[{"Name":"api","Action":"deny"}]}`)
	h.do(own)
	h.settle()
	if v := h.follow("rules/", "").last(); !owned(v) || v.Index != h.State().Index() {
		t.Errorf("owned %t at %d of %d", owned(v), v.Index, h.State().Index())
	}
	h.do(own) // another rule, not the first
	h.settle()
	if told, builds := h.Stats().Told, h.Stats().Builds; told != 0 || builds != 2 {
		t.Errorf("%d were told, %d builds", told, builds)
	}
	h.do(configEntry(t, `{"Kind":"service-intentions","Name":"*","Sources":[{"Name":"api","Action":"deny"}]}`))
	h.settle()
	if !owned(s.last()) || s.count() != 2 {
		t.Errorf("%d values", s.count())
	}
	h.do(dropRecord(catalog.RecordConfigEntry, "service-intentions/web"))
	h.settle()
	if owned(h.follow("rules/", "").last()) {
		t.Error("no intention names it any more")
	}
}

// A server that begins gives the rules that services share the index of any config entry's change: which of them were
// first intentions is not known any more. It says since when they are the same, so that agents that come with them are
// not sent them again.
func TestSharedRulesAreSteady(t *testing.T) {
	h := newHarness(t, Config{Window: -1})
	h.do(configEntry(t, `{"Kind":"service-intentions","Name":"*","Sources":[{"Name":"api","Action":"allow"}]}`))
	changed := h.State().Index()
	had := h.follow("rules/", "").last()
	h.do(configEntry(t, `{"Kind":"service-defaults","Name":"other","Protocol":"http"}`))
	h.do(configEntry(t, `{"Kind":"service-intentions","Name":"web","Sources":[{"Name":"api","Action":"deny"}]}`))
	again, err := New(Config{Catalog: h.store})
	if err != nil {
		t.Fatal(err)
	}
	var v feed.Value
	stop, err := again.Follow(feed.Identity{}, "rules/", func(now feed.Value) { v = now }, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if v.Steady != changed || v.Index != h.State().Index() || !saysTheSame(&v, &had) {
		t.Errorf("steady from %d to %d, want %d to %d", v.Steady, v.Index, changed, h.State().Index())
	}
	h.do(configEntry(t, `{"Kind":"service-intentions","Name":"*","Sources":[{"Name":"api","Action":"deny"}]}`))
	h.settle()
	if v := h.follow("rules/", "").last(); v.Steady != h.State().Index() {
		t.Errorf("they changed at %d, and are steady from %d", h.State().Index(), v.Steady)
	}
	if v := h.follow("rules/web", "").last(); v.Steady != 0 {
		t.Errorf("%+v", v)
	}
}

// One endpoint change of one upstream is one build and one encoding, however many follow it.
func TestOneChangeIsBuiltOnce(t *testing.T) {
	h := newHarness(t, Config{})
	const followers = 2000
	for i := range 10 {
		h.do(proxy(fmt.Sprintf("n%d", i), "web", 21000+i), proxy(fmt.Sprintf("n%d", i), "api", 22000+i))
	}
	var all []*seen
	for range followers {
		all = append(all, h.follow("endpoints/dc1/web/", ""))
	}
	for _, other := range []string{"endpoints/dc1/api/", "service/web", "service/api", "upstream/dc1/web///", "roots"} {
		all = append(all, h.follow(other, ""))
	}
	h.settle()
	before := h.Stats()
	h.do(&catalog.Deregister{Node: "n3", ServiceID: "web-sidecar-proxy"})
	h.settle()
	after := h.Stats()
	if builds, encoded, published, told := after.Builds-before.Builds, after.Encoded-before.Encoded,
		after.Published-before.Published, after.Told-before.Told; builds != 1 || encoded != 1 || published != 1 ||
		told != followers {
		t.Errorf("%d builds, %d encodings, %d values, %d followers told", builds, encoded, published, told)
	}
	body := all[0].last().Body
	for i, s := range all {
		s.isNow(h.State())
		if want := 2; i < followers && (s.count() != want || &s.last().Body[0] != &body[0]) {
			t.Fatalf("follower %d was told %d times, or has bytes of its own", i, s.count())
		}
	}
	for _, s := range all {
		s.stop()
	}
	if s := h.Stats(); s.Subjects != 0 || s.Followers != 0 || len(h.by) != 0 {
		t.Errorf("left behind: %+v, %d inputs", s, len(h.by))
	}
}

// An intention for every destination is one build and one encoding for all services that no intention names,
// and one for a destination is one, however many services and followers there are.
func TestAnIntentionIsBuiltOnce(t *testing.T) {
	h := newHarness(t, Config{Window: -1})
	const services, agents = 300, 50
	h.do(configEntry(t, `{"Kind":"service-intentions","Name":"s7","Sources":[{"Name":"api","Action":"allow"}]}`))
	var shared []*seen
	for range agents {
		shared = append(shared, h.follow("rules/", ""))
	}
	own := h.follow("rules/s7", "")
	for i := range services {
		h.follow(fmt.Sprintf("service/s%d", i), "")
	}
	for _, c := range []struct {
		destination, source    string
		values, builds, toldOf uint64
	}{
		{"*", "ops", 2, 2, agents + 1}, // the shared rules, and those of s7, which hold what is for all, too
		{"s7", "shop", 1, 1, 1},
	} {
		before := h.Stats()
		h.do(configEntry(t, fmt.Sprintf(`{"Kind":"service-intentions","Name":%q,"Sources":[{"Name":%q,"Action":"allow"}]}`,
			c.destination, c.source)))
		h.settle()
		s := h.Stats()
		if builds, encoded, values, told := s.Builds-before.Builds, s.Encoded-before.Encoded, s.Published-before.Published,
			s.Told-before.Told; builds != c.builds || encoded != c.builds || values != c.values || told != c.toldOf {
			t.Errorf("an intention for %s: %d builds, %d encodings, %d values, %d followers told", c.destination, builds,
				encoded, values, told)
		}
		own.isNow(h.State())
		for _, f := range shared {
			f.isNow(h.State())
			if &f.last().Body[0] != &shared[0].last().Body[0] {
				t.Fatal("a follower has bytes of its own")
			}
		}
	}
}

// What a change touches is found by what it changes, and what stays the same is not told.
func TestFromAChangeToItsSubjects(t *testing.T) {
	h := newHarness(t, Config{Window: -1})
	h.do(configEntry(t, `{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"http"}}`),
		configEntry(t, `{"Kind":"service-resolver","Name":"web","Subsets":{"v1":{}}}`),
		configEntry(t, `{"Kind":"service-splitter","Name":"web","Splits":[{"Weight":50},{"Weight":50,"Service":"next"}]}`),
		proxy("n1", "web", 1, &catalog.Check{ID: "c", Output: "a"}), proxy("n2", "next", 2))
	subjects := []string{"endpoints/dc1/web/", "endpoints/dc1/web/v1", "endpoints/dc1/next/", "endpoints/dc2/web/",
		"service/web", "service/next", "rules/web", "rules/", "upstream/dc1/web///", "upstream/dc1/next///", "roots"}
	all := map[string]*seen{}
	for _, s := range subjects {
		all[s] = h.follow(s, "")
	}
	check := &catalog.Check{Node: "n1", ID: "c", ServiceID: "web-sidecar-proxy", ServiceName: "web-sidecar-proxy",
		Output: "b"}
	failed := *check
	failed.Status = catalog.Critical
	for _, c := range []struct {
		name   string
		change catalog.Command
		builds uint64
		told   string
	}{
		// a filter may look at it
		{"a check says something else", &catalog.Register{Node: catalog.Node{Name: "n1"}, SkipNodeUpdate: true,
			Checks: []*catalog.Check{check}}, 1, ""},
		{"a check fails", &catalog.Register{Node: catalog.Node{Name: "n1"}, SkipNodeUpdate: true,
			Checks: []*catalog.Check{&failed}}, 2, "endpoints/dc1/web/ endpoints/dc1/web/v1"},
		{"another instance", proxy("n3", "next", 3), 1, "endpoints/dc1/next/"},
		{"another service", proxy("n3", "other", 3), 0, ""},
		{"the node of an instance", proxy("n3", "other", 4), 1, "endpoints/dc1/next/"}, // its address is another
		{"a key", &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "k"}}, 0, ""},
		{"an entry of another service", configEntry(t, `{"Kind":"service-defaults","Name":"other","Protocol":"tcp"}`), 0, ""},
		// the first
		{"a rule for one", configEntry(t, `{"Kind":"service-intentions","Name":"web","Sources":[{"Name":"api",`+
			`"Action":"allow"}]}`), 3, "rules/web service/web"},
		{"another rule for one", configEntry(t,
			`{"Kind":"service-intentions","Name":"web","Sources":[{"Name":"api","Action":"deny"}]}`), 1, "rules/web"},
		{"a rule for all",
			configEntry(t, `{"Kind":"service-intentions","Name":"*","Sources":[{"Name":"*","Action":"allow"}]}`), 2,
			"rules/ rules/web"},
		{"a subset", configEntry(t, `{"Kind":"service-resolver","Name":"web","Subsets":{"v1":{"OnlyPassing":true}}}`), 2, ""},
		{"a resolver of a target", configEntry(t, `{"Kind":"service-resolver","Name":"next","ConnectTimeout":"9s"}`), 2,
			"upstream/dc1/next/// upstream/dc1/web///"},
		{"the mesh", configEntry(t, `{"Kind":"mesh","TransparentProxy":{"MeshDestinationsOnly":true}}`), 2,
			"service/next service/web"},
		{"the end of a route", dropRecord(catalog.RecordConfigEntry, "service-splitter/web"), 1, "upstream/dc1/web///"},
		{"the end of the rules for one", dropRecord(catalog.RecordConfigEntry, "service-intentions/web"), 3,
			"rules/web service/web"},
		{"what is not looked at any more", dropRecord(catalog.RecordConfigEntry, "service-resolver/next"), 1,
			"upstream/dc1/next///"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, counts := h.Stats(), map[string]int{}
			for s, f := range all {
				counts[s] = f.count()
			}
			h.do(c.change)
			h.settle()
			var told []string
			for s, f := range all {
				if f.count() != counts[s] {
					told = append(told, s)
				}
				if !strings.HasPrefix(s, "endpoints/dc2/") {
					f.isNow(h.State())
				}
			}
			slices.Sort(told)
			if got := strings.Join(told, " "); got != c.told {
				t.Errorf("told %q, want %q", got, c.told)
			}
			if builds := h.Stats().Builds - before.Builds; builds != c.builds {
				t.Errorf("%d builds, want %d", builds, c.builds)
			}
		})
	}
}

// What a peer says of its mesh, and what it exports, wakes those that depend on it.
func TestFromAPeerToItsSubjects(t *testing.T) {
	cfg, err := ca.ParseConfig([]byte(`{"Provider":"consul","Config":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	root, err := ca.NewRoot(cfg, clusterID, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	says := &peered.Trust{Domain: "far.consul", Datacenter: "dc9", As: "home", Roots: []string{root.RootCert}}
	far, _, _ := statestore.Empty().Apply([]catalog.Command{proxy("n9", "db", 21000)})
	h := newHarness(t, Config{Window: -1,
		Imported: func(st *statestore.State, peer, service string) (*statestore.State, string, bool) {
			return far, "tcp", st.Record(catalog.RecordImported, peered.ImportKey(peer, service)) != nil
		}})
	h.do(configEntry(t, `{"Kind":"service-intentions","Name":"web","Sources":[{"Name":"x","Peer":"east",`+
		`"Action":"allow"}]}`), proxy("n1", "web", 1), &catalog.Register{Node: catalog.Node{Name: "n1"}, SkipNodeUpdate: true,
		Service: &catalog.Service{Node: "n1", ID: "web", Name: "web"}})
	all := map[string]*seen{}
	for _, s := range []string{"service/web", "service/next", "rules/web", "rules/", "upstream/dc1/db////east",
		"upstream/dc1/db///", "passages", "roots"} {
		all[s] = h.follow(s, "")
	}
	for _, c := range []struct {
		name   string
		change catalog.Command
		told   string
	}{
		{"a service is exported", configEntry(t, `{"Kind":"exported-services","Name":"default","Services":[{"Name":"web",`+
			`"Consumers":[{"Peer":"east"}]}]}`), "passages"},
		{"a peer tells of its mesh", record(catalog.RecordTrust, "east", string(says.Encode())),
			"passages rules/web service/web upstream/dc1/db////east"},
		{"a peer exports", record(catalog.RecordImported, "east/db", "it"), "upstream/dc1/db////east"},
		{"another peer exports", record(catalog.RecordImported, "west/db", "it"), ""},
		{"a peer is gone", dropRecord(catalog.RecordTrust, "east"), "passages rules/web service/web upstream/dc1/db////east"},
	} {
		t.Run(c.name, func(t *testing.T) {
			counts := map[string]int{}
			for s, f := range all {
				counts[s] = f.count()
			}
			h.do(c.change)
			h.settle()
			var told []string
			for s, f := range all {
				if f.count() != counts[s] {
					told = append(told, s)
				}
			}
			slices.Sort(told)
			if got := strings.Join(told, " "); got != c.told {
				t.Errorf("told %q, want %q", got, c.told)
			}
		})
	}
}

// The first change goes out at once; those within the window after it go together at its end.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Config{Window: 50 * time.Millisecond})
		s := h.follow("endpoints/dc1/web/", "")
		begin := time.Now()
		told := func() int { synctest.Wait(); return s.count() - 1 }
		change := func(port int) { h.do(proxy("n1", "web", port)) }
		for i := range 5 {
			change(100 + i)
			if told() != 1 {
				t.Fatalf("%d values after %s", told(), time.Since(begin))
			}
			<-time.After(time.Millisecond)
		}
		if _, index := h.Newest(); index >= h.State().Index() {
			t.Errorf("Newest is %d while changes up to %d wait", index, h.State().Index())
		}
		<-time.After(50 * time.Millisecond)
		if told() != 2 {
			t.Errorf("%d values", told())
		}
		if at := s.last().At; !at.Equal(begin.Add(time.Millisecond)) {
			t.Errorf("it waited since %s", at.Sub(begin))
		}
		s.isNow(h.State())
		<-time.After(time.Second)
		change(200)
		if told() != 3 {
			t.Errorf("%d values", told())
		}
		h.stop()
	})
}

func TestRefusedSubjects(t *testing.T) {
	h := newHarness(t, Config{MaxSubjects: 1})
	for _, s := range []string{"", "nonsense", "endpoints/dc1/web", "service/"} {
		if _, err := h.Follow(feed.Identity{}, s, func(feed.Value) { t.Error("told") },
			nil); errkind.Of(err) != errkind.Invalid {
			t.Errorf("%q: %v", s, err)
		}
	}
	one := h.follow("roots", "")
	if _, err := h.Follow(feed.Identity{}, "service/web", func(feed.Value) { t.Error("told") },
		nil); errkind.Of(err) != errkind.Overloaded {
		t.Errorf("one too many: %v", err)
	}
	again := h.follow("roots", "")
	one.stop()
	again.stop()
	h.follow("service/web", "")
}

// After a restore all are told what holds now, also where the index went back; and all
// again when the new history has its name.
func TestRestore(t *testing.T) {
	h := newHarness(t, Config{Window: -1})
	h.do(proxy("n1", "web", 1))
	old := h.State()
	s, unchanged := h.follow("endpoints/dc1/web/", ""), h.follow("endpoints/dc1/api/", "")
	h.do(proxy("n1", "web", 2))
	h.do(proxy("n1", "web", 3))
	h.settle()
	h.restore(old)
	polltest.Until(t, func() bool { return bytes.Equal(s.last().Body, scratch(t, old, s.subject)) }, "the old value")
	was, _ := h.Newest()
	h.do(record(catalog.RecordSystem, catalog.HistoryKey, "9"))
	h.settle()
	for _, f := range []*seen{s, unchanged} {
		f.isNow(h.State())
		if now, _ := h.Newest(); now == was || f.last().Generation != now || f.last().Generation == 0 {
			t.Errorf("%s is of generation %x, before the restore it was %x", f.subject, f.last().Generation, was)
		}
	}
}

// A server that has no State yet tells nothing: it would take away what others said. Then it tells everything.
func TestBeforeTheClusterHasAName(t *testing.T) {
	h := newHarness(t, Config{})
	named := h.State()
	h.restore(statestore.Empty())
	if h.Ready() {
		t.Error("ready without a State")
	}
	s := &seen{t: t, subject: "service/web"}
	stop, err := h.Follow(feed.Identity{}, s.subject, s.set, s.end)
	if err != nil || s.count() != 0 {
		t.Fatalf("%v, told %d times", err, s.count())
	}
	defer stop()
	h.restore(named)
	polltest.Until(t, func() bool { return s.count() > 0 }, "a value")
	s.isNow(h.State())
	if !h.Ready() {
		t.Error("not ready with a State")
	}
}

func TestValuesCanBeRead(t *testing.T) {
	h := newHarness(t, Config{})
	h.do(proxy("n1", "web", 1))
	e, sv, rules, u, far := h.follow("endpoints/dc1/web/", ""), h.follow("service/web", ""), h.follow("rules/", ""),
		h.follow("upstream/dc1/web///", ""), h.follow("endpoints/dc2/web/", "")
	for _, f := range []*seen{e, far} {
		r, err := mesh.ReadResource(f.last().Body, time.Time{})
		if want := strings.Split(f.subject, "/")[1]; err != nil || r.Type != mesh.TypeEndpoints || r.Name != "web.default."+
			want+".internal."+clusterID+".consul" {
			t.Errorf("%+v %v", r, err)
		}
	}
	if v, err := mesh.ReadService(sv.last().Body); err != nil || v.Protocol != "tcp" || v.OwnRules {
		t.Errorf("%+v %v", v, err)
	}
	if v, err := mesh.ReadRules(rules.last().Body, time.Time{}); err != nil {
		t.Errorf("%+v %v", v, err)
	}
	if v, err := mesh.ReadUpstream(u.last().Body); err != nil || len(v.Chain.Targets) != 1 {
		t.Errorf("%+v %v", v, err)
	}
	// A service that is gone has endpoints still: none.
	h.do(&catalog.Deregister{Node: "n1"})
	h.settle()
	e.isNow(h.State())
}

// Followers come and go while everything changes: nobody is told after its stop, and
// nothing is left behind.
func TestComingAndGoing(t *testing.T) {
	h := newHarness(t, Config{Window: time.Millisecond})
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			for i := range 150 {
				a := h.follow(fmt.Sprintf("endpoints/dc1/s%d/", (i+w)%3), "")
				c := h.follow(fmt.Sprintf("upstream/dc1/s%d///", i%3), "")
				a.stop()
				c.stop()
			}
		})
	}
	group.Go(func() {
		for i := range 300 {
			h.do(proxy("n1", fmt.Sprintf("s%d", i%3), 1+i%7),
				configEntry(t, fmt.Sprintf(`{"Kind":"service-resolver","Name":"s%d","ConnectTimeout":"%ds"}`, i%3, 1+i%5)))
		}
	})
	group.Wait()
	h.settle()
	if s := h.Stats(); s.Subjects != 0 || s.Followers != 0 {
		t.Errorf("left behind: %+v", s)
	}
	h.Cache.mu.Lock()
	defer h.Cache.mu.Unlock()
	if len(h.by) != 0 || h.log.marks.Len() != 0 {
		t.Errorf("%d inputs, %d marks", len(h.by), h.log.marks.Len())
	}
}

func TestConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil || errors.Unwrap(err) == nil && !strings.Contains(err.Error(), "Catalog") {
		t.Error(err)
	}
}

// TestTheSameAfterWhatWasAhead: who was given a value before the others, and then one that says the same, is told that
// it still holds, and not as if it were news.
func TestTheSameAfterWhatWasAhead(t *testing.T) {
	value := func(turn, index uint64, body string, ahead bool) *version {
		return &version{feed.Value{Generation: 1, Index: index, Body: []byte(body)}, turn, ahead}
	}
	var got []string
	f := &follower{set: func(v feed.Value) {
		got = append(got, fmt.Sprint(v.Index, " ", string(v.Body), " since ", v.Since))
	}}
	for _, v := range []*version{value(1, 5, "b", true), value(2, 5, "b", false), value(3, 7, "b", false),
		value(4, 8, "a", false), value(5, 9, "b", false)} {
		f.give(v)
	}
	if want := []string{"5 b since 0", "7 b since 5", "8 a since 0", "9 b since 0"}; !slices.Equal(got, want) {
		t.Errorf("told %q; want %q", got, want)
	}
}
