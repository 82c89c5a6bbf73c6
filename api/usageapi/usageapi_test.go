package usageapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/eventlog/embedded"
	"corbel.dev/corbel/usage/fate"
	"corbel.dev/corbel/usage/router"
	"corbel.dev/corbel/usage/window"
)

// alone replicates to one machine.
type alone struct{ *definitions.Definitions }

func (a alone) Propose(_ context.Context, cmd []byte) (any, error) {
	return a.ApplyBatch([][]byte{cmd})[0], nil
}

// newAPI makes the whole plane of one server, in memory. Tokens are names of tenants; "all" has all rights.
func newAPI(t testing.TB) *API {
	fs := vfs.NewMem()
	for _, dir := range []string{"/log", "/state"} {
		if err := fs.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	blobs, err := counterstate.NewFolder(fs, "/state")
	if err != nil {
		t.Fatal(err)
	}
	defs := definitions.New()
	defs.Use(alone{defs})
	for _, c := range []definitions.Command{{Begin: &definitions.Begin{Key: make([]byte, 16)}},
		{Owners: []string{"s1"}}} {
		if _, err := defs.Do(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	counts := aggregate.Config{Zone: func(string) window.Zone { return window.Zone{} }}
	count := counter.New(counter.Config{
		Open: func() (eventlog.Log, error) {
			return embedded.Open(embedded.Config{FS: fs, Dir: "/log", Partitions: 1})
		},
		Store: counterstate.New(counterstate.Config{Blobs: blobs}), Aggregate: counts,
		Key: func(context.Context) (usage.Key, error) { return defs.View().HashKey() }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- count.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	polltest.Until(t, count.Warm, "the counter")
	parts := func() []string { return []string{"s1"} }
	local := func(string) *counter.Counter { return count }
	api, err := New(Config{Router: router.New(router.Config{Definitions: defs, Local: local}),
		Aggregator: aggregator.New(aggregator.Config{Parts: parts, Local: local, Definitions: defs, Aggregate: counts}),
		Counts:     count, Definitions: defs, Zone: counts.Zone, Now: time.Now,
		Allow: func(r *http.Request, tenant string, _ bool) bool {
			token := r.Header.Get("X-Consul-Token")
			return token == "all" || token == tenant
		},
		Explain: func(ctx context.Context, tenant, source, id string) (fate.Answer, error) {
			return count.Explain(ctx, tenant, source, id, fate.Known{})
		}})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func zipped(body string, with string) string {
	var b bytes.Buffer
	if with == "gzip" {
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(body))
		_ = z.Close()
		return b.String()
	}
	z, _ := zstd.NewWriter(&b)
	_, _ = z.Write([]byte(body))
	_ = z.Close()
	return b.String()
}

// TestRows: one row for each thing that a client sees, hostile ones too.
func TestRows(t *testing.T) {
	api := newAPI(t)
	bomb := strings.Repeat(" ", MaxBodyBytes+1)
	one := `{"id":"%s","source":"a","tenant":"acme","product":"calls","value":%s}`
	for i, row := range []struct {
		call, token, body string // of the call, the third word is an encoding or a media type
		status            int
		want              string
	}{
		{"PUT products/calls", "all", `{"kind":"sum","tags":["team"]}`, 200, `"generation":1`},
		{"PUT products/users", "acme", `{"kind":"unique"}`, 403, "usage:write on all tenants"},
		{"PUT products/users", "all", `{"kind":"unique"}`, 400, "identity: is missing"},
		{"PUT products/users", "all", `{"kind":"unique","identity":["user"],"nonsense":1}`, 400, "nonsense"},
		{"PUT products/users", "all", `{"kind":"unique","identity":["user"]}`, 200, `"late":"24h"`},
		{"POST events", "acme", "[" + fmt.Sprintf(one, "1", "5") + "]", 202, `"accepted":1`},
		{"POST events", "acme", fmt.Sprintf(one, "1", "5"), 202, `"duplicates":1`},
		{"POST events", "acme", fmt.Sprintf(one, "2", `"9223372036854775807"`), 202, `"accepted":1`},
		{"POST events", "acme", fmt.Sprintf(one, "3", "1.5"), 202, `"error":"value`},
		{"POST events", "other", fmt.Sprintf(one, "4", "5"), 403, `on tenant "acme"`},
		{"POST events", "", fmt.Sprintf(one, "4", "5"), 403, "Permission denied"},
		{"POST events gzip", "acme", zipped(fmt.Sprintf(one, "5", "5"), "gzip"), 202, `"accepted":1`},
		{"POST events zstd", "acme", zipped(fmt.Sprintf(one, "6", "5"), "zstd"), 202, `"accepted":1`},
		{"POST events gzip", "acme", zipped(bomb, "gzip"), 413, ""},
		{"POST events zstd", "acme", zipped(bomb, "zstd"), 413, ""},
		{"POST events gzip", "acme", "nonsense", 400, "no gzip"},
		{"POST events zstd", "acme", "nonsense", 400, "no zstd"},
		{"POST events br", "acme", "nonsense", 400, "Content-Encoding"},
		{"POST events", "acme", strings.Repeat(" ", MaxJSONBytes+1), 413, ""},
		{"POST events", "acme", strings.Repeat("[", 100_000), 400, ""},
		{"POST events", "acme", "[" + strings.Repeat(`{},`, usage.MaxEvents) + "{}]", 413, "10000"},
		{"POST batch", "acme", "\xff\xff\xff\xffnonsense", 400, ""},
		{"GET estimates?tenant=acme&product=calls&window=1h", "acme", "", 200, `"value":9223372036854775822`},
		{"GET estimates?tenant=acme&product=calls", "other", "", 403, "usage:read"},
		{"GET estimates?tenant=acme&product=calls&by=region", "acme", "", 400, "by:"},
		{"GET estimates?tenant=acme&product=calls&tz=Nowhere/Land", "acme", "", 400, "tz:"},
		{"GET estimates?tenant=acme&product=calls&from=2026-01-01T00:00:30Z", "acme", "", 400, "whole minutes"},
		{"GET estimates?tenant=acme&product=calls&step=1ns", "acme", "", 400, "step"},
		{"GET estimates?tenant=acme&product=none", "acme", "", 404, "none"},
		{"GET explain?tenant=acme&source=a&id=1", "acme", "", 200, `"received"`},
		{"GET explain?tenant=acme&source=a&id=3", "acme", "", 200, `rejected`},
		{"GET explain?tenant=acme&source=a&id=99", "acme", "", 404, ""},
		{"GET tenants", "other", "", 200, "[]"},
		{"GET top?product=calls", "acme", "", 200, `"tenant":"acme"`},
		{"PUT limits/l", "acme", `{"tenant":"acme","product":"calls","window":"month","value":0}`, 400, "value"},
		{"PUT limits/l", "acme", `{"tenant":"acme","product":"calls","window":"month","value":10}`, 200, `"at":[0.8,1]`},
		{"PUT limits/l", "other", `{"tenant":"other","product":"calls","window":"month","value":10}`, 403, ""},
		{"POST corrections", "acme", `{"kind":"void","tenant":"acme","product":"calls","ids":["1"]}`, 400, "reason"},
		{"GET nonsense", "all", "", 404, ""},
	} {
		words := strings.Split(row.call, " ")
		r := httptest.NewRequestWithContext(t.Context(), words[0], "/v1/usage/"+words[1], strings.NewReader(row.body))
		r.Header.Set("X-Consul-Token", row.token)
		if len(words) > 2 {
			r.Header.Set("Content-Encoding", words[2])
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if got := w.Body.String(); w.Code != row.status || !strings.Contains(got, row.want) {
			t.Errorf("row %d: %s %.80q as %q: %d %.200s, want %d with %q", i, row.call, row.body, row.token, w.Code, got,
				row.status, row.want)
		}
	}
}
