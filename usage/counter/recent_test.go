package counter

import (
	"testing"
	"time"
)

// TestRecentQuery: each bound leaves out what is beyond it, and what has none leaves out nothing.
func TestRecentQuery(t *testing.T) {
	at, stored := time.Unix(1000, 0), time.Unix(2000, 0)
	for name, test := range map[string]struct {
		q     RecentQuery
		takes bool
	}{
		"everything":        {RecentQuery{}, true},
		"a part of each":    {RecentQuery{Tenant: "cm", ID: "d1"}, true},
		"another tenant":    {RecentQuery{Tenant: "other"}, false},
		"another id":        {RecentQuery{ID: "2"}, false},
		"who may read it":   {RecentQuery{Tenants: []string{"other", "acme"}}, true},
		"who may not":       {RecentQuery{Tenants: []string{"other"}}, false},
		"who may nothing":   {RecentQuery{Tenants: []string{}}, false},
		"both ends":         {RecentQuery{From: at, To: at, Stored: stored, Until: stored}, true},
		"a later time":      {RecentQuery{From: at.Add(1)}, false},
		"an earlier time":   {RecentQuery{To: at.Add(-1)}, false},
		"it came earlier":   {RecentQuery{Stored: stored.Add(1)}, false},
		"it came later":     {RecentQuery{Until: stored.Add(-1)}, false},
		"the time it came":  {RecentQuery{From: stored}, false},
		"an id of a marked": {RecentQuery{Marked: []string{"calls"}, ID: "calls"}, false},
	} {
		id := test.q.EventID("id1#calls", "calls")
		if id == "id1#calls" != (len(test.q.Marked) == 0) {
			t.Errorf("%s: the id is %s", name, id)
		}
		if got := test.q.Takes("acme", id, at, stored); got != test.takes {
			t.Errorf("%s: %t", name, got)
		}
	}
}
