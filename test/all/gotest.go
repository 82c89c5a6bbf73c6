package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/test/arch"
)

// event is one line of go test -json.
type event struct {
	Time                          time.Time
	Action, Package, Test, Output string
	ImportPath                    string
	Elapsed                       float64
}

// tally turns events into counts and messages.
type tally struct {
	r        *runner
	output   map[string][]string // by package and test: printed when it fails
	parents  map[string]bool     // tests with subtests: their subtests are counted instead
	counts   map[string]int      // finished tests of a package
	failures map[string]int      // failed tests of a package
	failed   []failure           // the tests that failed, for runner.settle to count
	broken   map[string]string   // build output by import path
	runs     map[string]*pkgRun  // packages whose process has not ended: see hung.go
}

func newTally(r *runner) *tally {
	return &tally{r: r, output: map[string][]string{}, parents: map[string]bool{},
		counts: map[string]int{}, failures: map[string]int{}, broken: map[string]string{}, runs: map[string]*pkgRun{}}
}

// keepLines bounds the output kept of one test.
const keepLines = 400

// look is how often read looks for tests that have run for long.
const look = 10 * time.Second

// read takes events until the reader ends, and names the tests that run for long meanwhile.
func (t *tally) read(from io.Reader) error {
	lines := make(chan []byte)
	var readErr error // of the goroutine, until it has closed lines
	go func() {
		defer close(lines)
		r := bufio.NewReader(from)
		for readErr == nil {
			var line []byte
			if line, readErr = r.ReadBytes('\n'); len(line) > 0 {
				lines <- line
			}
		}
	}()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				if readErr == io.EOF {
					return nil
				}
				return readErr
			}
			var e event
			if json.Unmarshal(line, &e) == nil {
				t.add(e)
			} else {
				fmt.Printf("    %s", line)
			}
		case now := <-ticker.C:
			for _, line := range t.running(now) {
				fmt.Printf("    .... %s\n", line)
			}
		}
	}
}

func (t *tally) add(e event) {
	key := e.Package + " " + e.Test
	t.follow(e)
	switch e.Action {
	case "build-output":
		t.broken[e.ImportPath] += e.Output
	case "output":
		if lines := append(t.output[key], e.Output); len(lines) <= keepLines {
			t.output[key] = lines
		} else {
			t.output[key] = append(lines[:keepLines/2:keepLines/2], lines[keepLines/2+1:]...)
		}
	case "run":
		if at := strings.LastIndexByte(e.Test, '/'); at >= 0 {
			for parent := e.Test; at >= 0; at = strings.LastIndexByte(parent, '/') {
				parent = parent[:at]
				t.parents[e.Package+" "+parent] = true
			}
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.endPackage(e)
		} else {
			t.endTest(e, key)
		}
	}
}

func (t *tally) endTest(e event, key string) {
	lines := t.output[key]
	delete(t.output, key)
	if e.Action == "fail" {
		t.failures[e.Package]++
	}
	if t.parents[key] && e.Action != "fail" {
		return
	}
	if t.parents[key] { // its own message, without counting it beside its subtests
		if text := strings.Join(lines, ""); strings.Contains(text, "_test.go:") {
			fmt.Println(indent(text))
		}
		return
	}
	t.counts[e.Package]++
	name := short(e.Package) + " " + e.Test
	t.r.took = append(t.r.took, took{name, e.Elapsed})
	switch e.Action {
	case "pass":
		t.r.passed++
		if t.r.verbose {
			fmt.Printf("    pass %s (%.2f s)\n", name, e.Elapsed)
		}
	case "fail":
		t.failed = append(t.failed, failure{e.Package, e.Test, strings.Join(lines, "")})
	case "skip":
		t.r.skip(name, reason(lines))
	}
}

// reason finds what the test said about why it did not run.
func reason(lines []string) string {
	for _, line := range lines {
		if _, why, ok := strings.Cut(line, loud.Prefix); ok {
			return strings.TrimSpace(why)
		}
	}
	return "gives no reason: " + strings.TrimSpace(strings.Join(lines, " "))
}

func (t *tally) endPackage(e event) {
	lines := t.output[e.Package+" "]
	delete(t.output, e.Package+" ")
	hung := t.hung(e.Package)
	if e.Action == "fail" && t.failures[e.Package] == 0 && !hung {
		// The build, a panic outside of a test, a leak or the time limit.
		detail := strings.Join(lines, "")
		for path, out := range t.broken {
			if strings.HasPrefix(path, e.Package) || strings.Contains(detail, path) {
				detail += out
			}
		}
		t.r.fail(short(e.Package), detail)
	}
	if n := t.counts[e.Package]; n > 0 || e.Action == "fail" {
		fmt.Printf("    %-4s %-40s %4d tests %6.1f s\n", e.Action, short(e.Package), n, e.Elapsed)
	}
}

func short(pkg string) string {
	if pkg == "corbel.dev/corbel" {
		return "."
	}
	return strings.TrimPrefix(pkg, "corbel.dev/corbel/")
}

// goTest runs go test -json in a module and counts its tests. The flags of args come before the packages.
func (r *runner) goTest(what, dir string, args ...string) {
	first := slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	flags, packages := slices.Clone(args[:first]), args[first:]
	if r.short {
		flags = append(flags, "-short")
	}
	cmd := r.testCommand(dir, slices.Concat([]string{"-json"}, flags, packages)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.fail(what, err.Error())
		return
	}
	failed, seen := r.failed, r.passed+r.failed+r.skipped
	t := newTally(r)
	readErr := t.read(out)
	err = cmd.Wait()
	if r.ctx.Err() != nil {
		endGroup(cmd)
	}
	t.unfinished()
	r.settle(t.failed, func(pkg, pattern string) bool {
		again := append(slices.Clone(flags), "-run="+pattern, "-failfast", "-count="+strconv.Itoa(trialCount), pkg)
		return r.testCommand(dir, again...).Run() == nil
	})
	switch {
	case readErr != nil:
		r.fail(what, readErr.Error())
	case err != nil && r.failed == failed && len(t.failed) == 0:
		detail := err.Error()
		for _, text := range t.broken {
			detail += "\n" + text
		}
		r.fail(what, detail)
	case err == nil && r.passed+r.failed+r.skipped == seen:
		r.skip(what, "no test was found")
	}
}

// testCommand is go test with the surroundings that tests look for.
func (r *runner) testCommand(dir string, args ...string) *exec.Cmd {
	cmd := r.command(dir, "go", append([]string{"test"}, args...)...)
	askForGoroutines(cmd)
	// under the race detector each process sleeps a second at its end otherwise
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0",
		"CORBEL_BIN="+r.cache("bin", "corbel"), "CORBEL_CACHE="+r.cache())
	return cmd
}

// testTimeout bounds one package's tests, with everything else going on: it is a share of what the run may take.
func (r *runner) testTimeout() string { return fmt.Sprint("-timeout=", r.budget/2) }

// What costs minutes over hundreds of packages and tells nothing new: vet has its own step, and nobody opens a
// debugger on a test binary. Stack traces need no debug information.
const (
	noVet   = "-vet=off"
	noDebug = "-ldflags=-w"
)

// drives are the folders whose tests drive whole processes: what these do runs under the race detector in the tests of
// the packages, in a fifth of the time.
var drives = []string{"test/e2e", "test/fault", "test/regress"}

// twice are packages that leave out most of their enumerated cases under the race detector, and run them all without.
var twice = []string{"core/group"}

// packages are those of the product, by whether they run under the race detector. It makes models ten times slower, and
// has nothing to look for where no goroutine is started.
func (r *runner) packages() (raced, plain []string, err error) {
	out, err := r.output(r.root, "go", "list", "./...")
	for _, path := range strings.Fields(out) {
		_, rel, _ := strings.Cut(path, "corbel.dev/corbel/")
		single := arch.Single(rel) || slices.ContainsFunc(drives, func(f string) bool {
			return rel == f || strings.HasPrefix(rel, f+"/")
		})
		if single || slices.Contains(twice, rel) {
			plain = append(plain, path)
		}
		if !single {
			raced = append(raced, path)
		}
	}
	return raced, plain, err
}

func (r *runner) test() {
	raced, plain, err := r.packages()
	if err != nil {
		r.fail("test", err.Error())
		return
	}
	end := compileBeside(r, raced)
	// three side by side: many wait, for processes, disks and clocks
	r.goTest("test", r.root, append([]string{"-p=3", noVet, noDebug, r.testTimeout()}, plain...)...)
	end()
	r.goTest("test", r.root, append([]string{"-race", "-p=3", noVet, noDebug, r.testTimeout()}, raced...)...)
}

// compileBeside compiles packages and their tests for the race detector while tests run that wait for most of their
// time: a package at a time, and without a word, for the tests themselves say what does not compile. The answer ends
// it, and waits for it. It gives way to the tests a little and no more: a writer of files that hardly ever runs keeps
// the file system's journal open meanwhile, and every fsync of the machine waits for it, for seconds where another job
// is there too.
func compileBeside(r *runner, packages []string) (end func()) {
	args := []string{"-n", "5", "go", "list", "-e", "-p=1", "-race", "-test", "-export", "-f={{.Name}}"}
	cmd := r.command(r.root, "nice", append(args, packages...)...)
	if err := cmd.Start(); err != nil {
		return func() {} // there is no nice here: it is compiled when its turn comes
	}
	return func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
}

func (r *runner) modules() {
	for _, dir := range r.sources() {
		if dir != r.root {
			r.goTest("test "+r.rel(dir), dir, "-p=2", noVet, noDebug, r.testTimeout(), "./...")
		}
	}
}

// bench runs each benchmark once: they must not rot. The figures mean nothing here.
func (r *runner) bench() {
	dirs, err := r.withBenchmarks()
	if err != nil {
		r.fail("bench", err.Error())
		return
	}
	args := []string{"test", "-run=^$", "-bench=.", "-benchtime=1x", "-p=2", noVet, noDebug, "-timeout=4m"}
	if r.short {
		args = append(args, "-short")
	}
	out, err := r.output(r.root, "go", append(args, dirs...)...)
	ran := 0
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		switch {
		case strings.HasSuffix(strings.TrimSpace(line), "ns/op"), strings.Contains(line, " ns/op\t"):
			ran++
		case len(fields) > 1 && fields[0] == "ok":
			r.pass()
			fmt.Printf("    ok   %-40s %4d benchmarks %s\n", short(fields[1]), ran, fields[len(fields)-1])
			ran = 0
		}
	}
	if err != nil {
		r.fail("bench", err.Error())
	}
}

// withBenchmarks lists the packages of the product that have benchmarks.
func (r *runner) withBenchmarks() ([]string, error) {
	out, err := r.output(r.root, "go", "list", "-f",
		`{{.Dir}}{{range .TestGoFiles}} {{.}}{{end}}{{range .XTestGoFiles}} {{.}}{{end}}`, "./...")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		for _, name := range fields[1:] {
			source, err := os.ReadFile(filepath.Join(fields[0], name))
			if err != nil {
				return nil, err
			}
			if strings.Contains(string(source), "\nfunc Benchmark") {
				dirs = append(dirs, "./"+r.rel(fields[0]))
				break
			}
		}
	}
	return dirs, nil
}
