package storedrows

import (
	"net/url"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/query"
	"corbel.dev/corbel/catalog/statestore"
)

func may(t *testing.T, rules string) *acl.Grant {
	t.Helper()
	parsed, err := acl.Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	return &acl.Grant{Authorizer: acl.Compile(acl.Deny, parsed)}
}

func state(t *testing.T) *statestore.State {
	t.Helper()
	var ops []catalog.RecordOp
	add := func(kind catalog.RecordKind, key, name, value string) {
		ops = append(ops, catalog.RecordOp{Verb: catalog.RecordSet, Record: catalog.Record{Kind: kind, Key: key, Name: name,
			Value: []byte(value)}})
	}
	for _, key := range []string{"service-defaults/web", "service-defaults/db", "proxy-defaults/global", "http-route/r",
		"service-intentions/web"} {
		add(catalog.RecordConfigEntry, key, "", `{}`)
	}
	for id, d := range map[string]query.Definition{
		"1": {Name: "near-web", Service: query.Service{Service: "web", Tags: []string{"v2"},
			Failover: query.Failover{Datacenters: []string{"dc2"}, Targets: []query.Target{{Peer: "p"}}}}},
		"2": {Name: "db", Service: query.Service{Service: "db"}},
		"3": {Service: query.Service{Service: "web"}},
	} {
		d.ID = id
		value, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		add(catalog.RecordQuery, id, d.RecordName(), string(value))
	}
	st, results, _ := statestore.Empty().Apply([]catalog.Command{&catalog.Records{Ops: ops}})
	if results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	return st
}

// Entries are seen by the right that their kind needs; what everybody may read, everybody sees.
func TestEntries(t *testing.T) {
	st := state(t)
	for rules, want := range map[string]string{
		``:                                  "proxy-defaults/global ",
		`service "web" { policy = "read" }`: "proxy-defaults/global service-defaults/web service-intentions/web ",
		`mesh = "read"`:                     "http-route/r proxy-defaults/global ",
	} {
		got := ""
		page := Entries(may(t, rules), st, url.Values{})
		for _, e := range page.Rows {
			got += e.Kind + "/" + e.Name + " "
		}
		if got != want || page.All != len(page.Rows) {
			t.Errorf("%s: %q, want %q", rules, got, want)
		}
	}
	page := Entries(acl.Unlimited, st, url.Values{"q": {"kind:service-* -name:db"}})
	if page.Matching != 2 || page.All != 5 || page.Problem != "" {
		t.Errorf("filtered: %+v", page)
	}
}

// Queries are seen by who may read their names; one without a name by who manages tokens.
func TestQueries(t *testing.T) {
	st := state(t)
	for rules, want := range map[string]string{``: "", `query "near-web" { policy = "read" }`: "1", `acl = "write"`: "3",
		`query_prefix "" { policy = "read" } acl = "write"`: "123"} {
		page, err := Queries(may(t, rules), st, url.Values{})
		got := ""
		for _, q := range page.Rows {
			got += q.ID
		}
		if err != nil || got != want || page.All != len(want) {
			t.Errorf("%s: %q, want %q: %v", rules, got, want, err)
		}
	}
	page, err := Queries(acl.Unlimited, st, url.Values{"q": {"tag:v2"}})
	if err != nil || page.Matching != 1 || page.Rows[0].Failover[1] != "p" || page.Rows[0].Template {
		t.Errorf("filtered: %+v %v", page, err)
	}
}
