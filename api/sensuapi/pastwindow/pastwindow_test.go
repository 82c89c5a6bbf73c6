package pastwindow

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/monitor/runs"
)

var now = time.Unix(1_000_000, 0)

func TestOf(t *testing.T) {
	all := []runs.Span{{Status: 0, First: 100, Last: 200}, {Status: 2, First: 201, Last: 300},
		{Status: 0, First: 301, Last: 999_000}}
	for query, want := range map[string][]runs.Span{
		"":                           all,
		"status=2":                   all[1:2],
		"limit=1":                    all[2:],
		"since=250":                  all[1:],
		"until=1970-01-01T00:03:30Z": all[:2],
		"since=1h":                   all[2:], // 996,400 is before its end
		"since=1000&until=1000":      all[2:],
		"status=1":                   {},
	} {
		q, _ := url.ParseQuery(query)
		w, err := Of(q.Get, now)
		if err != nil {
			t.Errorf("%s: %v", query, err)
		} else if got := w.Of(all); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	for query, want := range map[string]string{"since=then": "since", "until=-1h": "until", "status=-1": "status",
		"limit=-2": "limit", "limit=many": "limit", "since=20&until=10": "until is before since"} {
		q, _ := url.ParseQuery(query)
		if _, err := Of(q.Get, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", query, err)
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add("1h", "2006-01-02T15:04:05Z", "2", "10")
	f.Fuzz(func(t *testing.T, since, until, status, limit string) {
		q := url.Values{"since": {since}, "until": {until}, "status": {status}, "limit": {limit}}
		w, err := Of(q.Get, now)
		if err == nil && (w.until < w.since || w.limit < 0) {
			t.Errorf("%+v", w)
		}
	})
}
