package whomay

import (
	"net/url"
	"reflect"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a state with policies app (keys below app/), other (of another datacenter) and never (denies app/secret), a
// role ops with app, and tokens.
func world(t *testing.T) *statestore.State {
	t.Helper()
	var ops []catalog.RecordOp
	add := func(kind catalog.RecordKind, key, name string, v any) {
		ops = append(ops, catalog.RecordOp{Verb: catalog.RecordSet, Record: catalog.Record{Kind: kind, Key: key, Name: name,
			Value: acl.Encode(v)}})
	}
	policy := func(id, rules string, dcs ...string) {
		add(catalog.RecordACLPolicy, id, id, &acl.Policy{ID: id, Name: id, Rules: rules, Datacenters: dcs})
	}
	policy("app", `key_prefix "app/" { policy = "write" }`)
	policy("other", `key_prefix "" { policy = "write" }`, "dc2")
	policy("never", `key "app/secret" { policy = "deny" }`)
	add(catalog.RecordACLRole, "ops", "ops", &acl.Role{ID: "ops", Name: "ops",
		Grants: acl.Grants{Policies: []acl.Link{{ID: "app"}}}})
	past := now.Add(-time.Hour)
	for id, one := range map[string]acl.Token{
		"direct": {Grants: acl.Grants{Policies: []acl.Link{{ID: "app"}, {ID: "other"}}}},
		"role":   {Roles: []acl.Link{{ID: "ops"}}},
		"denied": {Grants: acl.Grants{Policies: []acl.Link{{ID: "app"}, {ID: "never"}}}},
		"far":    {Grants: acl.Grants{Policies: []acl.Link{{ID: "other"}}}},
		"old":    {Grants: acl.Grants{Policies: []acl.Link{{ID: "app"}}}, ExpirationTime: &past},
	} {
		one.AccessorID, one.SecretID = id, "secret of "+id
		add(catalog.RecordACLToken, id, id, &one)
	}
	st, results, _ := statestore.Empty().Apply([]catalog.Command{&catalog.Records{Ops: ops}})
	if results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	return st
}

func TestOf(t *testing.T) {
	st := world(t)
	for _, c := range []struct {
		name     string
		level    acl.Level
		fallback acl.Level
		want     []string
		everyone bool
	}{
		{"app/x", acl.Write, acl.Deny, []string{"denied", "direct", "role"}, false},
		{"app/x", acl.Read, acl.Deny, []string{"denied", "direct", "role"}, false},
		{"app/secret", acl.Read, acl.Deny, []string{"direct", "role"}, false},
		{"elsewhere", acl.Read, acl.Deny, []string{}, false},
		{"elsewhere", acl.Read, acl.Write, []string{"denied", "direct", "far", "role"}, true},
	} {
		got := Of(st, "dc1", c.fallback, Question{acl.Key, c.name, c.level}, now)
		names := []string{}
		for _, h := range got.Holders {
			names = append(names, h.Accessor)
		}
		if !reflect.DeepEqual(names, c.want) || got.Everybody != c.everyone || got.Tokens != 4 {
			t.Errorf("%s %s: %v of %d, everybody %t; want %v", c.level, c.name, names, got.Tokens, got.Everybody, c.want)
		}
	}
	got := Of(st, "dc1", acl.Deny, Question{acl.Key, "app/secret", acl.Read}, now).Holders
	if !reflect.DeepEqual(got[0].Policies, []string{"app"}) || !reflect.DeepEqual(got[1].Roles, []string{"ops"}) {
		t.Errorf("by what: %+v", got)
	}
}

func TestRead(t *testing.T) {
	q, err := Read(url.Values{"resource": {"key"}, "name": {"a"}, "level": {"list"}})
	if err != nil || q != (Question{acl.Key, "a", acl.List}) {
		t.Errorf("%+v %v", q, err)
	}
	for _, bad := range []url.Values{{}, {"resource": {"key"}, "level": {"deny"}}, {"resource": {"service"},
		"level": {"list"}}, {"resource": {"nothing"}, "level": {"read"}}} {
		if _, err := Read(bad); err == nil {
			t.Errorf("%v was read", bad)
		}
	}
}
