package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// TestMain lets the test's own binary be the child.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == ChildCommand {
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func withChildren(t testing.TB) *Engine {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e := New(Config{Command: []string{self, ChildCommand}})
	t.Cleanup(e.Close)
	return e
}

// both runs a test with programs in this process and in children: the answers are the same.
func both(t *testing.T, test func(*testing.T, func(*testing.T) *Engine)) {
	t.Run("here", func(t *testing.T) { test(t, func(*testing.T) *Engine { return New(Config{}) }) })
	t.Run("children", func(t *testing.T) { test(t, func(t *testing.T) *Engine { return withChildren(t) }) })
}

// mistaken reports whether a text is refused, by its size or when it is read.
func mistaken(e *Engine, source string, make func(string) (*Program, error)) bool {
	p, err := make(source)
	if err != nil {
		return errkind.Is(err, errkind.TooLarge)
	}
	return errkind.Is(e.Check(context.Background(), p), errkind.Invalid)
}

// hostile are programs that one built-in function keeps busy, or lets grow, without a step between.
var hostile = map[string]string{
	"join":       "var a = []; for (var i = 0; i < 1000; i++) a.push('x'); a.join('x'.repeat(1000000)).length",
	"replace":    "'x'.repeat(1000000).replace(/x/g, 'y'.repeat(100000)).length",
	"replaceAll": "'x'.repeat(1000000).replaceAll('x', 'y'.repeat(100000)).length",
	"stringify": "var o = {a: 'x'.repeat(1000000)}; for (var i = 0; i < 30; i++) o = {a: o, b: o}; " +
		"JSON.stringify(o).length",
	"indent": "var o = []; for (var i = 0; i < 400; i++) o = [o, o.length]; var a = []; for (var i = 0; i < 10000; " +
		"i++) a.push(o); JSON.stringify(a, null, 10).length",
	"regexp": "/^(?=(a+)+$)(b|c)+\\1/.test('a'.repeat(50)) || /(x+x+)+y\\1/.test('x'.repeat(100000))",
	"split":  "for (;;) 'x'.repeat(1000000).split('')",
	"concat": "var s = 'x'.repeat(1000000); for (;;) s = s + s",
	"array":  "var a = []; for (;;) a.push('x'.repeat(1000000) + a.length)",
	"sort": "var a = []; for (var i = 0; i < 900000; i++) a.push(i % 7 + ''); a.sort(function(x, y) { return " +
		"Math.random() - 0.5 })",
	"sparse":     "var a = []; a[4294967294] = 1; a.concat(a, a, a).length; JSON.stringify(a)",
	"deep value": "var o = 'x'; for (var i = 0; i < 1000000; i++) o = [o]; JSON.stringify(o)",
	"templates":  "var f = function(s) { return `${s}${s}${s}${s}` }; var s = 'xxxxxxxxxxxx'; for (;;) s = f(s)",
}

// resident is the memory of this process.
func resident(t *testing.T) (bytes int64) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &bytes); err == nil {
			return bytes << 10
		}
	}
	t.Fatal("no VmRSS in /proc/self/status")
	return 0
}

// Whatever a program does, it ends with an error of its own, this process takes no part in it, and the next program
// runs.
func TestHostilePrograms(t *testing.T) {
	e := withChildren(t)
	before := resident(t)
	for name, source := range hostile {
		begin := time.Now()
		_, err := run(t, e, Task{Program: compile(t, source)})
		if err == nil {
			t.Logf("%s: ended in time, after %s", name, time.Since(begin))
		} else if !errors.Is(err, ErrTime) && !errors.Is(err, ErrMemory) && !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
		if lasted := time.Since(begin); lasted > 30*time.Second {
			t.Errorf("%s: ran for %s", name, lasted)
		}
		var got Result
		polltest.Until(t, func() bool {
			got, err = run(t, e, Task{Program: compile(t, "event.check.status == 2")})
			return err == nil && got.Truth
		}, "a program runs after %s", name)
	}
	if grown := resident(t) - before; grown > 64<<20 {
		t.Errorf("this process grew by %d MiB", grown>>20)
	}
}

// Texts that a parser which recurses cannot digest cost a child, not the process.
func TestHostileTexts(t *testing.T) {
	e := withChildren(t)
	for name, source := range map[string]string{
		"brackets":  strings.Repeat("(", 1<<19),
		"arrays":    strings.Repeat("[", 1<<19) + strings.Repeat("]", 1<<19),
		"blocks":    strings.Repeat("{", 1<<19) + strings.Repeat("}", 1<<19),
		"functions": strings.Repeat("function(){", 1<<16),
		"minus":     strings.Repeat("- ", 1<<18) + "1",
		"ternaries": strings.Repeat("a?", 1<<18),
		"templates": strings.Repeat("`${", 1<<18),
		"classes":   strings.Repeat("class A extends ", 1<<15),
	} {
		if err := e.Check(t.Context(), compile(t, source)); err == nil {
			t.Logf("%s: is read", name)
		}
		if err := e.Check(t.Context(), compile(t, "1")); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

// A child that is killed, as when the machine lacks memory, is replaced; Close leaves none behind.
func TestChildrenAreReplaced(t *testing.T) {
	e := withChildren(t)
	for range 3 {
		if _, err := run(t, e, Task{Program: compile(t, "1")}); err != nil {
			t.Fatal(err)
		}
		k := e.children.idle[0]
		k.kill()
		<-k.ended
	}
	if s := e.Stats(); s.Children != 3 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
	k, err := e.children.take()
	if err != nil {
		t.Fatal(err)
	}
	e.children.giveBack(k)
	e.Close()
	if p, err := os.FindProcess(k.cmd.Process.Pid); err == nil && p.Signal(syscall.Signal(0)) == nil {
		t.Error("a child is left")
	}
	if _, err := run(t, e, Task{Program: compile(t, "1")}); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("after Close: %v", err)
	}
}

// A child forgets texts when it has too many; they are sent again.
func TestForgottenTexts(t *testing.T) {
	e := withChildren(t)
	p := compile(t, "event.check.status == 2")
	if _, err := run(t, e, Task{Program: p}); err != nil {
		t.Fatal(err)
	}
	other := compile(t, "1")
	e.children.idle[0].knows[other.id] = true // as if it had been sent
	if got, err := run(t, e, Task{Program: other}); err != nil || !got.Truth {
		t.Fatal(got, err)
	}
}

func BenchmarkChild(b *testing.B) {
	e := withChildren(b)
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
