package usageapi

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/usage"
)

// meterAsk sends a request to OpenMeter's door as a token. media is the Content-Type of a POST, and else what is
// accepted.
func meterAsk(t *testing.T, api *API, token, call, media, body string) (int, string) {
	t.Helper()
	method, path, _ := strings.Cut(call, " ")
	r := httptest.NewRequestWithContext(t.Context(), method, "/api/v1/"+path, strings.NewReader(body))
	r.Header.Set("X-Consul-Token", token)
	header := "Accept"
	if method == "POST" {
		header = "Content-Type"
	}
	if media != "" {
		r.Header.Set(header, media)
	}
	w := httptest.NewRecorder()
	api.OpenMeter().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// meterEvent is a CloudEvent of type call.
func meterEvent(at time.Time, id, subject, data string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"gw","type":"call","subject":%q,"time":%q,"data":%s}`, id,
		subject, at.Format(time.RFC3339), data)
}

// TestOpenMeterFields: amounts and groups come from nested data, and rows are told by several fields at once.
func TestOpenMeterFields(t *testing.T) {
	api := newAPI(t)
	at := time.Now().UTC().Truncate(time.Hour).Add(-2 * time.Hour)
	for _, meter := range []string{
		`{"slug":"deep","aggregation":"SUM","eventType":"call","valueProperty":"$.usage.total",
			"groupBy":{"model":"$.model","region":"$.where.region","zone":"$.where.zone"}}`,
		`{"slug":"callers","aggregation":"UNIQUE_COUNT","eventType":"call","valueProperty":"$.user.id",
			"groupBy":{"model":"$.model","region":"$.where.region"}}`,
		`{"slug":"three","aggregation":"UNIQUE_COUNT","eventType":"call","valueProperty":"$.user.id",
			"groupBy":{"model":"$.model","region":"$.where.region","zone":"$.where.zone"}}`,
		`{"slug":"newest","aggregation":"LATEST","eventType":"call","valueProperty":"$.usage.total",
			"groupBy":{"model":"$.model","region":"$.where.region","zone":"$.where.zone"}}`,
		`{"slug":"flat","aggregation":"COUNT","eventType":"call","groupBy":{"model":"$.model"}}`,
	} {
		if code, got := meterAsk(t, api, "all", "POST meters", "", meter); code != 200 {
			t.Fatal(code, got)
		}
	}
	data := []string{`{"usage":{"total":10},"model":"big","where":{"region":"eu","zone":"a"},"user":{"id":"u"}}`,
		`{"usage":{"total":5},"model":"big","where":{"region":"us"},"user":{"id":"u"}}`,
		`{"usage":{"total":3},"model":"small","where":{"region":"eu","zone":"b"},"user":{"id":"u"},"where.region":"us"}`,
		`{"usage":{"total":4},"model":"small","where":{"region":"eu","zone":"a"},"user":{"id":"v"}}`}
	for i, d := range data {
		code, got := meterAsk(t, api, "all", "POST events", "", meterEvent(at, fmt.Sprint(i), "acme", d))
		if code != 204 {
			t.Fatal(d, code, got)
		}
	}
	start, end := at.Format(time.RFC3339), at.Add(time.Hour).Format(time.RFC3339)
	span := "&from=" + start + "&to=" + end
	for _, row := range [][2]string{
		{"deep/query?groupBy=region", "region,value|eu,17|us,5|"},
		{"deep/query?groupBy=model,region", "model,region,value|big,eu,10|big,us,5|small,eu,7|"},
		{"deep/query?groupBy=region&groupBy=model", "region,model,value|eu,big,10|eu,small,7|us,big,5|"},
		{"deep/query?groupBy=zone,subject,region", "subject,zone,region,value|acme,,us,5|acme,a,eu,14|acme,b,eu,3|"},
		{"deep/query?groupBy=model&filterGroupBy[region]=eu", "model,value|big,10|small,7|"},
		{"deep/query?filterGroupBy[region]=eu&filterGroupBy[zone]=a,b", "value|17|"},
		{"callers/query?subject=acme", "value|2|"},
		{"callers/query?groupBy=region,model", "region,model,value|eu,big,1|eu,small,2|us,big,1|"},
		{"callers/query?groupBy=model&filterGroupBy[region]=eu", "model,value|big,1|small,2|"},
		{"flat/query?groupBy=model", "model,value|big,2|small,2|"},
		{"callers/query?groupBy=model&filterGroupBy[region]=eu,us", "model,value|big,1|small,2|"},
		{"callers/query?filterGroupBy[region]=eu,us", "value|2|"},
		{"three/query?groupBy=model,region", "model,region,value|big,eu,1|big,us,1|small,eu,2|"},
		{"three/query?groupBy=region,zone", "region,zone,value|eu,a,2|eu,b,1|us,,1|"},
		{"three/query?groupBy=zone,model,region", "zone,model,region,value|,big,us,1|a,big,eu,1|a,small,eu,1|b,small,eu,1|"},
		{"three/query?groupBy=region&filterGroupBy[zone]=a,b", "region,value|eu,2|"},
		{"three/query?filterGroupBy[model]=small&filterGroupBy[zone]=a,b,c", "value|2|"},
		{"newest/query?subject=acme&groupBy=model,region", "model,region,value|big,eu,10|big,us,5|small,eu,4|"},
		{"deep/query?groupBy=color", "groupBy:"},
		{"deep/query?filterGroupBy[color]=red", "filterGroupBy:"},
		{"flat/query?groupBy=model,region", "groupBy:"},
	} {
		question, want := row[0], row[1]
		path, query, _ := strings.Cut(question+span, "?")
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		_, got := meterAsk(t, api, "all", "GET meters/"+path+"?"+values.Encode(), "text/csv", "")
		got = strings.ReplaceAll(strings.ReplaceAll(got, start+","+end+",", ""), "window_start,window_end,", "")
		got = strings.ReplaceAll(got, "\n", "|")
		if table := strings.HasSuffix(want, "|"); table && got != want || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", question, got, want)
		}
	}
	code, got := meterAsk(t, api, "all", "POST events", "", meterEvent(at, "9", "acme", `{"usage":5,"user":{"id":"u"}}`))
	if code != 400 || !strings.Contains(got, "data.usage.total: is missing") {
		t.Error(code, got)
	}
}

// TestJoint: which meters have a tag of all their fields, and what it holds.
func TestJoint(t *testing.T) {
	for fields, want := range map[string]string{"a": "", "a b": "a,b", "a b,c": "", "a b c d e f g": "a,b,c,d,e,f,g",
		"a b c d e f g h": "", "": ""} {
		if got := jointTag(strings.Fields(fields)); got != want {
			t.Errorf("%s: %q, want %q", fields, got, want)
		}
	}
	long := strings.Repeat("x", usage.MaxTagBytes)
	if got := usage.JointValue([]string{"a\"b", ""}); got != `["a\"b",""]` || usage.JointValue([]string{long, ""}) != "" {
		t.Error(got)
	}
	full := &usage.Product{Tags: []string{"1", "2", "3", "4", "5", "6", "7", "8"}}
	for _, test := range []struct {
		old  *usage.Product
		want int
	}{{nil, 3}, {&usage.Product{Tags: []string{"b", "c"}}, 3}, {full, 2}} {
		p := &usage.Product{Tags: []string{"a", "b"}}
		if addJoint(p, test.old); len(p.Tags) != test.want {
			t.Errorf("%v: %q", test.old, p.Tags)
		}
	}
}

// TestFieldPath: what is a path, and what is none.
func TestFieldPath(t *testing.T) {
	for text, want := range map[string]string{"$.a": "a", "$.a.b-c_D9": "a.b-c_D9", "$": "", "$.": "", "a": "", "$.a.": "",
		"$..a": "", "$.a[0]": "", "$.a b": "", "$." + strings.Repeat("a.", maxPathNames) + "a": "",
		"$." + strings.Repeat("x", usage.MaxNameBytes+1): ""} {
		if got, ok := fieldPath(text); got != want || ok != (want != "") {
			t.Errorf("%.60s: %q, %t", text, got, ok)
		}
	}
}
