package usageapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestOpenMeterEvents: what came is listed, newest first, with what meters know of its data and with what is wrong;
// whoever asks sees what its token may read.
func TestOpenMeterEvents(t *testing.T) {
	api := newAPI(t)
	for _, meter := range []string{
		`{"slug":"deep","aggregation":"SUM","eventType":"call","valueProperty":"$.usage.total",
			"groupBy":{"model":"$.model","region":"$.where.region"}}`,
		`{"slug":"call","aggregation":"COUNT","eventType":"call"}`,
	} {
		if code, got := meterAsk(t, api, "all", "POST meters", "", meter); code != 200 {
			t.Fatal(code, got)
		}
	}
	now := time.Now().UTC().Truncate(time.Second)
	whole := `{"usage":{"total":10},"model":"big","where":{"region":"eu"},"note":"nobody counts this"}`
	for _, e := range []struct {
		event string
		code  int
	}{
		{meterEvent(now, "e1", "acme", whole), 204}, {meterEvent(now.Add(-time.Hour), "e2", "other", whole), 204},
		{meterEvent(now, "e1", "acme", whole), 204}, {meterEvent(now, "e3", "acme", `{"model":"big"}`), 400},
		{strings.Replace(meterEvent(now, "e4", "acme", `{}`), `"call"`, `"unheard"`, 1), 400},
		{meterEvent(now.Add(-48*time.Hour), "e5", "acme", whole), 204},
	} {
		if code, got := meterAsk(t, api, "all", "POST events", "", e.event); code != e.code {
			t.Fatal(e.event, code, got)
		}
	}
	for _, row := range []struct{ token, query, want string }{
		{"all", "", "e5 e4 e3 e2 e1"}, {"other", "", "e2"}, {"acme", "", "e5 e4 e3 e1"}, {"all", "limit=2", "e5 e4"},
		{"all", "subject=oth", "e2"}, {"all", "id=1", "e1"}, {"other", "subject=acme", ""}, {"nobody", "", "403"},
		{"all", "limit=0", "400"}, {"all", "limit=101", "400"}, {"all", "from=soon", "400"},
		{"all", "ingestedAtTo=" + now.Add(-time.Minute).Format(time.RFC3339), ""},
		{"all", "ingestedAtFrom=" + now.Add(time.Hour).Format(time.RFC3339), ""},
		{"all", "from=" + now.Add(-2*time.Hour).Format(time.RFC3339) + "&to=" + now.Add(-time.Minute).Format(time.RFC3339),
			"e2"},
		{"nobody", "subject=nobody", ""},
	} {
		code, got := meterAsk(t, api, row.token, "GET events?"+row.query, "", "")
		var list []listed
		ids := fmt.Sprint(code)
		if code == 200 {
			if err := json.Unmarshal([]byte(got), &list); err != nil {
				t.Fatal(err, got)
			}
			ids = ""
			for _, e := range list {
				ids += " " + e.Event.ID
			}
		}
		if strings.TrimSpace(ids) != row.want {
			t.Errorf("%q as %q: %s, want %s", row.query, row.token, ids, row.want)
		}
	}
	_, got := meterAsk(t, api, "all", "GET events", "", "")
	var list []listed
	if err := json.Unmarshal([]byte(got), &list); err != nil || len(list) != 5 {
		t.Fatal(err, got)
	}
	for i, want := range []string{"too late", "no meter counts", "data.usage.total: is missing", "", ""} {
		e := list[i]
		if why := e.ValidationError; !strings.Contains(why, want) || want == "" && why != "" || e.IngestedAt.IsZero() ||
			(e.StoredAt == nil) != (i == 1) {
			t.Errorf("%+v, want %q", e, want)
		}
	}
	first, _ := json.Marshal(list[4].Event) // a map of texts
	want := fmt.Sprintf(`{"specversion":"1.0","id":"e1","source":"gw","type":"call","subject":"acme","time":%q,`+
		`"data":{"model":"big","usage":{"total":10},"where":{"region":"eu"}}}`, now.Format(time.RFC3339))
	if string(first) != want {
		t.Errorf("%s\nwant %s", first, want)
	}
}

// TestSetPath: what stands in the way of a path stays.
func TestSetPath(t *testing.T) {
	data := map[string]any{}
	for _, path := range []string{"a.b", "c", "a.d.e", "c.x", "a"} {
		setPath(data, path, path)
	}
	if got, err := json.Marshal(data); err != nil || string(got) != `{"a":"a","c":"c"}` {
		t.Errorf("%s, %v", got, err)
	}
}
