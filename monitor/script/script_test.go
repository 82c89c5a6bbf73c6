package script

import (
	"errors"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

const eventJSON = `{"timestamp":1700000000,"entity":{"metadata":{"name":"e1","namespace":"default","labels":{"region":"us"}},"system":{"os":"linux"}},
"check":{"metadata":{"name":"cpu"},"status":2,"state":"flapping","occurrences":3,"history":[{"status":1},{"status":2}],"silenced":["a"]},"metadata":{}}`

func run(t *testing.T, e *Engine, task Task) (Result, error) {
	t.Helper()
	if task.Vars == nil {
		task.Vars = []Var{{Name: "event", JSON: []byte(eventJSON)}}
	}
	return e.Do(t.Context(), task)
}

func compile(t *testing.T, source string) *Program {
	t.Helper()
	p, err := NewProgram(source)
	if err != nil {
		t.Fatalf("%.60s: %v", source, err)
	}
	return p
}

func TestExpressions(t *testing.T) { both(t, testExpressions) }

func testExpressions(t *testing.T, engine func(*testing.T) *Engine) {
	e := engine(t)
	for source, want := range map[string]bool{
		"event.check.occurrences == 3":                                             true,
		"event.check.status === 2 && event.entity.labels.region == 'us'":           true,
		"event.check.labels.none == undefined":                                     true,
		"event.entity.system.os != 'linux'":                                        false,
		"event.check.name + '/' + event.entity.name == 'cpu/e1'":                   true,
		"event.is_incident && !event.is_resolution":                                true,
		"event.has_check && !event.has_metrics":                                    true,
		"event.is_silenced && event.is_flapping_start && !event.is_flapping_end":   true,
		"event.annotations['x'] === undefined && event.metadata.annotations != {}": true,
		"hour(event.timestamp) == 22 && minute(event.timestamp) == 13":             true,
		"weekday(event.timestamp) == 2 && second(event.timestamp) == 20":           true,
		"hour() == 0":                                                          true,
		"var x = event.check.occurrences; x > 2":                               true,
		"var x = 1; x > 2; var y = 2":                                          false,
		"if (event.check.status == 2) { true } else { false }":                 true,
		"if (event.check.status == 1) { true } else { false }":                 false,
		"for (var i = 0; i < 3; i++) i == 2":                                   true,
		"try { nothing.here } catch (e) { true }":                              true,
		"switch (event.check.state) { case 'flapping': 1; break; default: 0 }": true,
		"function f() { 7; } f()":                                              false,
		"let a = [1,2,3]; a.indexOf(2) == 1":                                   true,
		"// a remark\ntrue // another":                                         true,
		"/^cp/.test(event.check.name)":                                         true,
		"var __corbel_result = 0; 1":                                           true,
		"this === undefined":                                                   false,
		"'abc'.repeat(3).length == 9":                                          true,
		"[3,1,2].sort().join('') == '123'":                                     true,
		"Math.max.apply(null, [1, 5]) == 5":                                    true,
		"Array.from([1,2]).length == 2":                                        true,
		"(function() { return event.check.name == 'cpu' })()":                  true,
		"":     false,
		"({})": true,
	} {
		got, err := run(t, e, Task{Program: compile(t, source)})
		if err != nil || got.Truth != want {
			t.Errorf("%s: %v, %v", source, got.Truth, err)
		}
	}
}

func TestErrors(t *testing.T) { both(t, testErrors) }

func testErrors(t *testing.T, engine func(*testing.T) *Engine) {
	e := engine(t)
	for _, source := range []string{"event.", "return 1", "}); (function() {", "a b", "var",
		strings.Repeat(" ", MaxSource+1)} {
		if !mistaken(e, source, NewProgram) {
			t.Errorf("%.20s: compiles", source)
		}
		if !mistaken(e, "})(); (function() {"+source, NewBody) {
			t.Errorf("%.20s: compiles as a body", source)
		}
	}
	for source, want := range map[string]string{
		"event.none.here": "Cannot read property",
		"throw 'no'":      "no",
		"throw {toString: function() { throw 1 }}": "no text",
		"nothing":                             "nothing is not defined",
		"new Array(1e9).join('x')":            "more than",
		"'x'.repeat(1e9)":                     "more than",
		"[].indexOf.call({length: 1e15}, 1)":  "more than",
		"Math.max.apply(null, {length: 1e9})": "more than",
		"(function f() { return f() + 1 })()": "",
		"new ArrayBuffer(1e12)":               "not defined",
	} {
		_, err := run(t, e, Task{Program: compile(t, source)})
		if errkind.Of(err) != errkind.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", source, err)
		}
	}
	if s := e.Stats(); s.Runs != 10 || s.Failed != 10 || s.Cut != 0 {
		t.Errorf("%+v", s)
	}
}

func TestCut(t *testing.T) { both(t, testCut) }

func testCut(t *testing.T, engine func(*testing.T) *Engine) {
	e := engine(t)
	for source, want := range map[string]error{
		"while (true);": ErrTime,
		"throw {toString: function() { while (true); }}":                          ErrTime,
		"/^(?=(a+)+$)b/.test('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac')": nil,
	} {
		_, err := run(t, e, Task{Program: compile(t, source)})
		if want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", source, err)
		}
	}
	_, err := run(t, e, Task{Program: compile(t, "var s = 'x'; while (true) s += s"), Limit: time.Minute})
	if !errors.Is(err, ErrMemory) {
		t.Errorf("memory: %v", err)
	}
	got, err := run(t, e, Task{Program: compile(t, "event.check.status == 2")})
	if err != nil || !got.Truth {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}

// What one program leaves behind is not there for the next.
func TestNothingIsLeft(t *testing.T) { both(t, testNothingIsLeft) }

func testNothingIsLeft(t *testing.T, engine func(*testing.T) *Engine) {
	e := engine(t)
	for _, leave := range []string{
		"secret = event.entity.name; true", "this.secret = 1; true", "var secret = 1; true", "let secret = 2; true",
		"function secret() {} true",
		"Array.prototype.secret = 1; true", "Object.prototype.secret = 1; true", "Math.secret = 1; hour.secret = 1; true",
		"event.check.labels.secret = 'x'; true", "Object.getPrototypeOf(event).secret = 1; true", "JSON.parse = null; true",
		"undefined = 1; hour = 3; true",
		"Object.defineProperty(this, 'secret', {value: 1}); true", "eval('var secret = 1'); true",
	} {
		if _, err := run(t, e, Task{Program: compile(t, leave)}); err != nil && !strings.Contains(err.Error(), "read only") &&
			!strings.Contains(err.Error(), "not extensible") {
			t.Errorf("%s: %v", leave, err)
		}
		got, err := run(t, e, Task{Program: compile(t,
			`typeof secret === "undefined" && [].secret === undefined && ({}).secret === undefined && Math.secret === undefined &&
			hour.secret === undefined && event.check.labels.secret === undefined && event.secret === undefined && this.secret === undefined && hour(0) === 0`)})
		if err != nil || !got.Truth {
			t.Errorf("%s: left something: %v", leave, err)
		}
	}
	if got, _ := run(t, e, Task{Program: compile(t, "typeof event === 'undefined'"),
		Vars: []Var{{Name: "entity", JSON: []byte(`{}`)}}}); !got.Truth {
		t.Error("the event is still there")
	}
}

func TestLibrary(t *testing.T) { both(t, testLibrary) }

func testLibrary(t *testing.T, engine func(*testing.T) *Engine) {
	lib, err := NewLibrary([]string{"function twice(x) { return 2 * x } var limit = 4; implicit = 1",
		"var more = twice(limit)"})
	if err != nil {
		t.Fatal(err)
	}
	e := engine(t)
	for range 2 {
		got, err := run(t, e, Task{Library: lib, Program: compile(t, "limit = 5; implicit = 2; twice.x = 1; "+
			"twice(event.check.occurrences) == 6 && more == 8 && limit == 4 && implicit == 1 && !twice.x")})
		if err != nil || !got.Truth {
			t.Fatal(got, err)
		}
	}
	broken, err := NewLibrary([]string{"function ("})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, e, Task{Library: broken, Program: compile(t, "1")}); errkind.Of(err) != errkind.Invalid {
		t.Error(err)
	}
	endless, err := NewLibrary([]string{"while (true);"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, e, Task{Library: endless, Program: compile(t, "1")}); !errors.Is(err, ErrTime) {
		t.Error(err)
	}
}

func TestBodies(t *testing.T) { both(t, testBodies) }

func testBodies(t *testing.T, engine func(*testing.T) *Engine) {
	e := engine(t)
	for source, want := range map[string]Result{
		"event.check.output = who; delete event.check.history": {Nil: true},
		"return JSON.stringify({a: event.check.status})":       {IsText: true, Truth: true, Text: `{"a":2}`},
		"return null":       {Nil: true},
		"return 5":          {Truth: true},
		"return '' // none": {IsText: true},
	} {
		p, err := NewBody(source)
		if err != nil {
			t.Fatal(err)
		}
		got, err := run(t, e, Task{Program: p, After: true, Vars: []Var{{Name: "event", JSON: []byte(eventJSON)},
			{Name: "who", Text: "me"}}})
		if err != nil {
			t.Errorf("%s: %v", source, err)
		}
		if want.Nil != (got.After != nil) {
			t.Errorf("%s: leaves %s", source, got.After)
		}
		if strings.Contains(source, "who") && (!strings.Contains(string(got.After), `"output":"me"`) ||
			strings.Contains(string(got.After), "is_incident")) {
			t.Errorf("%s: leaves %s", source, got.After)
		}
		got.After = nil
		if got.Nil != want.Nil || got.Text != want.Text || got.IsText != want.IsText || got.Truth != want.Truth {
			t.Errorf("%s: %+v", source, got)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{"event.check.status == 0", "var x = 1; x", "if (a) b; else c",
		"try { a } catch { b } finally { c }", "`${event}`", "async () => await 1", "class A { #b = 1 }"} {
		f.Add(seed)
	}
	e := New(Config{})
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 1<<14 {
			return
		}
		p, err := NewProgram(source)
		if err != nil {
			return
		}
		begin := time.Now()
		_, _ = e.Do(t.Context(), Task{Program: p, Vars: []Var{{Name: "event", JSON: []byte(eventJSON)}}})
		if lasted := time.Since(begin); lasted > 30*time.Second {
			t.Fatalf("ran for %s", lasted)
		}
	})
}

func BenchmarkExpression(b *testing.B) {
	e := New(Config{})
	p, err := NewProgram("event.check.occurrences == 3 && event.entity.labels.region == 'us'")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Do(b.Context(), Task{Program: p, Vars: []Var{{Name: "event", JSON: []byte(eventJSON)}}}); err != nil {
			b.Fatal(err)
		}
	}
}
