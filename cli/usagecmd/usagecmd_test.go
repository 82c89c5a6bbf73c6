package usagecmd

import (
	"net/url"
	"testing"
)

// TestNobody: why a list is empty, and what to try. Nothing looks further back than a month.
func TestNobody(t *testing.T) {
	const other = "--tenant names another one of `corbel usage tenants`"
	for asked, want := range map[string]string{
		"product=p&window=1h":    "Nobody used p within 1h: --window month looks further back.",
		"product=p&window=day":   "Nobody used p this day: --window month looks further back.",
		"product=p&window=month": "Nobody used p this month.",
		"product=p&window=1h&by=team": "Tenant default used no p within 1h: " + other +
			", and --window month looks further back.",
		"product=p&window=month&by=t&tenant=x": "Tenant x used no p this month: " + other + ".",
	} {
		v, err := url.ParseQuery(asked)
		if err != nil {
			t.Fatal(err)
		}
		if got := nobody(v); got != want {
			t.Errorf("%s: %q, want %q", asked, got, want)
		}
	}
}
