package meshmap

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// calls reads "a>b c>d!": ! is denied, b@dc2 is of another datacenter.
func calls(text string) (list []Call) {
	for word := range strings.FieldsSeq(text) {
		from, to, _ := strings.Cut(word, ">")
		to, denied := strings.CutSuffix(to, "!")
		name, dc, _ := strings.Cut(to, "@")
		list = append(list, Call{Source: from, Destination: name, Datacenter: dc, Proxies: 1, Allowed: !denied})
	}
	return list
}

// told is a map as text: each column from above, then the lines.
func told(m *Map) string {
	columns := make([][]string, m.Columns)
	places := slices.Clone(m.Places)
	slices.SortStableFunc(places, func(a, b Place) int { return int(2*a.Row) - int(2*b.Row) })
	for _, p := range places {
		columns[p.Column] = append(columns[p.Column], fmt.Sprintf("%s:%g", p.ID, p.Row))
	}
	out := ""
	for _, c := range columns {
		out += strings.Join(c, " ") + " | "
	}
	for _, l := range m.Lines {
		out += fmt.Sprintf("%s>%s*%d-%d ", m.Places[l.From].ID, m.Places[l.To].ID, l.Calls, l.Denied)
	}
	return strings.TrimSpace(out)
}

func TestMap(t *testing.T) {
	for _, c := range []struct{ what, calls, want string }{
		{"nothing", "", ""},
		{"a chain, and a call over it", "web>api api>db web>db!",
			"web:0 | api:0 | db:0 | api>db*1-0 web>api*1-0 web>db*1-1"},
		{"callers of one stand around it", "a>c b>c", "a:0 b:1 | c:0.5 | a>c*1-0 b>c*1-0"},
		{"no lines cross that need not", "a>z b>y", "a:0 b:1 | z:0 y:1 | a>z*1-0 b>y*1-0"},
		{"a circle", "a>b b>c c>a", "a:0 | b:0 | c:0 | a>b*1-0 b>c*1-0 c>a*1-0"},
		{"a service that calls itself", "a>a a>b", "a:0 | b:0 | a>b*1-0"},
		{"a circle that somebody calls", "x>b b>a a>b", "x:0 | b:0 | a:0 | a>b*1-0 b>a*1-0 x>b*1-0"},
		{"another datacenter", "web>db web>db@dc2!", "web:0.5 | db:0 db@dc2:1 | web>db*1-0 web>db@dc2*1-1"},
	} {
		if got := told(Of(calls(c.calls), Scope{}).Map); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	far := Of(calls("web>db@dc2"), Scope{}).Map.Places
	if !reflect.DeepEqual(far[0], Place{ID: "db@dc2", Name: "db", Datacenter: "dc2", Column: 1}) ||
		!slices.Equal(far[1].Local, []string{"web"}) {
		t.Errorf("%+v", far)
	}
}

// TestScope: of a service one sees two calls far, of a prefix who calls and is called.
func TestScope(t *testing.T) {
	all := calls("a>b b>c c>d d>e pay-api>pay-db web>pay-api pay-db>disk x>y@dc2")
	for of, want := range map[Scope]string{
		{}:                                 "a b b c c d d e pay-api pay-db web pay-api pay-db disk x y@dc2",
		{Service: "a"}:                     "a b b c",
		{Service: "c"}:                     "a b b c c d d e",
		{Service: "y@dc2"}:                 "x y@dc2",
		{Service: "none"}:                  "",
		{Prefix: "pay-"}:                   "pay-api pay-db web pay-api pay-db disk",
		{Prefix: "pay-a"}:                  "pay-api pay-db web pay-api",
		{Service: "a", Prefix: "whatever"}: "a b b c",
	} {
		var got []string
		for _, c := range Of(all, of).Calls {
			got = append(got, c.Source, c.to())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%+v: %q, want %q", of, got, want)
		}
	}
}

// teams is a mesh in which each service of a team calls others of it and one of the next team.
func teams(names []string, size int) (list []Call) {
	name := func(team, n int) string { return fmt.Sprintf("%s-%d", names[team%len(names)], n%size) }
	for team := range names {
		for n := range size {
			list = append(list, Call{Source: name(team, n), Destination: name(team, n+1), Allowed: true},
				Call{Source: name(team, n), Destination: name(team+1, n), Allowed: n > 0})
		}
	}
	return list
}

// TestGroups: above the limit services whose names begin alike are one place, with what they call of each other; the
// one that is looked at stands alone, and a prefix that is looked at is divided further.
func TestGroups(t *testing.T) {
	names := []string{"billing", "cart", "mail", "search"}
	all := teams(names, 100)
	m := Of(all, Scope{}).Map
	if m.Services != 400 || len(m.Places) > Grouped || len(m.Lines) > MostLines {
		t.Errorf("%d services, %d places, %d lines", m.Services, len(m.Places), len(m.Lines))
	}
	hub := slices.Clone(all)
	for i := range all {
		if all[i].Source != "cart-7" {
			hub = append(hub, Call{Source: all[i].Source, Destination: "cart-7", Allowed: true})
		}
	}
	one := Of(hub, Scope{Service: "cart-7"}).Map
	if one.Services != 400 || !slices.ContainsFunc(one.Places, func(p Place) bool { return p.Name == "cart-7" }) {
		t.Errorf("the service that is looked at is in a group: %s", told(one))
	}
	for _, prefix := range []string{"cart-", "cart-4"} {
		m := Of(all, Scope{Prefix: prefix}).Map
		if slices.ContainsFunc(m.Places, func(p Place) bool { return p.Prefix == prefix }) {
			t.Errorf("%s is looked at, and is one place still: %s", prefix, told(m))
		}
	}
	few := Of(teams(names, MostServices/len(names)), Scope{Prefix: "cart"}).Map
	if slices.ContainsFunc(few.Places, func(p Place) bool { return p.Services > 0 }) {
		t.Errorf("few services are grouped: %s", told(few))
	}
}

// TestBounds: whatever services are called and whom they call, a map stays small, each service is in one place, no call
// is lost, no two places lie upon each other, and the same calls in another order give the same map.
func TestBounds(t *testing.T) {
	signs := []string{"a", "b", "-", ".", "é", "日", "web", "x1", "_"}
	for seed := range uint64(25) {
		d := rand.New(rand.NewPCG(seed, 18))
		services := make([]string, 1+d.IntN(700))
		for i := range services {
			for range 1 + d.IntN(6) {
				services[i] += signs[d.IntN(len(signs))]
			}
		}
		seen, list := map[string]bool{}, []Call{}
		for range d.IntN(2000) {
			c := Call{Source: services[d.IntN(len(services))], Destination: services[d.IntN(len(services))],
				Allowed: d.IntN(2) == 0}
			if c.Datacenter = []string{"", "", "dc2"}[d.IntN(3)]; seen[c.Source+" "+c.to()] {
				continue
			}
			seen[c.Source+" "+c.to()] = true
			list = append(list, c)
		}
		of := []Scope{{}, {}, {Service: services[0]}, {Prefix: "web"}}[d.IntN(4)]
		v := Of(list, of)
		checkMap(t, v, within(list, of))
		shuffled := slices.Clone(list)
		d.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again := Of(shuffled, of); told(again.Map) != told(v.Map) {
			t.Errorf("seed %d: the map depends on the order of calls:\n%s\n%s", seed, told(v.Map), told(again.Map))
		}
		if t.Failed() {
			t.Fatalf("seed %d: %d services, %d calls, %+v", seed, len(services), len(list), of)
		}
	}
}

func checkMap(t *testing.T, v *View, all []Call) {
	t.Helper()
	m := v.Map
	if len(m.Places) > MostServices || len(m.Lines) > MostLines || len(v.Calls) > MostCalls ||
		len(v.Calls)+v.More != len(all) {
		t.Errorf("%d places, %d lines, %d calls and %d more", len(m.Places), len(m.Lines), len(v.Calls), v.More)
	}
	count, ids, spots, total := 0, map[string]bool{}, map[string]bool{}, 0
	for _, p := range m.Places {
		count += max(p.Services, 1)
		total += p.Within
		spot := fmt.Sprint(p.Column, " ", p.Row)
		if ids[p.ID] || spots[spot] || p.Services == 1 || !utf8.ValidString(p.ID) || p.Column < 0 ||
			p.Column >= m.Columns || p.Row < 0 || p.Row > m.Rows-1 {
			t.Errorf("%+v in %d columns and %g rows", p, m.Columns, m.Rows)
		}
		ids[p.ID], spots[spot] = true, true
	}
	for _, l := range m.Lines {
		if total += l.Calls; l.From == l.To || l.Denied > l.Calls {
			t.Errorf("%+v", l)
		}
	}
	if count != m.Services || total != len(all) {
		t.Errorf("%d of %d services, %d of %d calls", count, m.Services, total, len(all))
	}
}

// BenchmarkOf draws a mesh of 2,000 services and 10,000 calls.
func BenchmarkOf(b *testing.B) {
	d := rand.New(rand.NewPCG(1, 18))
	name := func() string { return fmt.Sprintf("team-%02d-service-%02d", d.IntN(40), d.IntN(50)) }
	list := make([]Call, 10_000)
	for i := range list {
		list[i] = Call{Source: name(), Destination: name(), Allowed: true}
	}
	for b.Loop() {
		if m := Of(list, Scope{}).Map; len(m.Places) > Grouped {
			b.Fatal(len(m.Places))
		}
	}
}
