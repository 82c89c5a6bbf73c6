package snapcache

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
)

var (
	someServices = []string{"web", "api", "db"}
	someNodes    = []string{"n1", "n2", "n3"}
	someSubjects = func() (list []string) {
		for _, s := range someServices {
			list = append(list, "endpoints/dc1/"+s+"/", "endpoints/dc1/"+s+"/v1", "service/"+s, "rules/"+s,
				"upstream/dc1/"+s+"///", "upstream/dc1/"+s+"/http/250/")
		}
		return append(list, "roots", "rules/")
	}()
	someEntries = []string{
		`{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"http"}}`,
		`{"Kind":"proxy-defaults","Name":"global","Config":{"protocol":"tcp"}}`,
		`{"Kind":"service-defaults","Name":"%s","Protocol":"http","MaxInboundConnections":%d}`,
		`{"Kind":"service-defaults","Name":"%s","Protocol":"grpc"}`,
		`{"Kind":"service-resolver","Name":"%s","ConnectTimeout":"%ds","Subsets":{"v1":{"Filter":"Service.Meta.v == 1"}}}`,
		`{"Kind":"service-resolver","Name":"%s","DefaultSubset":"v1","Subsets":{"v1":{"OnlyPassing":true}},"Failover":{` +
			`"*":{"Service":"api"}}}`,
		`{"Kind":"service-resolver","Name":"%s","Redirect":{"Service":"db"}}`,
		`{"Kind":"service-splitter","Name":"%s","Splits":[{"Weight":90},{"Weight":10,"Service":"db"}]}`,
		`{"Kind":"service-router","Name":"%s","Routes":[{"Match":{"HTTP":{"PathPrefix":"/x"}},"Destination":{` +
			`"Service":"api"}}]}`,
		`{"Kind":"service-intentions","Name":"%s","Sources":[{"Name":"api","Action":"allow"},{"Name":"*","Action":"deny"}]}`,
		`{"Kind":"service-intentions","Name":"%s","Sources":[{"Name":"web","Permissions":[{"Action":"allow","HTTP":{` +
			`"PathPrefix":"/%d"}}]}]}`,
		`{"Kind":"service-intentions","Name":"*","Sources":[{"Name":"*","Action":"allow"}]}`,
		`{"Kind":"service-intentions","Name":"*","Sources":[{"Name":"db","Action":"deny"}]}`,
		`{"Kind":"mesh","TransparentProxy":{"MeshDestinationsOnly":true}}`, `{"Kind":"mesh"}`,
	}
	someKeys = func() (list []string) {
		for _, kind := range []string{"service-defaults", "service-resolver", "service-splitter", "service-router",
			"service-intentions"} {
			for _, s := range someServices {
				list = append(list, kind+"/"+s)
			}
		}
		return append(list, "service-intentions/*", "mesh/mesh", "proxy-defaults/global")
	}()
)

// someChange draws a command; those that the catalog refuses change nothing.
func someChange(t *testing.T, r *rapid.T) catalog.Command {
	node, service := rapid.SampledFrom(someNodes).Draw(r, "node"), rapid.SampledFrom(someServices).Draw(r, "service")
	n := rapid.IntRange(1, 3).Draw(r, "n")
	health := rapid.SampledFrom([]catalog.Health{catalog.Passing, catalog.Warning, catalog.Critical}).Draw(r, "health")
	switch rapid.IntRange(0, 8).Draw(r, "what") {
	case 0, 1:
		c := proxy(node, service, n, &catalog.Check{ID: service, Status: health})
		c.Service.Meta = map[string]string{"v": fmt.Sprint(n)}
		return c
	case 2:
		return &catalog.Register{Node: catalog.Node{Name: node}, SkipNodeUpdate: true,
			Checks: []*catalog.Check{{Node: node, ID: catalog.SerfHealthID, Status: health}}}
	case 3:
		id := service + "-sidecar-proxy"
		return &catalog.Register{Node: catalog.Node{Name: node}, SkipNodeUpdate: true,
			Checks: []*catalog.Check{{Node: node, ID: service, ServiceID: id, ServiceName: id, Status: health,
				Output: fmt.Sprint(n)}}}
	case 4:
		return &catalog.Deregister{Node: node, ServiceID: service + "-sidecar-proxy"}
	case 5:
		return &catalog.Register{Node: catalog.Node{Name: node, Address: fmt.Sprintf("10.0.0.%d", n)},
			Service: &catalog.Service{Node: node, ID: service, Name: service, Connect: catalog.Connect{Native: n == 1},
				Port: 80}}
	case 6:
		return dropRecord(catalog.RecordConfigEntry, rapid.SampledFrom(someKeys).Draw(r, "key"))
	case 7:
		if n == 1 {
			return &catalog.Deregister{Node: node}
		}
	}
	raw := rapid.SampledFrom(someEntries).Draw(r, "entry")
	var args []any
	for i := range raw[:len(raw)-1] {
		switch raw[i : i+2] {
		case "%s":
			args = append(args, service)
		case "%d":
			args = append(args, n)
		}
	}
	if _, err := entry.Decode(fmt.Appendf(nil, raw, args...)); err != nil { // a splitter that names its own service twice
		return &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "k"}}
	}
	return configEntry(t, fmt.Sprintf(raw, args...))
}

// Whatever happens in whatever order, each follower ends with what is made from scratch of
// the State of now; it never goes back, nobody is told what did not change, and the
// builds are bounded by what was touched.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := newHarness(t, Config{Window: rapid.SampledFrom([]time.Duration{-1, time.Millisecond}).Draw(r, "window")})
		defer h.stop()
		all := map[*seen]bool{}
		follow := func() { all[h.follow(rapid.SampledFrom(someSubjects).Draw(r, "subject"), "")] = true }
		for range rapid.IntRange(1, 8).Draw(r, "followers") {
			follow()
		}
		batches := uint64(0)
		for range rapid.IntRange(1, 12).Draw(r, "rounds") {
			for range rapid.IntRange(1, 4).Draw(r, "batches") { // not waited for
				var batch []catalog.Command
				for range rapid.IntRange(1, 3).Draw(r, "commands") {
					batch = append(batch, someChange(t, r))
				}
				_ = h.apply(batch...) // some are refused
				batches++
			}
			if rapid.IntRange(0, 3).Draw(r, "move") == 0 {
				for s := range all {
					s.stop()
					delete(all, s)
					break
				}
				follow()
			}
			if rapid.Bool().Draw(r, "settle") {
				h.check(all)
			}
		}
		h.check(all)
		s := h.Stats()
		// One build for each subject in each batch, and those for who came first.
		if most := batches*uint64(len(someSubjects)) + 64; s.Builds > most || s.Published > s.Builds {
			r.Fatalf("%d builds after %d batches, %d values", s.Builds, batches, s.Published)
		}
		for s := range all {
			for i := 1; i < len(s.values); i++ {
				if string(s.values[i].Body) == string(s.values[i-1].Body) {
					r.Fatalf("%s: told the same twice", s.subject)
				}
			}
		}
		if t.Failed() {
			r.FailNow()
		}
	})
}

// check compares all that followers know with what the State of now makes.
func (h *harness) check(all map[*seen]bool) {
	h.settle()
	for s := range all {
		s.isNow(h.State())
	}
}
