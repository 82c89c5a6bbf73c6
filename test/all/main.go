// Command all runs every check of the tree: all modules, linters, licences,
// tests under the race detector, benchmarks once. It needs Go and, for the first
// run, the network; what cannot run says NOT RUN and counts as skipped.
//
//	go run ./test/all [-short] [-v] [-only step,step]
//	go run ./test/all -budget 60m      # on a machine that does other work too
//	go run ./test/all -plane monitor   # one plane: its packages, its wiring, its stories
//	go run ./test/all -quick           # what fits in a minute
//
// It runs one step after the other, prints what each took, and ends with a line
// "N passed, N failed, N skipped". Tests are counted one by one (those without
// subtests), every other step as one. A test that fails beside others and passes
// alone is named as UNSTEADY (again.go). The exit code is 1 when something failed.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// usualBudget is what a run may take on 2 cores of its own: a step that would not fit any more is left out, and
	// says so.
	usualBudget = 30 * time.Minute
	// grace beyond the budget ends a run that hangs, and not one on a slow day.
	grace = 15 * time.Minute
)

type step struct {
	name, what string
	run        func(*runner)
	wants      time.Duration // what it may take with nothing in the caches; it is left out when less is left
}

var steps = []step{
	{"fetch", "outside programs into .cache", (*runner).fetch, 0},
	{"gofmt", "formatting", (*runner).gofmt, 0},
	{"build", "the binary, into .cache/bin", (*runner).build, 0},
	{"vet", "go vet of all modules", (*runner).vet, 0},
	{"systems", "the types of the binary, for each platform of a release", (*runner).systems, 0},
	{"govulncheck", "known vulnerabilities that the product reaches", (*runner).govulncheck, 0},
	{"licences", "licences of all dependencies", (*runner).licences, 0},
	{"test", "tests of the product", (*runner).test, 0},
	{"modules", "tests of the other modules", (*runner).modules, 0},
	{"bench", "each benchmark once", (*runner).bench, 4 * time.Minute},
	{"staticcheck", "staticcheck of all modules", (*runner).staticcheck, 5 * time.Minute},
	{"folders", "the binary from two folders, byte by byte the same", (*runner).folders, 3 * time.Minute},
}

func main() {
	short := flag.Bool("short", false, "leave out what tests leave out under -short")
	verbose := flag.Bool("v", false, "print each test and each command")
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	only := flag.String("only", "", "run these steps alone, separated by commas: "+strings.Join(names, " "))
	plane := flag.String("plane", "", "run the tests of one plane alone: "+planes())
	budget := flag.Duration("budget", usualBudget, "leave out the last steps when a run takes longer")
	quick := flag.Bool("quick", false, "run what fits in a minute: formatting and the fast tests")
	flag.Parse()
	// What is built is the same in any folder, so that a clone takes what another one left in the cache.
	if err := os.Setenv("GOFLAGS", strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath")); err != nil {
		fmt.Fprintln(os.Stderr, "test/all:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *budget+grace)
	defer cancel()
	r := &runner{ctx: ctx, short: *short, verbose: *verbose, begin: time.Now(), budget: *budget}
	r.alone = *only != "" && !strings.Contains(*only, ",")
	if err := r.find(); err != nil {
		fmt.Fprintln(os.Stderr, "test/all:", err)
		os.Exit(2)
	}
	chosen := names
	if *only != "" {
		chosen = strings.Split(*only, ",")
	}
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			fmt.Fprintf(os.Stderr, "test/all: no step is called %q (know %s)\n", name, strings.Join(names, " "))
			os.Exit(2)
		}
	}
	if err := r.runChosen(chosen, *plane, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "test/all:", err)
		os.Exit(2)
	}
	r.summary(time.Since(r.begin))
	if r.failed > 0 {
		os.Exit(1)
	}
}

// runChosen runs one plane's tests, the quick ones, or the steps that were chosen.
func (r *runner) runChosen(chosen []string, plane string, quick bool) error {
	switch {
	case plane != "":
		for _, s := range steps {
			if s.name == "build" { // the stories run the binary
				r.step(s)
			}
		}
		return r.testPlane(plane)
	case quick:
		r.quick()
		return nil
	}
	for _, s := range steps {
		if slices.Contains(chosen, s.name) {
			r.step(s)
		}
	}
	return nil
}

// runner carries the tree's modules and the counts. One goroutine.
type runner struct {
	ctx            context.Context
	short, verbose bool
	alone          bool // one step was chosen
	root           string
	mods           []string // folders of the modules, the root first

	begin                   time.Time // of the run
	budget                  time.Duration
	passed, failed, skipped int
	failures, notRun        []string
	unsteady                []string // failed once and passed thrice: see again.go
	took                    []took
}

// find looks for the root and for all modules below it.
func (r *runner) find() error {
	out, err := r.output(".", "go", "env", "GOMOD")
	if err != nil {
		return err
	}
	r.root = filepath.Dir(strings.TrimSpace(out))
	return filepath.WalkDir(r.root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != r.root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
			return filepath.SkipDir
		}
		if name == "go.mod" {
			r.mods = append(r.mods, filepath.Dir(path))
		}
		return nil
	})
}

func (r *runner) step(s step) {
	fmt.Printf("=== %s: %s\n", s.name, s.what)
	if used := time.Since(r.begin); used > r.budget-s.wants {
		r.skip(s.name, fmt.Sprintf("%s of %s are used up, and it wants %s: go run ./test/all -only %s",
			used.Round(time.Second), r.budget, s.wants, s.name))
		return
	}
	failed, begin := r.failed, time.Now()
	s.run(r)
	verdict := "ok"
	if r.failed > failed {
		verdict = "FAILED"
	}
	fmt.Printf("--- %s %s (%.1f s)\n", s.name, verdict, time.Since(begin).Seconds())
}

func (r *runner) pass() { r.passed++ }

func (r *runner) fail(what, detail string) {
	r.failed++
	r.failures = append(r.failures, what)
	fmt.Printf("FAIL %s\n%s\n", what, indent(detail))
}

// skip counts something that did not run, loudly.
func (r *runner) skip(what, why string) {
	r.skipped++
	r.notRun = append(r.notRun, what+": "+why)
	fmt.Printf("NOT RUN %s: %s\n", what, why)
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// took is how long a test ran.
type took struct {
	test    string
	seconds float64
}

// slowest is how many tests the summary names: where to look when the whole takes too long.
const slowest = 12

func (r *runner) summary(whole time.Duration) {
	fmt.Printf("\n=== %.0f s in all; the slowest tests:\n", whole.Seconds())
	slices.SortFunc(r.took, func(a, b took) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range r.took[:min(slowest, len(r.took))] {
		fmt.Printf("    %6.1f s %s\n", t.seconds, t.test)
	}
	for _, line := range r.notRun {
		fmt.Println("NOT RUN", line)
	}
	for _, line := range r.unsteady {
		fmt.Println("UNSTEADY", line)
	}
	for _, line := range r.failures {
		fmt.Println("FAILED", line)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}

// rel is a path as seen from the root, for messages.
func (r *runner) rel(path string) string {
	if rel, err := filepath.Rel(r.root, path); err == nil {
		return rel
	}
	return path
}
