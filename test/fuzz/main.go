// Command fuzz runs each fuzz target of the tree in turn, keeps what the fuzzer found
// worth keeping, and adds the time to docs/reliability.md.
//
//	go run ./test/fuzz [-each 10s] [-only part-of-a-name] [-procs 1]
//
// Inputs that fail are written by Go into testdata/fuzz beside their target: commit them with
// the fix, they are seeds of every test run from then on. Inputs that only reach new code are
// kept in Go's build cache, where the next run goes on. Totals are in test/fuzz/totals.json.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// target is one fuzz function.
type target struct{ dir, name string }

func (t target) String() string { return t.dir + " " + t.name }

// total is what all runs of a target did together.
type total struct {
	CPU        time.Duration
	Executions uint64
	Failures   int
}

const (
	totalsPath = "test/fuzz/totals.json"
	pagePath   = "docs/reliability.md"
	beginMark  = "<!-- fuzzing: go run ./test/fuzz -->"
	endMark    = "<!-- end of fuzzing -->"
	// slack is the time to build a target and to run its seeds.
	slack = 10 * time.Minute
)

func main() {
	each := flag.Duration("each", 10*time.Second, "how long each target runs")
	only := flag.String("only", "", "only targets whose folder and name contain this")
	procs := flag.Int("procs", 1, "workers of a target")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := run(ctx, *each, *only, *procs)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/fuzz:", err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, each time.Duration, only string, procs int) (failed int, err error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return 0, err
	}
	if err := os.Chdir(filepath.Dir(strings.TrimSpace(string(out)))); err != nil {
		return 0, err
	}
	targets, err := find(".")
	if err != nil {
		return 0, err
	}
	totals, err := readTotals()
	if err != nil {
		return 0, err
	}
	for _, t := range targets {
		if !strings.Contains(t.String(), only) || ctx.Err() != nil {
			continue
		}
		sum := totals[t.String()]
		bad, text := fuzz(ctx, t, each, procs, &sum)
		if ctx.Err() != nil {
			break // cut short: neither passed nor failed
		}
		verdict := "ok"
		if bad {
			failed++
			sum.Failures++
			verdict = "FAILED\n" + text
		}
		totals[t.String()] = sum
		fmt.Printf("%-50s %12d executions in all, %s of CPU  %s\n", t, sum.Executions, sum.CPU.Round(time.Second), verdict)
		if err := write(totals); err != nil {
			return failed, err
		}
	}
	return failed, publish(targets, totals)
}

var (
	declared = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	progress = regexp.MustCompile(`execs: (\d+)`)
)

// find lists the targets of the tree, by folder and name.
func find(root string) (all []target, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(source, -1) {
			all = append(all, target{filepath.ToSlash(filepath.Dir(path)), string(m[1])})
		}
		return err
	})
	slices.SortFunc(all, func(a, b target) int { return strings.Compare(a.String(), b.String()) })
	return all, err
}

// fuzz runs one target and adds what it did to sum.
func fuzz(ctx context.Context, t target, each time.Duration, procs int, sum *total) (failed bool, text string) {
	ctx, cancel := context.WithTimeout(ctx, each+slack)
	defer cancel()
	binary := filepath.Join(os.TempDir(), fmt.Sprintf("corbel-fuzz-%d.test", os.Getpid()))
	defer os.Remove(binary)
	// Built first, so that the time of the compiler does not count.
	build := exec.CommandContext(ctx, "go", "test", "-c", "-fuzz=^"+t.name+"$", "-o", binary, "./"+t.dir)
	if out, err := build.CombinedOutput(); err != nil {
		return true, string(out)
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return true, err.Error()
	}
	corpus := filepath.Join(strings.TrimSpace(string(cache)), "fuzz", "corbel.dev", "corbel", t.dir)
	cmd := exec.CommandContext(ctx, binary, "-test.run=^$", "-test.fuzz=^"+t.name+"$", "-test.fuzztime="+each.String(),
		"-test.parallel="+strconv.Itoa(procs),
		"-test.fuzzcachedir="+corpus)
	cmd.Dir = t.dir
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil {
		sum.CPU += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if found := progress.FindAllSubmatch(out, -1); len(found) > 0 {
		n, _ := strconv.ParseUint(string(found[len(found)-1][1]), 10, 64) // digits, as the expression says
		sum.Executions += n
	}
	return err != nil, string(out)
}

func readTotals() (map[string]total, error) {
	totals := map[string]total{}
	data, err := os.ReadFile(totalsPath)
	if errors.Is(err, fs.ErrNotExist) {
		return totals, nil
	}
	if err != nil {
		return nil, err
	}
	return totals, json.Unmarshal(data, &totals)
}

func write(totals map[string]total) error {
	data, err := json.Marshal(totals)
	if err != nil {
		return err
	}
	data = append(bytes.ReplaceAll(data, []byte(`},"`), []byte("},\n\"")), '\n') // a line for each target
	if err := os.WriteFile(totalsPath+".tmp", data, 0o644); err != nil {
		return err
	}
	return os.Rename(totalsPath+".tmp", totalsPath)
}

// publish replaces the table between the marks of the page.
func publish(targets []target, totals map[string]total) error {
	var b strings.Builder
	var sum total
	b.WriteString("| target | executions | CPU time | failures found |\n| --- | --- | --- | --- |\n")
	for _, t := range targets {
		one := totals[t.String()]
		sum.CPU, sum.Executions, sum.Failures = sum.CPU+one.CPU, sum.Executions+one.Executions, sum.Failures+one.Failures
		fmt.Fprintf(&b, "| %s | %d | %s | %d |\n", t, one.Executions, one.CPU.Round(time.Second), one.Failures)
	}
	fmt.Fprintf(&b, "| all %d | %d | %s | %d |\n", len(targets), sum.Executions, sum.CPU.Round(time.Second), sum.Failures)
	page, err := os.ReadFile(pagePath)
	if err != nil {
		return err
	}
	head, rest, found := strings.Cut(string(page), beginMark)
	_, foot, closed := strings.Cut(rest, endMark)
	if !found || !closed {
		return fmt.Errorf("%s has no marks %s and %s", pagePath, beginMark, endMark)
	}
	return os.WriteFile(pagePath, []byte(head+beginMark+"\n\n"+b.String()+"\n"+endMark+foot), 0o644)
}
