package query

import (
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
)

func stateWith(t *testing.T, defs ...*Definition) *statestore.State {
	t.Helper()
	c := &catalog.Records{}
	for i, d := range defs {
		d.ID = string(rune('a' + i))
		if err := d.Validate(); err != nil {
			t.Fatal(err)
		}
		value, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		c.Ops = append(c.Ops, catalog.RecordOp{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordQuery,
			Key: d.ID, Name: d.RecordName(), Value: value}})
	}
	st, results, _ := statestore.Empty().Apply([]catalog.Command{c})
	if !results[0].OK {
		t.Fatal(results[0].Err)
	}
	return st
}

func TestFind(t *testing.T) {
	template := func(name, service string) *Definition {
		return &Definition{Name: name, Template: Template{Type: TemplatePrefix, Regexp: `^geo-(\w+)-?(\d*)$`,
			RemoveEmptyTags: true},
			Service: Service{Service: service, Tags: []string{"${match(2)}", "!${match(9)}", "x-${name.suffix}"},
				NodeMeta: map[string]string{"p": "${name.prefix}"}}}
	}
	st := stateWith(t, &Definition{Name: "Static", Service: Service{Service: "s"}}, template("", "all-${name.full}"),
		template("geo-", "${match(1)}"), template("geo-db", "$${plain}"))
	for name, want := range map[string]string{
		"static": "s", "STATIC": "s", "stat": "all-stat", "geo-web-7": "web", "geo-web": "web",
		"geo-dbx": "${plain}", "a": "s",
	} {
		d, err := Find(st, name)
		if err != nil || d == nil || d.Service.Service != want {
			t.Errorf("%s: %+v %v", name, d, err)
		}
	}
	d, err := Find(st, "geo-web-7")
	if err != nil || !slices.Equal(d.Service.Tags, []string{"7", "x-web-7"}) || d.Service.NodeMeta["p"] != "geo-" {
		t.Errorf("%+v %v", d, err)
	}
	if d, err := Find(st, strings.Repeat("x", 300)); d != nil || err != nil {
		t.Errorf("an endless name: %+v %v", d, err)
	}
}

func TestValidate(t *testing.T) {
	for want, d := range map[string]*Definition{
		"Must provide a Service": {},
		"Bad NearestN":           {Service: Service{Service: "s", Failover: Failover{NearestN: -1}}},
		"Bad DNS TTL":            {Service: Service{Service: "s"}, DNS: DNS{TTL: "soon"}},
		"must be >=0":            {Service: Service{Service: "s"}, DNS: DNS{TTL: "-1s"}},
		"Bad Token":              {Service: Service{Service: "s"}, Token: Hidden},
		"Template.Type":          {Service: Service{Service: "s"}, Template: Template{Type: "other"}},
		"bad Regexp":             {Service: Service{Service: "s"}, Template: Template{Type: TemplatePrefix, Regexp: "("}},
		"bad format":             {Service: Service{Service: "${nope}"}, Template: Template{Type: TemplatePrefix}},
		"not closed":             {Service: Service{Service: "${name.full"}, Template: Template{Type: TemplatePrefix}},
	} {
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", d, err, want)
		}
	}
}

func TestPick(t *testing.T) {
	register := func(node, id string, tags []string, meta string, checks ...*catalog.Check) catalog.Command {
		for _, c := range checks {
			c.ServiceID = id
		}
		return &catalog.Register{Node: catalog.Node{Name: node, Address: "10.0.0.1", Meta: map[string]string{"zone": meta}},
			Service: &catalog.Service{ID: id, Name: "web", Tags: tags}, Checks: checks}
	}
	st, _, _ := statestore.Empty().Apply([]catalog.Command{
		register("a", "good", []string{"v1", "Blue"}, "x", &catalog.Check{ID: "c", Status: catalog.Passing}),
		register("b", "slow", []string{"v1"}, "x", &catalog.Check{ID: "c", Status: catalog.Warning}),
		register("c", "dead", []string{"v2"}, "y", &catalog.Check{ID: "c", Status: catalog.Critical}),
		register("d", "bare", nil, "y"),
	})
	for want, s := range map[string]Service{
		"good slow bare":      {},
		"good bare":           {OnlyPassing: true},
		"good slow dead bare": {IgnoreCheckIDs: []string{"c"}},
		"good slow":           {Tags: []string{"V1"}},
		"good":                {Tags: []string{"v1", "blue"}},
		"slow bare":           {Tags: []string{"!blue"}},
		"bare":                {NodeMeta: map[string]string{"zone": "y"}},
		"":                    {ServiceMeta: map[string]string{"any": "y"}},
	} {
		s.Service = "WEB"
		var got []string
		for _, i := range s.Pick(st) {
			got = append(got, i.Service.ID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%+v: %v, want %s", s, got, want)
		}
	}
}

func FuzzRender(f *testing.F) {
	f.Add("geo-", "^geo-(.*)$", "${match(1)}", "geo-x")
	f.Fuzz(func(t *testing.T, name, expr, text, asked string) {
		d := &Definition{Name: name, Template: Template{Type: TemplatePrefix, Regexp: expr}, Service: Service{Service: text}}
		_, _ = d.Render(asked) // neither panics nor hangs
	})
}
