package cloudevents

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
)

func show(items []Item) string {
	var b strings.Builder
	for _, i := range items {
		if i.Err != nil {
			fmt.Fprintf(&b, "[%s]", i.Err)
			continue
		}
		fmt.Fprintf(&b, "[%s %s %s %s %d %v %s %t %v]", i.ID, i.Source, i.Tenant, i.Product, i.Time, i.Identity, i.Value,
			i.HasValue, i.Tags)
	}
	return b.String()
}

func field(string) string { return "bytes" }

// TestDecode: sections 3 (doors, "a rejected event names the field") and 10 (times, CloudEvents data, sums).
func TestDecode(t *testing.T) {
	for _, test := range []struct{ name, media, body, want string }{
		{"array", "", `[{"product":"hosts","id":"1","source":"s","tenant":"t","time":5,"identity":{"host":"a"},` +
			`"tags":{"team":"x","n":1}},{"product":"b","value":"18446744073709551616"}]`,
			"[1 s t hosts 5 [{host a}] 0 false [{team x} {n 1}]][   b 0 [] 18446744073709551616 true []]"},
		{"lines", "application/x-ndjson", "{\"product\":\"a\"}\n\n {\"product\":\"b\",\"value\":9007199254740993} \n",
			"[   a 0 [] 0 false []][   b 0 [] 9007199254740993 true []]"},
		{"one object over lines", "application/json", "{\n\"product\":\n\"a\"\n}", "[   a 0 [] 0 false []]"},
		{"a broken line", "", "{\"product\":\"a\"}\n{\"product\":\n{\"product\":\"c\"}\n",
			"[   a 0 [] 0 false []][event: is no JSON][   c 0 [] 0 false []]"},
		{"wrong fields", "", `[{"product":"a","value":1.5},{"product":1},{"identity":{}},` +
			`{"product":"a","identity":{"h":[]}},` +
			`{"product":"a","time":"soon"},{"product":"a","extra":1},7,{"product":"a","identity":5}]`,
			"[value: must be an integer of at most 24 digits][product: must be a text][product: is missing]" +
				"[identity.h: must be a text, a number or a boolean][time: \"soon\" is not RFC 3339]" +
				"[extra: is no field of an event][event: must be an object][identity: must be an object]"},
		{"times", "", `{"product":"a","time":"2026-03-29T03:00:00.123456789+02:00"}` +
			`{"product":"a","time":"2026-03-29T01:00:00"}` +
			`{"product":"a","time":1774746000123456789}{"product":"a","time":1.5e9}`,
			"[   a 1774746000123456789 [] 0 false []][   a 1774746000000000000 [] 0 false []]" +
				"[   a 1774746000123456789 [] 0 false []][time: must be RFC 3339 or an integer of Unix nanoseconds]"},
		{"identities byte by byte", "",
			`{"product":"a","identity":{"h":"\u00e9","i":"e\u0301","j":1.0,"k":true,"l":null,"m":""}}`,
			"[   a 0 [{h é} {i e\u0301} {j 1.0} {k true} {m }] 0 false []]"},
		{"structured", Structured + "; charset=utf-8", `{"specversion":"1.0","id":"1","source":"/s","type":"hosts",` +
			`"subject":"t","time":"2026-01-01T00:00:00Z","ext":{"a":[1]},` +
			`"data":{"identity":{"host":"a"},"value":3,"tags":{"x":"y"}}}`,
			"[1 /s t hosts 1767225600000000000 [{host a}] 3 true [{x y}]]"},
		{"flat data", Structured,
			`{"specversion":"1.0","id":"1","source":"s","type":"p","data":{"host":"a","bytes":7,"n":{}}}`,
			"[1 s  p 0 [{host a}] 7 true [{host a}]]"},
		{"batch", Batched, `[{"specversion":"1.0","id":"1","source":"s","type":"p","data_base64":"eyJob3N0IjoiYSJ9"},` +
			`{"specversion":"0.3","id":"1","source":"s","type":"p"},{"specversion":"1.0","source":"s","type":"p"},` +
			`{"specversion":"1.0","id":"1","source":"s"},{"specversion":"1.0","id":"1","source":"s","type":"p",` +
			`"datacontenttype":"text/plain","data":"x"},{"specversion":"1.0","id":"1","source":"s","type":"p","data":"x"}]`,
			"[1 s  p 0 [{host a}] 0 false [{host a}]][specversion: \"0.3\" is not 1.0][id: is missing][type: is missing]" +
				"[datacontenttype: \"text/plain\" is not JSON][data: must be an object]"},
		{"empty", "", "", ""}, {"empty array", "", " [ ] ", ""},
	} {
		items, err := Decode(test.media, []byte(test.body), field)
		if got := show(items); err != nil || got != test.want {
			t.Errorf("%s: %s, %v\nwant %s", test.name, got, err, test.want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	many := "[" + strings.Repeat(`{"product":"a"},`, usage.MaxEvents) + `{"product":"a"}]`
	for _, test := range []struct {
		media, body string
		kind        errkind.Kind
	}{
		{"", "[{}", errkind.Invalid}, {"", "[{} {}]", errkind.Invalid}, {"", "[{}] x", errkind.Invalid},
		{"", "[{\"a\":\"\x01\"}]", errkind.Invalid}, {"", "[" + strings.Repeat("[", 100), errkind.Invalid},
		{Batched, "{}", errkind.Invalid}, {Structured, "[]", errkind.Invalid},
		{"application/cloudevents+avro", "", errkind.Invalid},
		{"a/b/c", "", errkind.Invalid}, {"", many, errkind.TooLarge},
		{"", strings.Repeat("1\n", usage.MaxEvents+1), errkind.TooLarge},
	} {
		if _, err := Decode(test.media, []byte(test.body), nil); errkind.Of(err) != test.kind {
			t.Errorf("%.40q: %v", test.body, err)
		}
	}
}

func TestDecodeBinary(t *testing.T) {
	headers := map[string]string{"Ce-Specversion": "1.0", "Ce-Id": "1", "Ce-Source": "/s%20%C3%A9", "Ce-Type": "p",
		"Ce-Subject": "t", "Ce-Time": "2026-01-01T00:00:00Z", "Content-Type": "application/json"}
	get := func(name string) string { return headers[name] }
	item, ok := DecodeBinary(get, []byte(`{"host":"a"}`), nil)
	if want := "[1 /s é t p 1767225600000000000 [{host a}] 0 false [{host a}]]"; !ok || show([]Item{item}) != want {
		t.Errorf("%s, %t", show([]Item{item}), ok)
	}
	if item, _ := DecodeBinary(get, []byte(`{"host"`), nil); item.Err == nil {
		t.Error("broken data is taken")
	}
	headers["Ce-Time"] = "soon"
	if item, _ := DecodeBinary(get, nil, nil); item.Err == nil {
		t.Error("a broken time is taken")
	}
	if _, ok := DecodeBinary(func(string) string { return "" }, nil, nil); ok {
		t.Error("a request without headers is a CloudEvent")
	}
}

// oracle is what encoding/json reads of an event.
type oracle struct {
	ID, Source, Tenant, Product *string
	Identity, Tags              map[string]any
}

// FuzzDecode: never panics; what is taken is JSON, and encoding/json reads the same texts.
func FuzzDecode(f *testing.F) {
	f.Add("", []byte(`[{"product":"a","id":"\u00e9","identity":{"h":1,"i":"x"}}]`))
	f.Add(Structured, []byte(`{"specversion":"1.0","id":"1","source":"s","type":"p","data":{"host":"a","bytes":7}}`))
	f.Add(Batched, []byte(`[{"specversion":"1.0","id":"1","source":"s","type":"p","data_base64":"e30="}]`))
	f.Add("", []byte("{\"product\":\"a\"}\n{\n{\"product\":\"c\"}"))
	f.Fuzz(func(t *testing.T, media string, body []byte) {
		items, err := Decode(media, body, field)
		if err != nil || len(items) != 1 || items[0].Err != nil || media != "" || !json.Valid(body) {
			return
		}
		var all []oracle
		if json.Unmarshal(body, &all) != nil {
			var one oracle
			if json.Unmarshal(body, &one) != nil {
				return // names in other letters: encoding/json takes them for ours
			}
			all = []oracle{one}
		}
		e := items[0].Event
		for _, p := range []struct {
			want *string
			got  string
		}{{all[0].ID, e.ID}, {all[0].Source, e.Source}, {all[0].Product, e.Product}} {
			if want := p.want; want != nil && strings.ToValidUTF8(p.got, "\ufffd") != strings.ToValidUTF8(*want, "\ufffd") &&
				!strings.Contains(*want, "\ufffd") {
				t.Fatalf("%q, encoding/json reads %q", p.got, *want)
			}
		}
	})
}

func FuzzDecodeBinary(f *testing.F) {
	f.Add("1.0", "id", "s", "2026-01-01T00:00:00Z", []byte(`{"a":1}`))
	f.Fuzz(func(t *testing.T, version, id, source, at string, body []byte) {
		headers := map[string]string{"Ce-Specversion": version, "Ce-Id": id, "Ce-Source": source, "Ce-Time": at,
			"Ce-Type": "p"}
		item, ok := DecodeBinary(func(name string) string { return headers[name] }, body, field)
		if ok && item.Err == nil && (item.ID == "" || item.Source == "" || version != "1.0") {
			t.Fatalf("%+v", item)
		}
	})
}

// TestStringsShareTheBody keeps the promise that a body costs a few slices: no allocation for each text.
func TestStringsShareTheBody(t *testing.T) {
	body := []byte("[" + strings.Repeat(`{"product":"hosts","id":"1","source":"s","identity":{"host":"a"}},`, 99) +
		`{"product":"hosts"}]`)
	if n := testing.AllocsPerRun(20, func() {
		if _, err := Decode("", body, nil); err != nil {
			t.Fatal(err)
		}
	}); n > 500 {
		t.Errorf("%v allocations for 100 events", n)
	}
}

func BenchmarkDecode(b *testing.B) {
	body := []byte("[" + strings.Repeat(`{"product":"hosts","id":"0123456789","source":"agent-17","tenant":"acme",`+
		`"time":1774746000123456789,"identity":{"host":"i-0123456789abcdef0"},"tags":{"team":"core"}},`, 99) +
		`{"product":"h"}]`)
	b.ReportAllocs()
	for i := 0; i < b.N; i += 100 {
		if _, err := Decode("", body, nil); err != nil {
			b.Fatal(err)
		}
	}
}
