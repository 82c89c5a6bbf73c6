package filter

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-bexpr"
	"pgregory.net/rapid"

	"corbel.dev/corbel/catalog"
)

func entry() *Entry {
	return &Entry{
		Node: &catalog.Node{Name: "n1", Address: "10.0.0.1", Meta: map[string]string{"env": "prod", "odd key": "x"}},
		Service: &catalog.Service{ID: "web-1", Name: "web", Port: 80, Tags: []string{"v1", "canary"},
			Weights:         catalog.Weights{Passing: 1},
			TaggedAddresses: map[string]catalog.ServiceAddress{"lan": {Address: "10.1.1.1", Port: 9}},
			Connect: catalog.Connect{Proxy: []byte(`{"DestinationServiceName":"db","Config":{"protocol":"http","n":3,"on":true},` +
				`"Upstreams":[{"DestinationName":"a"},{"DestinationName":"b"}]}`)}},
		Checks: []*catalog.Check{{ID: "serfHealth", Status: catalog.Passing},
			{ID: "c", Status: catalog.Critical, ServiceTags: []string{"t"}}},
	}
}

func TestMatch(t *testing.T) {
	for text, want := range map[string]bool{
		`Service.Service == web`:                                                        true,
		`Service.Service=="web"`:                                                        true,
		"Service.Service == `web`":                                                      true,
		`Service.Service != web`:                                                        false,
		`Service.Port == 80`:                                                            true,
		`Service.Port == 0x50`:                                                          false, // refused below
		`Service.EnableTagOverride == false`:                                            true,
		`Service.Connect.Native != true`:                                                true,
		`v1 in Service.Tags`:                                                            true,
		`v2 not in Service.Tags`:                                                        true,
		`Service.Tags contains canary`:                                                  true,
		`Service.Tags not contains canary`:                                              false,
		`Service.Tags is not empty`:                                                     true,
		`Node.Meta.env == prod`:                                                         true,
		`Node.Meta["odd key"] == x`:                                                     true,
		`Node.Meta.none == x`:                                                           false,
		`Node.Meta.none != x`:                                                           true,
		`Node.Meta.none is empty`:                                                       true,
		`Node.Meta.none matches "x"`:                                                    false,
		`Node.Meta.none not matches "x"`:                                                true,
		`env in Node.Meta`:                                                              true,
		`Node.Meta is empty`:                                                            false,
		`Node.Locality.Zone == a`:                                                       false,
		`Node.Locality.Zone != a`:                                                       true,
		`Checks.Status == critical`:                                                     true,
		`Checks.Status == warning`:                                                      false,
		`t in Checks.ServiceTags`:                                                       true,
		`Checks is not empty`:                                                           true,
		`Service.TaggedAddresses.lan.Port == 9`:                                         true,
		`Service.TaggedAddresses.wan.Port == 9`:                                         false,
		`lan in Service.TaggedAddresses`:                                                true,
		`Service.Service matches "^w.b$"`:                                               true,
		`Service.Service not matches "^x"`:                                              true,
		`"eb" in Service.Service`:                                                       true,
		`Service.Proxy.DestinationServiceName == db`:                                    true,
		`Service.Proxy.Config.protocol == http`:                                         true,
		`Service.Proxy.Config.n == 3`:                                                   true,
		`Service.Proxy.Config.on == true`:                                               true,
		`Service.Proxy.Upstreams.DestinationName == b`:                                  true,
		`Service.Proxy.Upstreams is empty`:                                              false,
		`not Service.Service == db`:                                                     true,
		`not not Service.Service == web`:                                                true,
		`not (Service.Service == web or Service.Port == 1)`:                             false,
		`Service.Port == 1 or Service.Port == 80`:                                       true,
		`Service.Port == 1 and Service.Port == 80 or v1 in Service.Tags`:                true,
		`(Service.Port == 80) and ( Node.Node == "n1" )`:                                true,
		`any Service.Tags as t { t == canary }`:                                         true,
		`all Service.Tags as t { t matches "^v" }`:                                      false,
		`any Checks as c { c.Status == critical and c.CheckID == c }`:                   true,
		`any Checks as c { c.Status == critical and c.CheckID == "x" }`:                 false,
		`all Checks as _, c { c.Status != warning }`:                                    true,
		`any Node.Meta as k { k == env }`:                                               true,
		`any Node.Meta as k, v { k == env and v == prod }`:                              true,
		`any Node.Meta as k, _ { k == none }`:                                           false,
		`all Service.TaggedAddresses as n, a { a.Port == 9 }`:                           true,
		`any Service.Tags as t { any Node.Meta as k, v { v == prod and t == v1 } }`:     true,
		`Service.Port == 1 or any Service.Tags as t { t == v1 and Service.Port == 80 }`: true,
		`any Service.Proxy.Upstreams as u { u.DestinationName == b }`:                   true,
		`any Service.Proxy.Upstreams as u { u.DestinationName == c }`:                   false,
		`"/Service/Service" == web`:                                                     true,
		`"/Node/Meta/env" == prod`:                                                      true,
		`v1 in "/Service/Tags"`:                                                         true,
		`"/Service/Proxy/Config/protocol" == http`:                                      true,
	} {
		f, err := Compile(Entries, text)
		if text == `Service.Port == 0x50` {
			if err == nil {
				t.Errorf("%s: the grammar has no hexadecimal numbers", text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.Match(entry()); got != want {
			t.Errorf("%s is %v", text, got)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, text := range []string{
		"Bogus == 1", "Node.Bogus == 1", "Node == 1", "Service.Tags == v1", "Service.Port matches x", "Service.Port == x",
		"Service.Port is empty",
		"Service.EnableTagOverride == perhaps", "Checks == 1", "Checks.Status", "==", "(", "Service.Port == 80)",
		"(Service.Port == 80", `Service.Service == "web`,
		`Service.Service matches "("`, "Service.Port == 80 and", "Service.Port == 80 xor Service.Port == 1", "a..b == 1",
		"Node.Meta.a.b == 1", "Node.Meta == 1",
		"any Service.Tags as t { t == v1", "any Service.Tags as t t == v1 }", "any Service.Port as p { p == 1 }",
		"any Bogus as p { p == 1 }",
		"any Service.Tags as a, a { a == v1 }", "any Service.Tags as _ { Service.Port == 1 }",
		"any Service.Tags as t { x == v1 }", "any Service.Tags as t { t == v1 } and Service.Port == 1",
		`"/Service/ Port" == 1`, `"//" == 1`, "Service.Port == 007", "Service.Port == 1.", "Node.Meta[env] == prod",
		`Node.Meta["env" == prod`, "not", "in Service.Tags", "v1 in", "\x00",
		strings.Repeat("(", MaxDepth+5) + "Service.Port == 1" + strings.Repeat(")", MaxDepth+5),
		strings.Repeat("not ", MaxDepth*100) + "Service.Port == 1",
		strings.Repeat("x", MaxBytes+1), strings.Repeat("Service.Port==1 or ", MaxTerms/2) + strings.Repeat(" ", 10),
	} {
		if f, err := Compile(Entries, text); err == nil {
			t.Errorf("%.60q was taken: %v", text, f)
		}
	}
	if f, err := Compile(Entries, "  "); f != nil || err != nil || !f.Match(entry()) {
		t.Error("an empty expression matches all")
	}
}

// oracle is the view that the reference library filters.
type oracle struct {
	Node       string            `bexpr:"Node"`
	Address    string            `bexpr:"Address"`
	Datacenter string            `bexpr:"Datacenter"`
	ID         string            `bexpr:"ID"`
	Meta       map[string]string `bexpr:"Meta"`
}

type serviceOracle struct {
	Service           string            `bexpr:"Service"`
	ID                string            `bexpr:"ID"`
	Port              int               `bexpr:"Port"`
	Tags              []string          `bexpr:"Tags"`
	Meta              map[string]string `bexpr:"Meta"`
	EnableTagOverride bool              `bexpr:"EnableTagOverride"`
}

var (
	word  = rapid.SampledFrom([]string{"a", "b", "ab", "prod", "v1", "x-y", "1", "", "a b"})
	value = rapid.Custom(func(t *rapid.T) string { return `"` + word.Draw(t, "word") + `"` })
)

// term draws one comparison that both sides can read.
func drawTerm(t *rapid.T) string {
	switch rapid.IntRange(0, 5).Draw(t, "term") {
	case 0:
		return fmt.Sprintf("Service %s %s", rapid.SampledFrom([]string{"==", "!=", "contains", "not contains"}).Draw(t, "op"),
			value.Draw(t, "value"))
	case 1:
		return fmt.Sprintf("%s %s Tags", value.Draw(t, "value"), rapid.SampledFrom([]string{"in", "not in"}).Draw(t, "op"))
	case 2:
		return fmt.Sprintf("Port %s %d", rapid.SampledFrom([]string{"==", "!="}).Draw(t, "op"),
			rapid.IntRange(0, 3).Draw(t, "port"))
	case 3:
		return fmt.Sprintf("%s %s", rapid.SampledFrom([]string{"Tags", "Meta", "Service", "ID"}).Draw(t, "sel"),
			rapid.SampledFrom([]string{"is empty", "is not empty"}).Draw(t, "op"))
	case 4:
		return fmt.Sprintf("Meta.%s %s %s", rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key"),
			rapid.SampledFrom([]string{"==", "!=", "matches", "not matches", "contains"}).Draw(t, "op"), value.Draw(t, "value"))
	}
	return fmt.Sprintf("EnableTagOverride == %v", rapid.Bool().Draw(t, "flag"))
}

func drawExpression(t *rapid.T, depth int) string {
	if depth == 0 {
		return drawTerm(t)
	}
	switch rapid.IntRange(0, 6).Draw(t, "shape") {
	case 0:
		return drawExpression(t, depth-1) + " and " + drawExpression(t, depth-1)
	case 1:
		return drawExpression(t, depth-1) + " or " + drawExpression(t, depth-1)
	case 2:
		return "not " + drawTerm(t)
	case 3:
		return "( " + drawExpression(t, depth-1) + " )"
	case 4:
		return fmt.Sprintf("( %s Tags as t { t %s %s or %s } )", rapid.SampledFrom([]string{"any", "all"}).Draw(t,
			"quantifier"),
			rapid.SampledFrom([]string{"==", "!=", "contains"}).Draw(t, "op"), value.Draw(t, "value"),
			drawExpression(t, depth-1))
	case 5:
		return fmt.Sprintf("( %s Meta as k, v { k == %s or v == %s } )", rapid.SampledFrom([]string{"any", "all"}).Draw(t,
			"quantifier"),
			value.Draw(t, "key"), value.Draw(t, "value"))
	}
	return drawTerm(t)
}

// TestAgainstReference draws services and expressions and compares with go-bexpr.
func TestAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &catalog.Service{Name: word.Draw(t, "name"), ID: word.Draw(t, "id"), Port: rapid.IntRange(0, 3).Draw(t, "port"),
			Tags: rapid.SliceOfN(word, 0, 3).Draw(t, "tags"), EnableTagOverride: rapid.Bool().Draw(t, "override"),
			Meta: rapid.MapOfN(rapid.SampledFrom([]string{"k", "l"}), word, 0, 2).Draw(t, "meta")}
		text := drawExpression(t, 3)
		ref, err := bexpr.CreateEvaluator(text)
		f, mine := Compile(Services, text)
		if (err == nil) != (mine == nil) {
			t.Fatalf("%s: reference says %v, we say %v", text, err, mine)
		}
		if err != nil {
			return
		}
		want, err := ref.Evaluate(serviceOracle{s.Name, s.ID, s.Port, s.Tags, s.Meta, s.EnableTagOverride})
		if err != nil {
			t.Fatalf("%s: the reference cannot evaluate: %v", text, err)
		}
		if got := f.Match(s); got != want {
			t.Fatalf("%s on %+v: reference %v, ours %v", text, s, want, got)
		}
	})
}

// FuzzCompile looks for panics, and for texts over which we and the reference disagree.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{`Node == "n"`, `Meta.env == prod`, `Meta["a b"] != x`,
		`not (ID == 1 or ID is empty) and Address matches "10"`, "a in Meta", "Node ==\t`x`", `"x"in Node`,
		`any Meta as k { k == env }`, `Node == n or all Meta as k, _ { k matches "e" }`, `"/Meta/env" == prod`} {
		f.Add(s)
	}
	n := &catalog.Node{Name: "n", Address: "10.0.0.1", Meta: map[string]string{"env": "prod"}}
	f.Fuzz(func(t *testing.T, text string) {
		mine, err := Compile(Nodes, text)
		// the reference takes exponential time
		if err != nil || mine == nil || len(text) > 100 || strings.Count(text, "(")+3*strings.Count(text, "{")+
			strings.Count(text, "not") > 6 {
			return
		}
		got := mine.Match(n)
		ref, err := bexpr.CreateEvaluator(text)
		if err != nil {
			t.Fatalf("%q: only we take it: %v", text, err)
		}
		want, err := ref.Evaluate(oracle{n.Name, n.Address, n.Datacenter, n.ID, n.Meta})
		if strings.Contains(text, `"/`) {
			return // as a value the reference takes it without its first slash
		}
		if err == nil && got != want {
			t.Fatalf("%q: reference %v, ours %v", text, want, got)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	f, err := Compile(Entries, `Service.Meta.version == "2" or (v1 in Service.Tags and Checks.Status != critical)`)
	if err != nil {
		b.Fatal(err)
	}
	e := entry()
	b.ReportAllocs()
	for b.Loop() {
		f.Match(e)
	}
}

func TestExpressionsAreBounded(t *testing.T) {
	many := func(n int) string {
		return strings.TrimSuffix(strings.Repeat("Node.Node matches `a{1,900}` or ", n), " or ")
	}
	if _, err := Compile(Entries, many(maxExpressions)); err != nil {
		t.Error(err)
	}
	for _, text := range []string{many(maxExpressions + 1), "any Service.Tags as t { " +
		strings.ReplaceAll(many(maxExpressions+1), "Node.Node", "t") + " }", "Node.Node matches `" +
		strings.Repeat("(a{1,999})", 50) + "`"} {
		if _, err := Compile(Entries, text); err == nil {
			t.Errorf("%.60s was taken", text)
		}
	}
}
