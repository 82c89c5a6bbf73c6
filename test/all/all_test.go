package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTally(t *testing.T) {
	events := []string{
		`{"Action":"run","Package":"p","Test":"A"}`,
		`{"Action":"run","Package":"p","Test":"A/x/deep"}`,
		`{"Action":"pass","Package":"p","Test":"A/x/deep"}`,
		`{"Action":"pass","Package":"p","Test":"A/x"}`,
		`{"Action":"pass","Package":"p","Test":"A"}`,
		`{"Action":"run","Package":"p","Test":"B"}`,
		`{"Action":"output","Package":"p","Test":"B","Output":"b_test.go:1: NOT RUN: no network\n"}`,
		`{"Action":"skip","Package":"p","Test":"B"}`,
		`{"Action":"run","Package":"p","Test":"C"}`,
		`{"Action":"fail","Package":"p","Test":"C"}`,
		`{"Action":"fail","Package":"p"}`,
		`{"Action":"output","Package":"q","Output":"panic outside of a test\n"}`,
		`{"Action":"fail","Package":"q"}`,
		`{"Action":"skip","Package":"none"}`,
	}
	r := &runner{}
	tally := newTally(r)
	if err := tally.read(strings.NewReader(strings.Join(events, "\n"))); err != nil {
		t.Fatal(err)
	}
	r.settle(tally.failed, func(string, string) bool { return false })
	if r.passed != 1 || r.failed != 2 || r.skipped != 1 {
		t.Errorf("%d passed, %d failed, %d skipped; want 1, 2, 1", r.passed, r.failed, r.skipped)
	}
	if len(r.notRun) != 1 || r.notRun[0] != "p B: no network" {
		t.Errorf("not run: %q", r.notRun)
	}
}

// A test that hangs is named with its own goroutine, whoever ended it and whatever the process had printed before.
func TestHung(t *testing.T) {
	output := func(text string) (events []string) {
		for line := range strings.Lines(text) {
			b, err := json.Marshal(event{Action: "output", Package: "p", Test: "Last", Output: line})
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, string(b))
		}
		return events
	}
	begin := []string{
		`{"Time":"2026-01-01T00:00:00Z","Action":"run","Package":"p","Test":"Hangs"}`,
		`{"Time":"2026-01-01T00:00:00Z","Action":"run","Package":"p","Test":"Hangs/inner"}`,
		`{"Time":"2026-01-01T00:00:01Z","Action":"run","Package":"p","Test":"Last"}`,
		`{"Time":"2026-01-01T00:00:02Z","Action":"fail","Package":"p","Test":"Last"}`,
	}
	dump := "\ngoroutine 2 [running]:\ntesting.(*M).startAlarm.func1()\n\n" +
		strings.Repeat("goroutine 9 [select]:\nx.run()\n\tx.go:1\n\n", 500) +
		"goroutine 7 [chan receive]:\np.TestHangs.func1()\n\tp/a_test.go:7 +0x1\n"
	end := `{"Time":"2026-01-01T00:08:00Z","Action":"fail","Package":"p"}`
	for name, events := range map[string][]string{
		"time limit":         append(append(slices.Clone(begin), output("panic: test timed out after 8m0s\n"+dump)...), end),
		"go test was killed": append(slices.Clone(begin), output("SIGQUIT: quit\n"+dump)...),
		"no dump":            begin,
	} {
		r := &runner{}
		tally := newTally(r)
		printed := stdout(t, func() {
			if err := tally.read(strings.NewReader(strings.Join(events, "\n"))); err != nil {
				t.Error(err)
			}
			tally.unfinished()
		})
		if !slices.Equal(r.failures, []string{"p Hangs/inner"}) || len(tally.failed) != 1 {
			t.Errorf("%s: failed %q and %v", name, r.failures, tally.failed)
		}
		if name != "no dump" && (!strings.Contains(printed, "p/a_test.go:7") || strings.Count(printed, "\n") > 80) {
			t.Errorf("%s: printed\n%s", name, printed)
		}
	}
}

// A test that runs for long is named while it runs: after five minutes, and after ten, and not for waiting for others.
func TestRunning(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tally := newTally(&runner{})
	for _, e := range []event{
		{Action: "run", Test: "Outer"}, {Action: "run", Test: "Outer/inner"},
		{Action: "run", Test: "Waits"}, {Action: "pause", Test: "Waits"},
		{Action: "run", Test: "Ends"}, {Action: "pass", Test: "Ends"},
	} {
		e.Package, e.Time = "p", begin
		tally.add(e)
	}
	for _, step := range []struct {
		after time.Duration
		want  []string
	}{
		{4 * time.Minute, nil},
		{5 * time.Minute, []string{"p Outer/inner has run for 5m0s"}},
		{6 * time.Minute, nil},
		{10 * time.Minute, []string{"p Outer/inner has run for 10m0s"}},
	} {
		if got := tally.running(begin.Add(step.after)); !slices.Equal(got, step.want) {
			t.Errorf("after %s: %q; want %q", step.after, got, step.want)
		}
	}
}

// TestBrokenDetector: what the race detector's own fault left untried runs again, and nothing is held against the test.
func TestBrokenDetector(t *testing.T) {
	events := `{"Action":"run","Package":"p","Test":"Ran"}
{"Action":"pass","Package":"p","Test":"Ran"}
{"Action":"run","Package":"p","Test":"Ran2"}
{"Action":"output","Package":"p","Test":"Ran2","Output":"ThreadSanitizer: CHECK failed: x.cpp:1 (tid=7)\n"}
{"Action":"fail","Package":"p"}`
	r := &runner{}
	tally := newTally(r)
	printed := stdout(t, func() {
		if err := tally.read(strings.NewReader(events)); err != nil {
			t.Error(err)
		}
		tally.unfinished()
		r.settle(tally.failed, func(pkg, pattern string) bool { return pkg == "p" && pattern == "" })
	})
	if r.failed != 0 || !slices.Equal(r.unsteady, []string{"p"}) {
		t.Errorf("%d failed, unsteady %q\n%s", r.failed, r.unsteady, printed)
	}
}

// stdout returns what f prints.
func stdout(t *testing.T, f func()) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stdout
	os.Stdout = file
	f()
	os.Stdout = old
	b, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSettle(t *testing.T) {
	trials := map[string]int{}
	trial := func(passes ...string) func(pkg, pattern string) bool {
		return func(pkg, pattern string) bool {
			trials[pattern]++
			return slices.Contains(passes, pattern)
		}
	}
	const module = "corbel.dev/corbel/"
	for _, test := range []struct {
		name             string
		list             []failure
		failed, unsteady int
	}{
		{"passes alone", []failure{{module + "node", "A/x", "too late"}, {module + "node", "A/y", "too late"}}, 0, 2},
		{"fails alone too", []failure{{module + "node", "B", "too late"}}, 1, 0},
		{"a data race", []failure{{module + "node", "A", "WARNING: DATA RACE"}}, 1, 0},
		{"a race beside a late one", []failure{{module + "node", "A/x", "too late"},
			{module + "node", "A/y", "WARNING: DATA RACE"}}, 1, 1},
		{"a lost write", []failure{{module + "node", "A", "key 7 was acknowledged and is gone"}}, 1, 0},
		{"a bench that shows its metrics", []failure{{module + "node", "A", `"mesh.acknowledged.clusters.count": 50`}}, 0, 1},
		{"a history", []failure{{module + "test/fault", "A", "too late"}}, 1, 0},
		{"too many", []failure{{module + "a", "A", ""}, {module + "b", "A", ""}, {module + "c", "A", ""},
			{module + "d", "A", ""}}, 1, 3},
	} {
		r := &runner{}
		r.settle(test.list, trial("^A$", "^A$/^x$", "^A$/^y$"))
		if r.failed != test.failed || len(r.unsteady) != test.unsteady {
			t.Errorf("%s: %d failed, %d unsteady; want %d, %d", test.name, r.failed, len(r.unsteady), test.failed, test.unsteady)
		}
	}
	if trials["^B$"] != 1 {
		t.Errorf("B was tried %d times, want once", trials["^B$"])
	}
}

func TestRecognise(t *testing.T) {
	own, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		string(own): "Apache-2.0",
		"Business Source License 1.1 ... Change License: Mozilla Public License 2.0": "BUSL",
		"Mozilla Public License, version 2.0 ... GNU AFFERO GENERAL PUBLIC LICENSE":  "MPL-2.0",
		"Permission is hereby granted, free of charge, to any person":                "MIT",
		"Redistribution and use in source\nand binary forms, with or without":        "BSD",
		"GNU AFFERO GENERAL PUBLIC LICENSE Version 3":                                "AGPL",
		"all rights reserved": "not recognised",
	}
	for text, want := range tests {
		if got := recognise(text); got != want {
			t.Errorf("%.40q is %s, want %s", text, got, want)
		}
	}
}
