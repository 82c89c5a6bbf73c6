package dogstatsd

import (
	"fmt"
	"strings"
	"testing"

	"corbel.dev/corbel/usage"
)

// TestDecode is section 3's door "dogstatsd on 8125/udp".
func TestDecode(t *testing.T) {
	for text, want := range map[string]string{
		"users:u1|s|#tenant:acme,team:x": "[acme users 0 [{member u1} {team x}] false 0 [{team x}]]",
		"users:a:b|s":                    "[ users 0 [{member a:b}] false 0 []]",
		"bytes:5|c|#tenant:a":            "[a bytes 0 [] true 5 []]",
		"bytes:1|c|@0.1":                 "[ bytes 0 [] true 10 []]",
		"bytes:1:2:3|c|@0.5|#a,b:c:d": "[ bytes 0 [] true 2 [{a } {b c:d}]]" +
			"[ bytes 0 [] true 4 [{a } {b c:d}]][ bytes 0 [] true 6 [{a } {b c:d}]]",
		"g:2.5|g":                    "[ g 0 [] true 3 []]",
		"g:+2|g":                     "value",
		"h:7|h|@0.5":                 "[ h 0 [] true 7 []]",
		"d:7|d|c:ci-1|T1774746000":   "[ d 1774746000000000000 [] true 7 [{container ci-1}]]",
		"t:7|ms|e:later|card:low":    "[ t 0 [] true 7 []]",
		"plain:1|c\nplain:2|c\r\n\n": "[ plain 0 [] true 1 []][ plain 0 [] true 2 []]",
		"x:9007199254740993|c":       "[ x 0 [] true 9007199254740993 []]",
		"x:1|c\nbroken\ny:1|c":       "[ x 0 [] true 1 []][ y 0 [] true 1 []] line",
		"_e{1,1}:a|b":                "type", "_sc|a|0": "type", "x:1": "line", ":1|c": "line", "x|c": "line",
		"x:|c":  "value",
		"x:1|q": "type", "x:nan|c": "value", "x:1|c|@2": "rate", "x:1|c|@0": "rate", "x:1|c|@x": "rate",
		"x:1|c|T-1": "timestamp",
		"x:1:y|c":   "value", "x:1e300|g": "value", "x:inf|g": "value",
	} {
		events, rejects := Decode(nil, text)
		var b strings.Builder
		for _, e := range events {
			fmt.Fprintf(&b, "[%s %s %d %v %t %s %v]", e.Tenant, e.Product, e.Time, e.Identity, e.HasValue, e.Value, e.Tags)
		}
		for _, r := range rejects {
			if e, ok := r.Err.(*usage.FieldError); ok {
				fmt.Fprintf(&b, " %s", e.Field)
			}
		}
		if got := strings.TrimSpace(b.String()); got != strings.TrimSpace(want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	many := "x:1" + strings.Repeat(":1", MaxValues) + "|c"
	if events, rejects := Decode(nil, many); len(events) != 0 || len(rejects) != 1 {
		t.Errorf("%d events of a line with too many", len(events))
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"users:u1|s|#tenant:acme,team:x", "bytes:1:2|c|@0.5|#a,b:c|c:x|T5", "a:1|g\nb",
		"_e{1,1}:a|b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, packet string) {
		events, rejects := Decode(nil, packet)
		lines := strings.Count(packet, "\n") + 1
		if len(rejects) > lines || len(events) > lines+strings.Count(packet, ":") {
			t.Fatalf("%d lines give %d events and %d rejects", lines, len(events), len(rejects))
		}
		for _, e := range events {
			if e.Product == "" || !strings.Contains(packet, e.Product) || e.Time < 0 || len(e.Tags) > usage.MaxTags+1 {
				t.Fatalf("%+v", e)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	packet := strings.TrimSuffix(strings.Repeat("users.seen:u-0123456789|s|#tenant:acme,team:core\n", 20), "\n")
	events := make([]usage.Event, 0, 20)
	b.ReportAllocs()
	for i := 0; i < b.N; i += 20 {
		events, _ = Decode(events[:0], packet)
	}
}
