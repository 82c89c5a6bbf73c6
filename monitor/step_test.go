package monitor

import (
	"reflect"
	"testing"

	"corbel.dev/corbel/monitor/runs"
)

func run1(s State, t Thresholds, statuses ...uint32) (State, Outcome) {
	var out Outcome
	for _, status := range statuses {
		s, out = Step(s, Result{Status: status, Executed: s.Executed + 10}, t, nil)
	}
	return s, out
}

func TestStepCountsOccurrences(t *testing.T) {
	for _, c := range []struct {
		name                   string
		statuses               []uint32
		occurrences, watermark int64
		condition              Condition
		resolution, incident   bool
	}{
		{"first result passes", []uint32{0}, 1, 1, Passing, false, false},
		{"first result fails", []uint32{2}, 1, 1, Failing, false, true},
		{"fails on", []uint32{0, 0, 1, 1, 1}, 3, 3, Failing, false, true},
		{"a new incident begins anew", []uint32{0, 1, 1, 1, 0, 1}, 1, 1, Failing, false, true},
		{"a resolution knows how long it was", []uint32{0, 1, 1, 1, 0}, 1, 3, Passing, true, false},
		{"another failing status goes on with the incident", []uint32{0, 1, 1, 1, 2, 2}, 2, 3, Failing, false, true},
		{"passes on", []uint32{1, 0, 0}, 2, 2, Passing, false, false},
	} {
		s, out := run1(State{}, Thresholds{}, c.statuses...)
		if s.Occurrences != c.occurrences || s.Watermark != c.watermark || s.Condition != c.condition ||
			out.Resolution != c.resolution || out.Incident != c.incident {
			t.Errorf("%s: occurrences %d of at most %d, %v, %+v", c.name, s.Occurrences, s.Watermark, s.Condition, out)
		}
	}
}

func TestStepFlapping(t *testing.T) {
	flip := make([]uint32, 2*runs.HistoryLength)
	for i := range flip {
		flip[i] = uint32(i % 2)
	}
	if s, _ := run1(State{}, Thresholds{Low: 10, High: 30}, flip[:runs.HistoryLength-1]...); s.Condition == Flapping {
		t.Error("flaps before its history is full")
	}
	s, _ := run1(State{}, Thresholds{Low: 10, High: 30}, flip...)
	if s.Condition != Flapping || s.Change != 98 {
		t.Errorf("%v with a change of %d %%", s.Condition, s.Change)
	}
	if s, _ := run1(State{}, Thresholds{High: 30}, flip...); s.Condition == Flapping {
		t.Error("flaps with one threshold alone")
	}
}

func TestStepSilences(t *testing.T) {
	stays, goes := &Silenced{Meta: Meta{Name: "a:*"}}, &Silenced{Meta: Meta{Name: "b:*"}, ExpireOnResolve: true}
	both := []*Silenced{stays, goes}
	s, out := Step(State{}, Result{Status: 1}, Thresholds{}, both)
	if !reflect.DeepEqual(s.Silenced, []string{"a:*", "b:*"}) || out.Lifted != nil {
		t.Fatalf("an incident: %v, lifted %v", s.Silenced, out.Lifted)
	}
	before := s
	s, out = Step(s, Result{Status: 0}, Thresholds{}, both)
	if !reflect.DeepEqual(s.Silenced, []string{"a:*"}) || !reflect.DeepEqual(out.Lifted, []string{"b:*"}) {
		t.Fatalf("its end: %v, lifted %v", s.Silenced, out.Lifted)
	}
	if !reflect.DeepEqual(before.Silenced, []string{"a:*", "b:*"}) {
		t.Fatal("a step changed the state before it")
	}
}

func TestStepIsSteady(t *testing.T) {
	s, out := run1(State{}, Thresholds{}, 0)
	if out.Steady {
		t.Error("the first result is news")
	}
	if s, out = run1(s, Thresholds{}, 0); !out.Steady {
		t.Error("the second is not")
	}
	if _, out = Step(s, Result{}, Thresholds{}, []*Silenced{{}}); out.Steady {
		t.Error("a silence that begins is news")
	}
	if _, out = run1(s, Thresholds{}, 1); out.Steady {
		t.Error("an incident is news")
	}
}

func TestSilencesOf(t *testing.T) {
	silence := func(sub, check string, begin, end int64) *Silenced {
		return &Silenced{Meta: Meta{Name: SilenceName(sub, check)}, Subscription: sub, Check: check, Begin: begin,
			ExpireAt: end}
	}
	x := NewSilences([]*Silenced{
		silence("", "cpu", 0, 0), silence("*", "disk", 0, 0), silence("entity:web-1", "", 0, 0), silence("linux", "", 0, 0),
		silence("entity:web-2", "cpu", 0, 0),
		silence("linux", "mem", 0, 50), silence("db", "", 200, 0), silence("windows", "", 0, 0),
	})
	for _, c := range []struct {
		name    string
		subject Subject
		want    []string
	}{
		{"by check and by entity", Subject{Check: "cpu", Entity: "web-1"}, []string{"*:cpu", "entity:web-1:*"}},
		{"a check of an entity", Subject{Check: "cpu", Entity: "web-2"}, []string{"*:cpu", "entity:web-2:cpu"}},
		{"another check of it", Subject{Check: "net", Entity: "web-2"}, nil},
		{"a subscription of both", Subject{Check: "net", CheckSubscriptions: []string{"linux", "windows"}, Entity: "e",
			EntitySubscriptions: []string{"linux"}}, []string{"linux:*"}},
		{"a subscription of the entity alone", Subject{Check: "net", Entity: "e", EntitySubscriptions: []string{"linux"}},
			nil},
		{"a proxy's subscription", Subject{Check: "net", Entity: "e", EntitySubscriptions: []string{"linux"}, Proxy: true},
			[]string{"linux:*"}},
		{"over, and not begun", Subject{Check: "mem", Entity: "e", EntitySubscriptions: []string{"linux", "db"}, Proxy: true},
			[]string{"linux:*"}},
		{"two ways to one silence", Subject{Check: "net", Entity: "web-1", EntitySubscriptions: []string{"entity:web-1"},
			Proxy: true}, []string{"entity:web-1:*"}},
	} {
		var got []string
		for _, s := range x.Of(c.subject, 100) {
			got = append(got, s.Name)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestStepAllocatesNothing(t *testing.T) {
	s, _ := run1(State{}, Thresholds{}, 0, 0)
	var none *Silences
	if n := testing.AllocsPerRun(100, func() {
		s, _ = Step(s, Result{Executed: s.Executed + 10}, Thresholds{}, none.Of(Subject{}, 0))
	}); n != 0 {
		t.Errorf("%v allocations for an unchanged result", n)
	}
}

func BenchmarkStep(b *testing.B) {
	var s State
	for b.Loop() {
		s, _ = Step(s, Result{Executed: s.Executed + 10}, Thresholds{}, nil)
	}
}
