package aggregator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/limits"
)

// TestLate: late events of parts that other servers lead are listed, and a part whose answer is damaged is named.
func TestLate(t *testing.T) {
	reply := []byte(`[{"tenant":"acme","product":"hosts","id":"1","time":"2020-01-01T00:00:00Z",` +
		`"received":"2026-01-01T00:00:00.000000007Z"}]`)
	a := newAggregator(t, &reply)
	list, silent := a.Late(t.Context())
	if len(list) != 1 || list[0].Tenant != "acme" || list[0].Came.Nanosecond() != 7 || len(silent) != 0 {
		t.Errorf("%+v, silent %q", list, silent)
	}
	reply = []byte(`{"no":"list"}`)
	if list, silent = a.Late(t.Context()); len(list) != 0 || len(silent) != 1 || !strings.HasPrefix(silent[0], "s1: ") {
		t.Errorf("%+v, silent %q", list, silent)
	}
}

// TestLeftOut: what a part had counted that is asked no more is missing, and an answer about that time says so.
func TestLeftOut(t *testing.T) {
	var reply []byte // of the part that is asked: it is damaged, which is another matter
	a := newAggregator(t, &reply)
	at := time.Now().Truncate(time.Minute)
	owners := func(after time.Duration, names ...string) {
		t.Helper()
		if _, err := a.cfg.Definitions.Do(t.Context(), definitions.Command{At: at.Add(after), Owners: names}); err != nil {
			t.Fatal(err)
		}
	}
	says := func(from time.Time) bool {
		t.Helper()
		e, err := a.Estimate(t.Context(), Question{Product: "hosts", From: from, To: from.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Contains(strings.Join(e.Completeness.Missing, " "), "part s1 was left out")
		if said && e.Error.High != nil {
			t.Errorf("%+v has an upper bound", e.Error)
		}
		return said
	}
	if says(at.Add(-time.Hour)) {
		t.Error("nothing was left out yet")
	}
	owners(0, "s2", "s3")
	if !says(at.Add(-time.Hour)) || says(at) {
		t.Error("what s1 counted is missing before it was left out, and not behind that")
	}
	owners(time.Minute, "s2")
	if left := a.cfg.Definitions.View().Left; len(left) != 2 || !left["s1"].Equal(at) {
		t.Errorf("left out are %v", left)
	}
	owners(time.Hour, "s1", "s2", "s3")
	if says(at.Add(-time.Hour)) || a.cfg.Definitions.View().Left != nil {
		t.Error("s1 is back")
	}
}

// TestVersion: a change at another server is seen, and others are asked no more often than they need be.
func TestVersion(t *testing.T) {
	reply := pack.Uint(nil, 7)
	a := newAggregator(t, &reply)
	hand := clock.NewFake(time.Unix(1000, 0))
	a.cfg.Clock = hand
	if got := a.Version(t.Context()); got != 7 {
		t.Errorf("the version is %d", got)
	}
	reply = pack.Uint(nil, 9)
	if got := a.Version(t.Context()); got != 7 {
		t.Errorf("it was asked for again at once: %d", got)
	}
	hand.Advance(versionAge)
	if got := a.Version(t.Context()); got != 9 {
		t.Errorf("the version is %d", got)
	}
	reply = nil // it is damaged, and so another one
	hand.Advance(versionAge)
	if got := a.Version(t.Context()); got != 0 {
		t.Errorf("a damaged version is %d", got)
	}
}

// TestSilent: a server that is silent keeps nobody from hearing of the others, and lists name it. What its version was
// it stays; that of one that refuses is none.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reply []byte
		a := newAggregator(t, &reply)
		a.cfg.Parts = func() []string { return []string{"hangs", "refuses", "says"} }
		healthy, version := true, uint64(1)
		a.cfg.Call = func(ctx context.Context, part, method string, _ []byte) ([]byte, error) {
			switch {
			case part == "refuses":
				return nil, errors.New("refused")
			case part == "hangs" && !healthy:
				<-ctx.Done()
				return nil, ctx.Err()
			case method == MethodVersion && part == "hangs":
				return pack.Uint(nil, 100), nil
			case method == MethodVersion:
				return pack.Uint(nil, version), nil
			case method == MethodSeries:
				return pack.Uint(pack.String(pack.String(pack.Uint(nil, 1), "acme"), "hosts"), 1), nil
			}
			return nil, errors.New("it does not answer")
		}
		if got := a.Version(t.Context()); got != 101 {
			t.Errorf("the version is %d", got)
		}
		healthy, version = false, 2
		time.Sleep(versionAge) // of a clock that is not a real one
		if got := a.Version(t.Context()); got != 102 {
			t.Errorf("a change beside a server that hangs makes version %d", got)
		}
		list, silent := a.Series(t.Context())
		if len(list) != 1 || list[0].Tenant != "acme" || len(silent) != 2 || !strings.HasPrefix(silent[0], "hangs: ") {
			t.Errorf("%v, silent %q", list, silent)
		}
		_, missing, err := a.Top(t.Context(), Question{Product: "hosts", Window: "1h"}, 1, func(string) bool { return true })
		if err != nil || len(missing) != 2 || !strings.HasPrefix(missing[1], "no answer from refuses: ") {
			t.Errorf("%q, %v", missing, err)
		}
	})
}

// TestByTogether: uniques are told by some of three tags, over two parts of the log, and each counts once in a row.
func TestByTogether(t *testing.T) {
	silent := ""
	a, own, other := twoParts(t, &silent)
	p := &usage.Product{Name: "seats", Kind: usage.Unique, Identity: []string{"user"},
		Tags: []string{"team", "env", "zone", "team,env,zone"}}
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.cfg.Definitions.Do(t.Context(), definitions.Command{Put: p}); err != nil {
		t.Fatal(err)
	}
	seat := func(user, team, env, zone string) usage.Event {
		return usage.Event{Tenant: "acme", Product: "seats", Identity: []usage.Field{{Name: "user", Value: user}},
			Tags: []usage.Field{{Name: "team", Value: team}, {Name: "env", Value: env}, {Name: "zone", Value: zone}}}
	}
	take(t, own, a.cfg.Definitions, seat("bob", "red", "prod", "a"), seat("bob", "red", "prod", "b"))
	take(t, other, a.cfg.Definitions, seat("bob", "red", "prod", "c"), seat("eve", "red", "prod", "c"),
		seat("eve", "blue", "test", "c"))
	for by, want := range map[string]string{"env,team": `["prod","red"] 2; ["test","blue"] 1`,
		"team,zone":     `["red","c"] 2; ["blue","c"] 1; ["red","a"] 1; ["red","b"] 1`,
		"team,env,zone": `["red","prod","c"] 2; ["blue","test","c"] 1; ["red","prod","a"] 1; ["red","prod","b"] 1`,
		"team":          "red 2; blue 1", "team,color": "is no tag of"} {
		e, err := a.Estimate(t.Context(), Question{Tenant: "acme", Product: "seats", Window: "1h", By: by})
		var rows []string
		for _, row := range e.By {
			rows = append(rows, row.Tag+" "+row.Value.String())
		}
		if got := strings.Join(rows, "; "); got != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("by %s: %s, %v; want %s", by, got, err, want)
		}
	}
}

// TestForecastElsewhere: a server that does not judge limits sees windows of the calendar grow, too, and crosses
// nothing.
func TestForecastElsewhere(t *testing.T) {
	silent := ""
	a, _, _ := twoParts(t, &silent)
	hand, leads := clock.NewFake(time.Date(2026, 5, 10, 12, 0, 0, 0, time.UTC)), false
	a.cfg.Clock, a.cfg.Leads = hand, func() bool { return leads }
	a.cfg.Crossed = func(context.Context, limits.Crossing) { t.Error("a limit was judged") }
	for _, l := range []limits.Limit{{Name: "month", Window: "month"}, {Name: "sliding", Window: "1h"}} {
		l.Tenant, l.Product, l.Value = "acme", "hosts", usage.Int(10)
		if _, err := a.cfg.Definitions.Do(t.Context(), definitions.Command{Limit: &l}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		hand.Advance(time.Minute)
		a.judge(t.Context())
	}
	if month, sliding := a.samples["month"], a.samples["sliding"]; len(month) != 3 || len(sliding) != 0 {
		t.Errorf("samples: %v and %v", month, sliding)
	}
}
