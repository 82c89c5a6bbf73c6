package consulapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/registry"
)

func list(n int, one func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = one(i)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// A list is one proposal, told apart item by item; with ?atomic it is all or nothing.
func TestRegisterMany(t *testing.T) {
	r := newRig(t, nil)
	node := func(i int) string {
		return fmt.Sprintf(`{"Node":"n%d","ID":"00000000-0000-0000-0000-%012d","Address":"10.0.0.1","Service":{`+
			`"Service":"web"},"Check":{"CheckID":"serfHealth","Name":"x","Status":"passing"}}`, i, i)
	}
	before := r.store.applies
	a := r.do("PUT", "/v1/catalog/register-batch", list(1000, node))
	if a.status != 200 || strings.Count(a.body, `{"OK":true}`) != 1000 {
		t.Fatalf("%d %.200s", a.status, a.body)
	}
	if n := r.store.applies - before; n != 1 {
		t.Errorf("%d proposals for 1,000 registrations", n)
	}
	if n := r.store.State().Counts().Nodes; n != 1000 {
		t.Errorf("%d nodes", n)
	}
	// The name of a living node under another ID is refused.
	taken := `{"Node":"n5","ID":"00000000-0000-0000-0000-000000009999","Address":"10.0.0.1"}`
	mixed := "[" + node(2000) + "," + taken + "," + node(2001) + "]"
	at := r.store.State().Index()
	a = r.do("PUT", "/v1/catalog/register-batch?atomic", mixed)
	if a.status != 409 || strings.Contains(a.body, `"OK":true`) || r.store.State().Index() != at ||
		r.store.State().Node("n2000") != nil {
		t.Errorf("atomic: %d %s", a.status, a.body)
	}
	a = r.do("PUT", "/v1/catalog/register-batch", mixed)
	var out struct {
		Index   uint64
		Results []struct {
			OK    bool
			Error string
		}
	}
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
		t.Fatal(err, a.status, a.body)
	}
	if len(out.Results) != 3 || !out.Results[0].OK || out.Results[1].OK || !strings.Contains(out.Results[1].Error,
		"reserved") || !out.Results[2].OK {
		t.Errorf("mixed: %+v", out)
	}
	r.run([]step{
		{"PUT", "/v1/catalog/register-batch", `{}`, 400, "*"},
		{"PUT", "/v1/catalog/register-batch", `[{"Node":"a","Address":"b"},{"Address":"b"}]`, 400,
			"Must provide node (registration 1)"},
		{"PUT", "/v1/catalog/register-batch", list(rows.MaxRegistrations+1, func(int) string { return "{}" }), 413, "*"},
		{"PUT", "/v1/agent/services/register", `[{"Name":"one","Port":1},{"Name":"two","Port":2}]`, 200, ""},
		{"PUT", "/v1/agent/services/register", `[{"Name":"three"},{"Name":"four","Port":"x"}]`, 400, "*"},
	})
	services := r.api.Agent.Local.View().Services
	if services["one"] == nil || services["two"] == nil || services["three"] != nil {
		t.Errorf("the agent has %v", services)
	}
}

// Limits are about what is stored: a value of the whole size goes through a transaction
// though its base64 is a third longer, one byte more does not.
func TestLimitsCountDecodedBytes(t *testing.T) {
	const most = 30_000
	r := newRig(t, func(c *Config) { c.Limits.KVValueBytes, c.Limits.TxnBytes = most, 2*most })
	op := func(key string, n int) string {
		b, err := json.Marshal(map[string]any{"KV": map[string]any{"Verb": "set", "Key": key, "Value": make([]byte, n)}})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	r.run([]step{
		{"PUT", "/v1/kv/a", strings.Repeat("x", most), 200, "true"},
		{"PUT", "/v1/kv/a", strings.Repeat("x", most+1), 413, "*"},
		{"PUT", "/v1/txn", "[" + op("a", most) + "]", 200, "*"},
		{"PUT", "/v1/txn", "[" + op("a", most+1) + "]", 413, "*"},
		{"PUT", "/v1/txn", "[" + op("a", most) + "," + op("b", most-200) + "]", 200, "*"},
		{"PUT", "/v1/txn", "[" + op("a", most) + "," + op("b", most) + "]", 413, "*"},
	})
}

// A lease is checked in a list as it is alone, and holds for each node of it.
func TestRegisterManyWithLease(t *testing.T) {
	r := newRig(t, nil)
	r.run([]step{
		{"PUT", "/v1/catalog/register-batch?lease=1ms", `[{"Node":"a","Address":"b"}]`, 400, "*"},
		{"PUT", "/v1/catalog/register-batch?lease=soon", `[{"Node":"a","Address":"b"}]`, 400, "*"},
		{"PUT", "/v1/catalog/register-batch", `[{"Node":"a","Address":"b","NodeMeta":{"` + registry.LeaseMeta + `":"1ms"}}]`,
			400, "*"},
		{"PUT", "/v1/catalog/register-batch?lease=30s", `[{"Node":"a","Address":"b"},{"Node":"c","Address":"d"}]`, 200, "*"},
	})
	for _, name := range []string{"a", "c"} {
		if n := r.store.State().Node(name); n == nil || n.Meta[registry.LeaseMeta] != "30s" {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

// Thousands of tags on one instance are refused at each door, with what to do instead.
func TestTagsAreBounded(t *testing.T) {
	r := newRig(t, nil)
	tags := func(n int) string { return list(n, func(i int) string { return fmt.Sprintf(`"t%d"`, i) }) }
	const refusal = "Invalid Tags: 4097, at most 4096 are taken; keep what belongs to one instance in Meta"
	service := `{"Service":"web","Tags":` + tags(4097) + `}`
	r.run([]step{
		{"PUT", "/v1/catalog/register", `{"Node":"a","Address":"b","Service":` + service + `}`, 400, refusal},
		{"PUT", "/v1/catalog/register-batch", `[{"Node":"a","Address":"b","Service":` + service + `}]`, 400,
			refusal + " (registration 0)"},
		{"PUT", "/v1/agent/service/register", `{"Name":"web","Tags":` + tags(4097) + `}`, 400, refusal},
		{"PUT", "/v1/catalog/register", `{"Node":"a","Address":"b","Service":{"Service":"web","Tags":` + tags(4096) + `}}`,
			200, "true"},
		{"PUT", "/v1/txn", `[{"Service":{"Verb":"set","Node":"a","Service":` + service + `}}]`, 400, "*"},
	})
}
