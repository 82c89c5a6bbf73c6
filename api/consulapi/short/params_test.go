package short

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"corbel.dev/corbel/api/consulapi/catalogrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/registry"
)

type nowhere struct{ rows.Forwarder }

// FuzzHotParams checks that what the hot path understands of a query is what net/http's path does.
func FuzzHotParams(f *testing.F) {
	for _, seed := range []string{"", "passing", "passing=1&index=5&wait=10s", "passing=x", "index=%31", "stale&stale=1",
		"wait=1h&index=0",
		"passing=0&passing", "a;b&passing", "+passing", "index=5&index=6", "wait=-5s&index=1"} {
		f.Add(seed)
	}
	a, err := rows.New(rows.Config{Identity: rows.Identity{Datacenter: "dc1"}, Forward: nowhere{}})
	if err != nil {
		f.Fatal(err)
	}
	table := rows.NewTable(nil, catalogrows.New(catalogrows.Config{}).Routes())
	f.Fuzz(func(t *testing.T, query string) {
		if strings.ContainsAny(query, "#\x00") {
			return
		}
		var k ask
		if !k.params(httpx.Query(query), a.Wait) {
			return
		}
		e, _ := table.Find("/v1/health/service/web")
		q := a.Begin(nil, &http.Request{Method: "GET", URL: &url.URL{RawQuery: query}}, e, e.Rows[rows.GET], "web")
		defer q.End()
		sel, err := catalogrows.SelectionOf(q, nil)
		if err != nil {
			t.Fatalf("%q: the other path refuses the selection: %v", query, err)
		}
		if err := q.ReadParams(); err != nil {
			t.Fatalf("%q: the other path refuses the parameters: %v", query, err)
		}
		if sel.Passing() != k.passing || q.Block != k.block || (q.Mode == registry.Stale) != k.stale {
			t.Fatalf("%q: hot %+v, slow %+v %+v %v", query, k, sel, q.Block, q.Mode)
		}
	})
}
