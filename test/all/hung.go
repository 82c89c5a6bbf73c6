package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A test that hangs never says that it failed: its package ends by the time
// limit, or go test is ended. What was running then is named here, each test
// with its output and with the goroutines of the dump that go through test code.

const (
	dumpLines = 50_000 // kept of a package's dump; more is cut
	dumpShown = 12     // goroutines printed
)

// detectorBroke is how the race detector ends a process when it finds a fault in itself. That says nothing of a test,
// and what would have run after it in the package did not: the whole package runs again.
const detectorBroke = "ThreadSanitizer: CHECK failed"

// pkgRun is what happens in one package's test process.
type pkgRun struct {
	began map[string]time.Time     // tests that run
	due   map[string]time.Duration // how long a test has to run to be named again
	last  time.Time                // of its newest event
	dump  []string                 // from the line on that begins a dump of goroutines
}

// follow notes which tests run, and keeps the dump apart from what the tests print.
func (t *tally) follow(e event) {
	if e.Package == "" {
		return
	}
	p := t.runs[e.Package]
	if p == nil {
		p = &pkgRun{began: map[string]time.Time{}, due: map[string]time.Duration{}}
		t.runs[e.Package] = p
	}
	p.last = e.Time
	switch e.Action {
	case "run", "cont":
		p.began[e.Test] = e.Time
	case "pass", "fail", "skip", "pause": // one that is paused waits for others
		delete(p.began, e.Test)
	case "output":
		if (len(p.dump) > 0 || beginsDump(e.Output)) && len(p.dump) < dumpLines {
			p.dump = append(p.dump, e.Output)
		}
	}
}

func beginsDump(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") ||
		strings.HasPrefix(line, "SIGQUIT: ")
}

// long is when a test that has not ended is named for the first time, long before its package's time limit: for the
// second time after twice that, and so on.
const long = 5 * time.Minute

// running names the tests that have run for long by now and were not named for that yet.
func (t *tally) running(now time.Time) (lines []string) {
	for pkg, p := range t.runs {
		for test, began := range p.began {
			due := cmp.Or(p.due[test], long)
			if t.parents[pkg+" "+test] || now.Sub(began) < due {
				continue
			}
			p.due[test] = 2 * due
			lines = append(lines, fmt.Sprintf("%s %s has run for %s", short(pkg), test, now.Sub(began).Round(time.Second)))
		}
	}
	slices.Sort(lines)
	return lines
}

// hung fails each test of a package that had begun and did not end, and reports whether there was one.
func (t *tally) hung(pkg string) bool {
	p := t.runs[pkg]
	if p == nil {
		return false
	}
	delete(t.runs, pkg)
	goroutines := p.goroutines()
	found := false
	for _, test := range slices.Sorted(maps.Keys(p.began)) {
		if t.parents[pkg+" "+test] { // its subtest is named
			continue
		}
		found = true
		detail := fmt.Sprintf("did not end: it began %.0f s before its process ended\n", p.last.Sub(p.began[test]).Seconds())
		for _, line := range t.output[pkg+" "+test] {
			if beginsDump(line) {
				break
			}
			detail += line
		}
		if strings.Contains(detail, detectorBroke) {
			t.failed = append(t.failed, failure{pkg: pkg, detail: detail})
			continue
		}
		t.r.fail(short(pkg)+" "+test, detail+goroutines)
		goroutines = "" // the process has one dump
	}
	return found
}

// goroutines renders those that go through the code of tests, and none of the runtime's or the test framework's own.
func (p *pkgRun) goroutines() string {
	var of, others []string
	for _, g := range strings.Split(strings.Join(p.dump, ""), "\n\n") {
		switch {
		case strings.Contains(g, "_test.go:"):
			of = append(of, g)
		case strings.HasPrefix(g, "goroutine ") && !strings.Contains(g, "testing.(*M)"):
			others = append(others, g)
		default: // the panic's own words
			of = append([]string{g}, of...)
		}
	}
	list := append(of, others...)
	if left := len(list) - dumpShown; left > 0 {
		list = append(list[:dumpShown], fmt.Sprintf("(%d more goroutines)", left))
	}
	return strings.Join(list, "\n\n")
}

// unfinished fails what was running when go test itself was ended.
func (t *tally) unfinished() {
	for _, pkg := range slices.Sorted(maps.Keys(t.runs)) {
		t.hung(pkg)
	}
}
