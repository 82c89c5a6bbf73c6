package usageapi

import (
	"fmt"
	"strings"
	"testing"
)

// TestMetrics: the tenants beyond the limit are one, which has an error and a completeness as the named ones have; a
// tenant of that name is among them.
func TestMetrics(t *testing.T) {
	api := newAPI(t)
	if code, got := ask(t, api, "all", "PUT", "products/calls", `{"kind":"sum","windows":["1h"]}`); code != 200 {
		t.Fatal(code, got)
	}
	event := func(tenant string, value int) string {
		return fmt.Sprintf(`{"id":"1","source":"s","tenant":%q,"product":"calls","value":%d}`, tenant, value)
	}
	events := []string{event(others, 1000)}
	for i := range maxMetricTenants + 1 {
		events = append(events, event(fmt.Sprint("t", i), 100-i))
	}
	if code, got := ask(t, api, "all", "POST", "events", "["+strings.Join(events, ",")+"]"); code != 202 {
		t.Fatal(code, got)
	}
	code, got := ask(t, api, "all", "GET", "metrics", "")
	if code != 200 {
		t.Fatal(code, got)
	}
	for line, times := range map[string]int{
		`usage_estimate{tenant="t0",product="calls",window="1h"} 100`:       1,
		`usage_estimate_error{tenant="t0",product="calls",window="1h"} 0`:   1,
		`usage_completeness{tenant="t0",product="calls",window="1h"} 1`:     1,
		`usage_estimate{tenant="t19",product="calls",window="1h"}`:          0,
		`usage_estimate{tenant="other",product="calls",window="1h"} 1161`:   1, // and t19 with 81, t20 with 80
		`usage_estimate{tenant="other"`:                                     1,
		`usage_estimate_error{tenant="other",product="calls",window="1h"} `: 1,
		`usage_completeness{tenant="other",product="calls",window="1h"} 1`:  1,
		"# TYPE usage_estimate": 2, // one begins as the other does
	} {
		if n := strings.Count(got, line); n != times {
			t.Errorf("%s stands there %d times, want %d:\n%s", line, n, times, got)
		}
	}
}
