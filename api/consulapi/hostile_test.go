package consulapi

import (
	"encoding/json"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/query"
)

// hash is a digest of the whole catalog.
func (r *rig) hash() uint64 {
	r.Helper()
	h := fnv.New64a()
	if _, err := r.store.State().WriteTo(h); err != nil {
		r.Fatal(err)
	}
	return h.Sum64()
}

var hostileBodies = []string{
	"{", "[", "nul", `"`, "[[]", `{"Node":1}`, `{"Node":{"Verb":"set"}}`, "[1]", `[{"KV":1}]`, "\xff\xfe",
	`{"Node":"` + "\xff" + `"}`,
	`{"Service":[]}`, `{"Checks":{}}`, `{"LockDelay":{}}`, `{"TTL":[]}`, `{"Name":{}}`, `{"Status":3}`, `{"Check":"x"}`,
	`{"Tags":"x"}`,
	`{"Port":"x"}`, `{"Port":1e99}`, strings.Repeat("[", 5000), strings.Repeat(`{"a":`, 5000),
	`{"Name":"` + strings.Repeat("x", 2<<20) + `"}`,
}

var hostileQueries = []string{
	"", "index=-1", "index=x", "wait=x&index=1", "index=99999999999999999999", "dc=nowhere", "ns=x", "partition=x",
	"stale&consistent", "cached&consistent",
	"filter=%28", "filter=a+%3D%3D", "filter=%22", "max_stale=x", "%zz=1", "a;b", "passing=x", "cas=x", "cas=-1",
	"flags=x", "acquire=&cas=1", "enable=perhaps",
	"pretty&unknown=1", "node-meta=%00", "tag=%ff", "token=%0a", "separator=%00&keys", "near=_agent", "relay-factor=9",
	strings.Repeat("a=b&", 500),
}

var hostileRests = []string{"", "x", "%00", "%ff", "a%2F..%2Fb", "..", "//", strings.Repeat("k", 3000), "é", "a%0ab",
	"%2e%2e/%2e%2e/etc/passwd"}

// TestBadInput sends what no client should, to every row: it must be answered
// below 500 (save where the contract says 500), must panic nowhere and change nothing.
func TestBadInput(t *testing.T) {
	r := newRig(t, nil)
	r.node("other") // a session without a node of its own would be legal on this agent's
	r.want("PUT", "/v1/kv/keep", "me", 200, "true")
	before, cases := r.hash(), 0
	try := func(method, target, body string) {
		cases++
		u, err := url.Parse(target)
		if err != nil {
			return
		}
		req := httptest.NewRequest(method, "/", strings.NewReader(body))
		req.URL = u
		a := r.send(req)
		if a.status >= 500 && !contract500(a.body) {
			t.Errorf("%s %.100s %.60q: %d %s", method, target, body, a.status, a.body)
		}
	}
	for _, row := range r.api.table.Rows {
		prefix := strings.HasSuffix(row.Pattern, "/")
		for m := range strings.FieldsSeq(row.Methods) {
			rests := []string{""}
			if prefix {
				rests = hostileRests
			}
			for i, rest := range rests {
				for j, query := range hostileQueries {
					if m == "GET" || (m != "GET" && row.Pattern != rows.KVPattern && (i+j)%3 == 0) {
						try(m, row.Pattern+rest+"?"+query, hostileBodies[(i+j)%len(hostileBodies)])
					}
				}
			}
			if m == http.MethodGet || row.Pattern == rows.KVPattern {
				continue
			}
			for _, body := range hostileBodies {
				try(m, row.Pattern, body)
				if prefix {
					try(m, row.Pattern+"none", body)
				}
			}
		}
	}
	for _, target := range []string{"/v1/kv/a?cas=x", "/v1/kv/a?cas=1&acquire=s", "/v1/kv/%00", "/v1/kv/",
		"/v1/kv/a?flags=x", "/v1/kv/a?acquire="} {
		try("PUT", target, "x")
	}
	if r.hash() != before {
		t.Error("bad input changed the catalog")
	}
	if cases < 1000 {
		t.Errorf("only %d cases", cases)
	}
}

// contract500 knows the texts that the contract gives the code 500.
func contract500(body string) bool {
	for _, text := range []string{"No path to datacenter", "Must provide", "Invalid Session TTL", "Session TTL",
		"Invalid Behavior",
		"does not have associated TTL", "agent: No node found", "nobody there", "Missing node registration",
		"This process keeps", "invalid session", "Cannot provide tag filter"} {
		if strings.HasPrefix(body, text) {
			return true
		}
	}
	return false
}

// FuzzQueryBodies: what decodes and is valid can be rendered, and is still valid when it comes again.
func FuzzQueryBodies(f *testing.F) {
	for _, b := range hostileBodies {
		if len(b) < 1000 {
			f.Add([]byte(b))
		}
	}
	f.Add([]byte(`{"Name":"geo-","Template":{"Type":"name_prefix_match","Regexp":"^geo-(.*)$"},"Service":{"Service":"${` +
		`match(1)}","Failover":{"NearestN":3}},"DNS":{"TTL":"10s"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &query.Definition{}
		if bodies.Decode(b, d) != nil || d.Validate() != nil || !d.IsTemplate() {
			return
		}
		_, _ = d.Render("geo-name")
		again, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if next := (&query.Definition{}); bodies.Decode(again, next) != nil || next.Validate() != nil {
			t.Fatalf("not valid when it comes again: %s", again)
		}
	})
}
