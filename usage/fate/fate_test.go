package fate

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/dedup"
	"corbel.dev/corbel/usage/route"
	"corbel.dev/corbel/usage/window"
)

// TestExplain is section 4's `GET /v1/usage/explain`: where the event is counted, or why it is not.
func TestExplain(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	p := usage.Product{Name: "hosts", Kind: usage.Unique, Identity: []string{"host"}}
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC)
	e := usage.Event{ID: "1", Source: "s", Product: "hosts", Time: at.UnixNano(),
		Identity: []usage.Field{{Name: "host", Value: "a"}}}
	o, _, err := p.Observe(usage.NewKey([16]byte{}), &e, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	stored := Stored{Offset: 7, At: at.Add(time.Second), Event: e, Verdict: dedup.New}
	known := Known{Product: &p, Observation: o, Zone: window.In(berlin), Watermark: at.Add(time.Hour),
		Table: route.Table{}.WithMembers([]route.Member{{Name: "c0"}}, true)}
	a := Explain(stored, known)
	if !a.Counted || a.Owner != "c0" || a.Shard != o.Identity.Shard() || a.Offset != 7 {
		t.Errorf("%+v", a)
	}
	var text []string
	for _, w := range a.Windows {
		text = append(text, w.Name+" "+w.From.Format(time.RFC3339)+" "+w.State)
	}
	want := "1h 2026-10-25T00:31:00Z open,24h 2026-10-24T01:31:00Z open,month 2026-09-30T22:00:00Z open"
	if got := strings.Join(text, ","); got != strings.Replace(want, "1h 2026-10-25T00:31:00Z open,", "", 1) {
		t.Errorf("%s", got)
	}
	for why, change := range map[string]func(*Stored, *Known){
		"not defined":     func(_ *Stored, k *Known) { k.Product = nil },
		"host: is miss":   func(_ *Stored, k *Known) { k.Rejected = usage.Wrong("identity.host", "is missing") },
		"duplicate":       func(s *Stored, _ *Known) { s.Verdict = dedup.Duplicate },
		"after its time":  func(s *Stored, _ *Known) { s.Verdict = dedup.Late },
		"refused: fenced": func(s *Stored, _ *Known) { s.Verdict = dedup.Fenced },
		"voided":          func(_ *Stored, k *Known) { k.Voided = true },
		"no counter owns": func(_ *Stored, k *Known) { k.Table = route.Table{} },
		"c0 has counted":  func(_ *Stored, k *Known) { k.Watermark = at },
	} {
		s, k := stored, known
		change(&s, &k)
		if a := Explain(s, k); a.Counted || !strings.Contains(a.Why, why) {
			t.Errorf("%s: %+v", why, a)
		}
	}
}
