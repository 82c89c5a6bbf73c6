package usageapi

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestOpenMeter: what OpenMeter's SDKs send is understood, and answers have the fields that they read.
func TestOpenMeter(t *testing.T) {
	api := newAPI(t)
	door := api.OpenMeter()
	at := time.Now().UTC().Truncate(time.Hour).Add(-2 * time.Hour)
	event := func(id, subject, data string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"gw","type":"request","subject":%q,"time":%q,`+
			`"datacontenttype":"application/json","data":%s}`, id, subject, at.Add(90*time.Second).Format(time.RFC3339), data)
	}
	hour := func(at time.Time) string { return at.Format(time.RFC3339) }
	span := fmt.Sprintf("from=%s&to=%s", at.Format(time.RFC3339), at.Add(time.Hour).Format(time.RFC3339))
	tokens := `{"slug":"tokens","description":"of models","aggregation":"SUM","eventType":"request",` +
		`"valueProperty":"$.tokens","groupBy":{"model":"$.model"},"windowSize":"MINUTE"}`
	for i, row := range []struct {
		call, token, media, body string
		status                   int
		want                     string
	}{
		{"POST meters", "acme", "", tokens, 403, `"detail":"Permission denied`},
		{"POST meters", "all", "", tokens, 200, `"slug":"tokens"`},
		{"POST meters", "all", "", tokens, 409, "already"},
		{"POST meters", "all", "", `{"slug":"request","aggregation":"COUNT","eventType":"request"}`, 200, `"COUNT"`},
		{"POST meters", "all", "", `{"slug":"users","aggregation":"UNIQUE_COUNT","eventType":"request",` +
			`"valueProperty":"$.user"}`, 200, `"UNIQUE_COUNT"`},
		{"POST meters", "all", "", `{"slug":"mean","aggregation":"AVG","eventType":"request","valueProperty":"$.tokens",` +
			`"groupBy":{"model":"$.model"}}`, 200, `"AVG"`},
		{"POST meters", "all", "", `{"slug":"least","aggregation":"MIN","eventType":"request","valueProperty":"$.tokens"}`,
			200, `"MIN"`},
		{"POST meters", "all", "", `{"slug":"odd","aggregation":"MEDIAN","eventType":"request","valueProperty":"$.tokens"}`,
			400, "aggregation:"},
		{"POST meters", "all", "", `{"slug":"none","aggregation":"AVG","eventType":"request"}`, 400, "valueProperty:"},
		{"POST meters", "all", "", `{"slug":"deep","aggregation":"SUM","eventType":"request","valueProperty":"$.a[0]"}`,
			400, "valueProperty:"},
		{"GET meters", "all", "", "", 200, `"valueProperty":"$.tokens"`},
		{"GET meters/tokens", "all", "", "", 200, `"groupBy":{"model":"$.model"}`},
		{"GET meters/none", "all", "", "", 404, `"status":404`},
		{"POST events", "acme", "application/cloudevents+json",
			event("1", "acme", `{"tokens":"100","model":"big","user":"bob"}`), 204, ""},
		{"POST events", "acme", "application/cloudevents+json",
			event("1", "acme", `{"tokens":"100","model":"big","user":"bob"}`), 204, ""},
		{"POST events", "all", "application/json", "[" + event("2", "acme", `{"tokens":20,"model":"small","user":"bob"}`) +
			"," + event("3", "other", `{"tokens":3,"model":"big","user":"eve"}`) + "]", 204, ""},
		{"POST events", "acme", "application/cloudevents-batch+json", "[" + event("4", "acme", `{"model":"big"}`) + "]", 400,
			"event 0: data.tokens: is missing"},
		{"POST events", "acme", "application/cloudevents+json",
			event("5", "acme", `{"tokens":1.5,"user":"bob"}`), 400, "is no integer"},
		{"POST events", "acme", "", strings.Replace(event("6", "acme", "{}"), `"type":"request"`, `"type":"x"`, 1), 400,
			"no meter counts"},
		{"POST events", "other", "", event("7", "acme", `{"tokens":1,"user":"bob"}`), 403, "usage:write"},
		{"GET meters/tokens/subjects", "all", "", "", 200, `["acme","other"]`},
		{"GET meters/tokens/subjects", "other", "", "", 200, `["other"]`},
		{"GET meters/tokens/query?" + span, "all", "", "", 200, `"value":123`},
		{"GET meters/tokens/query?subject=acme&" + span, "acme", "", "", 200, `"value":120`},
		{"GET meters/tokens/query?subject=acme&" + span, "other", "", "", 403, ""},
		{"GET meters/tokens/query?groupBy=model&" + span, "all", "", "", 200, `"groupBy":{"model":"big"}`},
		{"GET meters/tokens/query?filterGroupBy[model]=small&" + span, "all", "", "", 200, `"value":20`},
		{"GET meters/tokens/query?windowSize=MINUTE&" + span, "all", "", "", 200, `"windowSize":"MINUTE"`},
		{"GET meters/tokens/query?windowSize=DAY&windowTimeZone=Europe/Berlin", "all", "", "", 200, `"value":123`},
		{"GET meters/users/query?subject=acme&" + span, "all", "", "", 200, `"value":1`},
		{"GET meters/mean/query?" + span, "all", "", "", 200, `"value":41,`},
		{"GET meters/mean/query?groupBy=model&" + span, "all", "", "", 200, `"value":51.5,`},
		{"GET meters/mean/query?filterGroupBy[model]=small&" + span, "all", "", "", 200, `"value":20,`},
		{"GET meters/least/query?" + span, "all", "", "", 200, `"value":3,`},
		{"GET meters/least/query?subject=acme&" + span, "all", "", "", 200, `"value":20,`},
		{"GET meters/mean/query?" + span, "all", "text/csv", "", 200, "window_start,window_end,value\n" + hour(at) + "," +
			hour(at.Add(time.Hour)) + ",41\n"},
		{"GET meters/tokens/query?groupBy=model&groupBy=subject&" + span, "all", "text/csv, application/json", "", 200,
			"window_start,window_end,subject,model,value\n" + hour(at) + "," + hour(at.Add(time.Hour)) + ",acme,big,100\n"},
		{"GET meters/tokens/query?groupBy=color", "all", "text/csv", "", 400, `"status":400`},
		// The third of the events that were refused is whole for a meter that needs no field of it.
		{"GET meters/request/query?groupBy=subject&" + span, "all", "", "", 200, `"subject":"acme"`},
		{"GET meters/tokens/query?groupBy=color", "all", "", "", 400, "groupBy:"},
		{"GET meters/tokens/query?windowSize=WEEK", "all", "", "", 400, "windowSize:"},
		{"DELETE meters/users", "all", "", "", 204, ""},
		{"GET meters/users", "all", "", "", 404, ""},
	} {
		method, path, _ := strings.Cut(row.call, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, "/api/v1/"+path, strings.NewReader(row.body))
		r.Header.Set("X-Consul-Token", row.token)
		if row.media != "" {
			r.Header.Set(map[string]string{"POST": "Content-Type", "GET": "Accept"}[method], row.media)
		}
		w := httptest.NewRecorder()
		door.ServeHTTP(w, r)
		if got := w.Body.String(); w.Code != row.status || !strings.Contains(got, row.want) {
			t.Errorf("row %d: %s %.80q as %q: %d %.300s, want %d with %q", i, row.call, row.body, row.token, w.Code, got,
				row.status, row.want)
		}
	}
	// The shape of an answer, field by field.
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/meters/tokens/query?windowSize=HOUR&groupBy=subject&"+
		"groupBy=model&subject=acme&"+span, nil)
	r.Header.Set("X-Consul-Token", "all")
	w := httptest.NewRecorder()
	door.ServeHTTP(w, r)
	row := func(value int, model string) string {
		return fmt.Sprintf(`{"value":%d,"windowStart":%q,"windowEnd":%q,"subject":"acme","groupBy":{"model":%q}}`, value,
			hour(at), hour(at.Add(time.Hour)), model)
	}
	want := fmt.Sprintf(`{"from":%q,"to":%q,"windowSize":"HOUR","data":[%s,%s]}`, hour(at), hour(at.Add(time.Hour)),
		row(100, "big"), row(20, "small"))
	if got := strings.TrimSpace(w.Body.String()); got != want || !json.Valid([]byte(got)) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
