package acl

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func mustParse(t testing.TB, text string) []Rule {
	t.Helper()
	rules, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestPrecedence(t *testing.T) {
	a := Compile(Deny,
		mustParse(t,
			`key_prefix "" { policy = "read" } key_prefix "app/" { policy = "write" } key "app/secret" { policy = "deny" }
			key_prefix "app/list/" { policy = "list" } service "web" { policy = "write" } service_prefix "" { policy = "read" }
			node "n" { policy = "read" } operator = "write"`),
		mustParse(t, `node "n" { policy = "deny" } service "web" { policy = "read" intentions = "write" } operator = "read"`))
	for _, c := range []struct {
		r    Resource
		name string
		most Level
	}{
		{Key, "x", Read}, {Key, "app", Read}, {Key, "app/", Write}, {Key, "app/x", Write}, {Key, "app/secret", Deny},
		{Key, "app/secret2", Write}, {Key, "app/list/x", List}, {Key, "App/x", Read}, {Service, "web", Write},
		{Service, "web2", Read},
		{Intention, "web", Write}, {Intention, "api", Read}, {Node, "n", Deny}, {Node, "m", Deny}, {Operator, "", Write},
		{Mesh, "", Write}, {Peering, "", Write}, {Keyring, "", Deny}, {ACL, "", Deny},
	} {
		for l := Read; l <= Write; l++ {
			if got := a.Allow(c.r, c.name, l); got != (l <= c.most) {
				t.Errorf("%v %q at %v: %v", c.r, c.name, l, got)
			}
		}
	}
	if a.AllowBelow(Key, "app/", Read) || !a.AllowBelow(Key, "app/list/", List) || a.AllowBelow(Key, "app/l", Write) ||
		!a.AllowBelow(Key, "app/x", Write) {
		t.Error("below a prefix")
	}
	if !a.AllowAny(Service, Write) || a.AllowAny(Node, Read) || a.AllowAny(Session, Read) {
		t.Error("any")
	}
	open := Compile(Write)
	if !open.Allow(Key, "x", Write) || !open.Allow(Operator, "", Write) || open.Allow(ACL, "", Read) ||
		open.Class() != "" {
		t.Error("the default policy allow gives all but acl")
	}
	if Compile(Deny).Class() == "" || Compile(Deny).Class() == a.Class() {
		t.Error("class")
	}
}

// model answers Allow by looking at every rule of every policy.
type model struct {
	fallback Level
	policies [][]Rule
}

func (m model) allow(r Resource, name string, l Level) bool {
	said := func(match func(Rule) bool) (found, intentions, follows Level) {
		for _, p := range m.policies {
			for _, rule := range p {
				if match(rule) {
					found = stronger(found, rule.Level)
					intentions = stronger(intentions, rule.Intentions)
				}
			}
		}
		follows = found
		return
	}
	about, source := r, r
	if r == Intention {
		source = Service
	}
	pick := func(match func(Rule) bool) Level {
		found, intentions, _ := said(match)
		if about != Intention || found == Unset {
			return found
		}
		if intentions != Unset {
			return intentions
		}
		if found == Deny {
			return Deny
		}
		return Read
	}
	if !r.named() {
		got := pick(func(x Rule) bool { return x.Resource == r })
		if got == Unset && (r == Mesh || r == Peering) {
			got = pick(func(x Rule) bool { return x.Resource == Operator })
		}
		if got == Unset && r == ACL {
			return false
		}
		if got == Unset {
			got = m.fallback
		}
		return got >= l
	}
	got := pick(func(x Rule) bool { return x.Resource == source && !x.Prefix && x.Name == name })
	for n := len(name); got == Unset && n >= 0; n-- {
		got = pick(func(x Rule) bool { return x.Resource == source && x.Prefix && x.Name == name[:n] })
	}
	if got == Unset {
		got = m.fallback
	}
	return got >= l
}

// allNames are all words of the alphabet up to a length: what AllowBelow speaks about.
func allNames() []string {
	names, last := []string{""}, []string{""}
	for range 4 {
		var next []string
		for _, p := range last {
			next = append(next, p+"a", p+"/")
		}
		names, last = append(names, next...), next
	}
	return names
}

// TestAuthorizerAgainstModel compares 10^5 random questions with the slow answer.
func TestAuthorizerAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	names := allNames()
	for range 1000 {
		m := model{fallback: []Level{Deny, Write}[rng.IntN(2)]}
		for range rng.IntN(4) {
			var p []Rule
			for range rng.IntN(6) {
				p = append(p, randomRule(rng, names))
			}
			m.policies = append(m.policies, p)
		}
		a := Compile(m.fallback, m.policies...)
		for range 100 {
			r, name, l := someResource(rng), names[rng.IntN(len(names))], Read+Level(rng.IntN(3))
			if got, want := a.Allow(r, name, l), m.allow(r, name, l); got != want {
				t.Fatalf("%v %q at %v: %v, the model says %v\n%+v", r, name, l, got, want, m)
			}
		}
		checkBelow(t, a, m, names, rng)
	}
}

func randomRule(rng *rand.Rand, names []string) Rule {
	for {
		r := Rule{Resource: someResource(rng),
			Level: []Level{Deny, Read, List, Write}[rng.IntN(4)]}
		if r.Resource == Intention || r.Level == List && r.Resource != Key {
			continue
		}
		if r.Resource.named() {
			r.Name, r.Prefix = names[rng.IntN(len(names))], rng.IntN(2) == 0
		}
		if r.Resource == Service {
			r.Intentions = []Level{Unset, Deny, Read, Write}[rng.IntN(4)]
		}
		return r
	}
}

// checkBelow compares AllowBelow with asking about each name below, longer ones than any rule's included.
func checkBelow(t *testing.T, a *Authorizer, m model, names []string, rng *rand.Rand) {
	t.Helper()
	below, l := names[rng.IntN(len(names))], Read+Level(rng.IntN(3))
	for _, r := range []Resource{Key, Service, Intention, Node} {
		want := true
		for _, name := range names {
			if strings.HasPrefix(name, below) {
				want = want && m.allow(r, name, l) && m.allow(r, name+"zz", l)
			}
		}
		if got := a.AllowBelow(r, below, l); got != want {
			t.Fatalf("%v below %q at %v: %v, the model says %v\n%+v", r, below, l, got, want, m)
		}
	}
}

func TestAllowDoesNotAllocate(t *testing.T) {
	a := Compile(Deny, mustParse(t, `key_prefix "app/" { policy = "write" } key_prefix "app/web/" { policy = "read" } `+
		`key "app/x" { policy = "deny" }`))
	if n := testing.AllocsPerRun(100, func() {
		_ = a.Allow(Key, "app/web/config", Read) && a.Allow(Key, "app/x", Write) && a.AllowBelow(Key, "app/", Read)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAllow(b *testing.B) {
	var rules []Rule
	for i := range 200 {
		rules = append(rules, Rule{Resource: Key, Prefix: true, Name: "team" + string(rune('a'+i%26)) +
			strings.Repeat("x", i/26) + "/", Level: Read})
	}
	a := Compile(Deny, rules)
	b.ReportAllocs()
	for b.Loop() {
		a.Allow(Key, "teamqxx/service/web/config", Read)
	}
}

// someResource is one that rules may be about.
func someResource(rng *rand.Rand) Resource {
	for {
		if r := Resource(1 + rng.IntN(int(resourceCount)-1)); !r.single() {
			return r
		}
	}
}
