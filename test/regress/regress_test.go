// Package regress replays what once broke: each testdata/*.txt is a bug, told in its
// comment, with the runs that showed it. They are short and replayed in every run.
//
// A line is a scenario of test/fault and its settings: linear seed=3 duration=6s
// faults=killall,skew; watch (the same settings); crash seed=1 servers=3 cycles=4
// snapshots=true; diskerrors skip=2; torn seed=1 cut=3000; rot flips=3. A seed repeats the plan of a
// run, not its schedule: where a bug can be shown for certain, the test that does is
// named in docs/internals/faults.md and stands beside the code.
package regress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/test/fault"
	"corbel.dev/corbel/test/fault/catalogruns"
)

func TestRegress(t *testing.T) {
	dir := t.TempDir()
	bin, err := faultrun.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	lab := &faultrun.Lab{Binary: bin, Dir: dir, Keep: filepath.Join(os.TempDir(), "corbel-fault-kept")}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	slots := make(chan struct{}, 3) // clusters side by side: they judge answers, not times
	t.Run("scripts", func(t *testing.T) {
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				replay(t, lab, string(text))
			})
		}
	})
}

// replay runs each line of a script that is no comment.
func replay(t *testing.T, lab *faultrun.Lab, script string) {
	runs := 0
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := runLine(t.Context(), lab, line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		runs++
	}
	if runs == 0 {
		t.Error("the script runs nothing")
	}
}

// settings are a line's words after the first; asking for one takes it out.
type settings struct {
	left map[string]string
	errs []error
}

func (s *settings) text(name, otherwise string) string {
	value, ok := s.left[name]
	if !ok {
		return otherwise
	}
	delete(s.left, name)
	return value
}

func (s *settings) number(name string, otherwise int) int {
	n, err := strconv.Atoi(s.text(name, strconv.Itoa(otherwise)))
	if err != nil {
		s.errs = append(s.errs, err)
	}
	return n
}

func (s *settings) duration(name string, otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(s.text(name, otherwise.String()))
	if err != nil {
		s.errs = append(s.errs, err)
	}
	return d
}

func (s *settings) faults() (list []faultrun.FaultKind) {
	for name := range strings.SplitSeq(s.text("faults", ""), ",") {
		if name != "" {
			list = append(list, faultrun.FaultKind(name))
		}
	}
	return list
}

func runLine(ctx context.Context, lab *faultrun.Lab, line string) error {
	words := strings.Fields(line)
	s := &settings{left: map[string]string{}}
	for _, word := range words[1:] {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return fmt.Errorf("%q is no setting", word)
		}
		s.left[name] = value
	}
	seed := uint64(s.number("seed", 1))
	var run func() error
	switch words[0] {
	case "linear":
		cfg := faultrun.Linear{Duration: s.duration("duration", 6*time.Second), Faults: s.faults()}
		run = func() error { _, err := lab.RunLinear(ctx, cfg, seed); return err }
	case "watch":
		cfg := catalogruns.Watch{Duration: s.duration("duration", 6*time.Second), Faults: s.faults()}
		run = func() error { _, err := catalogruns.RunWatch(ctx, lab, cfg, seed); return err }
	case "crash":
		cfg := catalogruns.Crash{Servers: s.number("servers", 1), Cycles: s.number("cycles", 5),
			Snapshots: s.text("snapshots", "false") == "true"}
		run = func() error { _, err := catalogruns.RunCrash(ctx, lab, cfg, seed); return err }
	case "diskerrors":
		skip := s.number("skip", 0)
		run = func() error { _, err := catalogruns.RunDiskErrors(ctx, lab, skip); return err }
	case "torn":
		cut := int64(s.number("cut", 1))
		run = func() error { return catalogruns.RunTorn(ctx, lab, cut, seed) }
	case "rot":
		flips := s.number("flips", 3)
		run = func() error { _, err := catalogruns.RunRot(ctx, lab, flips, seed); return err }
	default:
		return fmt.Errorf("unknown scenario %q", words[0])
	}
	for name := range s.left {
		s.errs = append(s.errs, fmt.Errorf("unknown setting %q", name))
	}
	if err := errors.Join(s.errs...); err != nil {
		return err
	}
	return run()
}
