package expression_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"corbel.dev/corbel/monitor"
	. "corbel.dev/corbel/monitor/expression"
	"corbel.dev/corbel/monitor/script"
)

// judge compares an expression with what JavaScript makes of it.
func judge(t *testing.T, js *script.Engine, source string, e *Expression, event *monitor.Event, state *monitor.State) {
	t.Helper()
	text, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	p, err := script.NewProgram(source)
	if err != nil {
		t.Fatalf("%s: common, and no JavaScript: %v", source, err)
	}
	task := script.Task{Program: p, Vars: []script.Var{{Name: "event", JSON: text}}}
	want, err := js.Do(t.Context(), task)
	for errors.Is(err, script.ErrTime) && t.Context().Err() == nil { // a busy machine: none of them loops
		want, err = js.Do(t.Context(), task)
	}
	shown := *event.Entity
	shown.Meta = monitor.RedactMeta(shown.Meta, shown.Redact)
	s := &Subject{Timestamp: event.Timestamp, Check: event.Check, State: state, HasMetrics: event.Metrics != nil,
		Entity: func() *monitor.Entity { return &shown }}
	holds, ok := e.Holds(s)
	if ok != (err == nil) || ok && holds != want.Truth {
		t.Fatalf("%s: %v, %v; JavaScript: %v, %v\n%s", source, holds, ok, want.Truth, err, text)
	}
}

// random makes an event as ingest makes one.
func random(rng *rand.Rand) (*monitor.Event, *monitor.State) {
	labels := func() map[string]string {
		m := map[string]string{}
		for _, k := range []string{"region", "a.b/c", "password"} {
			if rng.IntN(2) == 0 {
				m[k] = []string{"us", "", "1", "true"}[rng.IntN(4)]
			}
		}
		if rng.IntN(3) == 0 {
			return nil
		}
		return m
	}
	e := &monitor.Event{Timestamp: int64(rng.IntN(3)),
		Entity: &monitor.Entity{Class: "agent", Meta: monitor.Meta{Name: "e1", Namespace: "default", Labels: labels(),
			Annotations: labels()}}}
	e.Entity.System.OS = []string{"", "linux"}[rng.IntN(2)]
	if rng.IntN(4) == 0 {
		e.Metrics = &monitor.Metrics{}
	}
	var state monitor.State
	if rng.IntN(8) == 0 {
		return e, &state
	}
	e.Check = &monitor.Check{Meta: monitor.Meta{Name: "cpu", Labels: labels()}, Interval: 60, TTL: int64(rng.IntN(2)),
		Handlers: []string{"x"}}
	limits := monitor.Thresholds{}
	if rng.IntN(3) == 0 {
		limits = monitor.Thresholds{Low: 1, High: 5}
	}
	var silences []*monitor.Silenced
	if rng.IntN(3) == 0 {
		silences = []*monitor.Silenced{{Meta: monitor.Meta{Name: "s"}}}
	}
	for i := range rng.IntN(25) + rng.IntN(2) {
		state, _ = monitor.Step(state, monitor.Result{Status: uint32(rng.IntN(3) * rng.IntN(2)), Executed: int64(i),
			Issued: int64(i)}, limits, silences)
	}
	state.Fill(e.Check)
	return e, &state
}

// expression makes one of the common form, or nearly.
func expression(rng *rand.Rand, depth int) string {
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	path := func() string {
		return pick("event.check.status", "event.check.occurrences", "event.check.state", "event.check.labels.region",
			"event.check.labels['a.b/c']", `event.entity.labels["password"]`,
			"event.entity.annotations.region", "event.is_incident", "event.is_resolution", "event.is_silenced",
			"event.has_check", "event.has_metrics", "event.is_flapping_start",
			"event.check.name", "event.entity.name", "event.entity.system.os", "event.timestamp", "event.check.is_silenced",
			"event.check.occurrences_watermark", "event.check.metadata.labels.region",
			"event.check.total_state_change", "event.check.last_ok", "event.check.ttl", "event.check.proxy_entity_name",
			"event.check.namespace", "event['check']['status']", "event.is_flapping_end")
	}
	literal := func() string {
		return pick("0", "1", "2", "3", "1.5", "'us'", `"failing"`, "'passing'", "''", "true", "false", "undefined", "null",
			"'e1'", "'cpu'", "'1'", "'REDACTED'")
	}
	if depth == 0 {
		switch rng.IntN(6) {
		case 0:
			return path()
		case 1:
			return path() + " % " + pick("2", "3", "0", "60") + pick(" == ", " != ", " > ") + pick("0", "1")
		case 2:
			return "!" + path()
		}
		return path() + pick(" == ", " != ", " === ", " !== ", " < ", "<=", ">", " >= ") + pick(literal(), literal(),
			literal(), path())
	}
	switch rng.IntN(4) {
	case 0:
		return "(" + expression(rng, depth-1) + ")"
	case 1:
		return "!(" + expression(rng, depth-1) + ")"
	}
	return expression(rng, depth-1) + pick(" && ", " || ") + expression(rng, depth-1)
}

// A million would say no more than these: the grammar is small.
func TestAgainstJavaScript(t *testing.T) {
	js := script.New(script.Config{})
	rng := rand.New(rand.NewPCG(1, 2))
	common := 0
	for range 20_000 {
		source := expression(rng, rng.IntN(3))
		e, ok := Compile(source)
		if !ok {
			continue
		}
		common++
		event, state := random(rng)
		judge(t, js, source, e, event, state)
	}
	if common < 4000 {
		t.Fatalf("only %d were compiled", common)
	}
}

func TestWhatIsCommon(t *testing.T) {
	for _, source := range []string{
		"event.check.occurrences == 1", "event.check.occurrences == 1 || event.check.occurrences % 60 == 0",
		"event.check.status != 0 && event.check.labels.team == 'db';",
		"event.entity.labels['region'] == \"eu\"", "!event.is_silenced",
		"event.check.state === 'failing'\n&& (event.check.status >= 2)", "event.check.annotations['a/b'] !== undefined",
	} {
		if _, ok := Compile(source); !ok {
			t.Errorf("%s: not compiled", source)
		}
	}
	for _, source := range []string{
		"", " ", "x", "event", "event.check", "event.check.labels", "event.check.labels.constructor",
		"event.check.labels['toString'] == 'x'", "event.check.status == '2'", "event.is_incident == 1",
		"1 == 1 == 1", "event.check.occurrences + 1 == 2", "event.check.output.indexOf('x')", "event.check.labels.a < 'b'",
		"var x = 1", "event.check.status = 2", "a()", "event.check['stat' + 'us']",
		"'\\x41' == 'A'", "010 == 8", "1e3 == 1000", "0x10 == 16", "event['check.status'] == 1", "(1 == 1", "1 == 1)",
		"1 == 1 // yes", "event.check.status == 0; 1", "5 % 3 % 2 == 1",
		strings.Repeat("(", 100) + "1" + strings.Repeat(")", 100), "'" + strings.Repeat("x", 5000) + "' == ''",
		"event.metadata.name == 'x'", "event.check.metadata.created_by == 'x'", "'a", "event.check.history.length > 2",
	} {
		if _, ok := Compile(source); ok {
			t.Errorf("%s: compiled", source)
		}
	}
}

func TestAllocatesNothing(t *testing.T) {
	e, ok := Compile("event.check.status != 0 && event.check.occurrences % 60 == 1 && event.check.labels.team == 'db' " +
		"&& !event.is_silenced")
	if !ok {
		t.Fatal("not compiled")
	}
	s := &Subject{Check: &monitor.Check{Meta: monitor.Meta{Labels: map[string]string{"team": "db"}}},
		State: &monitor.State{Result: monitor.Result{Status: 2}, Occurrences: 61}}
	if holds, ok := e.Holds(s); !holds || !ok {
		t.Fatal(holds, ok)
	}
	if n := testing.AllocsPerRun(100, func() { e.Holds(s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzCompile: whatever is compiled is JavaScript, and means the same there.
func FuzzCompile(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 30 {
		f.Add(expression(rng, i%3), uint64(i))
	}
	js := script.New(script.Config{})
	f.Fuzz(func(t *testing.T, source string, seed uint64) {
		e, ok := Compile(source)
		if !ok {
			return
		}
		event, state := random(rand.New(rand.NewPCG(seed, 1)))
		judge(t, js, source, e, event, state)
	})
}

func BenchmarkHolds(b *testing.B) {
	e, _ := Compile("event.check.status != 0 && (event.check.occurrences == 1 || event.check.occurrences % 60 == 0)")
	s := &Subject{Check: &monitor.Check{}, State: &monitor.State{Result: monitor.Result{Status: 2}, Occurrences: 61}}
	for b.Loop() {
		e.Holds(s)
	}
}
