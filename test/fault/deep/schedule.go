package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	faultrun "corbel.dev/corbel/test/fault"
)

// alonePart is the part of the budget in which rows that measure latencies run one at a time,
// with nothing beside them.
const alonePart = 0.22

// enough failures of a row in one run: it would only fail again.
const enough = 3

// errNotRun says that this machine cannot run a row at all.
var errNotRun = errors.New("NOT RUN")

// schedule gives rows their turns until time is up. A seed is begun only when it should end in time.
type schedule struct {
	lab  *faultrun.Lab
	file string

	mu       sync.Mutex // guards what follows, and output
	book     *totals
	spent    map[string]time.Duration // of this run, by row; what runs counts as what it should take
	failed   map[string]int           // seeds of this run, by row
	failures int
}

func newSchedule(lab *faultrun.Lab, book *totals, file string) *schedule {
	return &schedule{lab: lab, book: book, file: file, spent: map[string]time.Duration{}, failed: map[string]int{}}
}

// run first gives the rows that want to be alone their part, then lets lanes work side by side.
func (s *schedule) run(ctx context.Context, chosen []row, budget time.Duration, lanes int) (failures int) {
	end := time.Now().Add(budget)
	var alone, shared []row
	for _, r := range chosen {
		if r.alone {
			alone = append(alone, r)
		} else {
			shared = append(shared, r)
		}
	}
	part := time.Duration(float64(budget) * alonePart)
	if len(shared) == 0 {
		part = budget
	}
	s.lane(ctx, alone, time.Now().Add(part))
	var wg sync.WaitGroup
	for range lanes {
		wg.Go(func() { s.lane(ctx, shared, end) })
	}
	wg.Wait()
	return s.failures
}

// lane runs one seed after the other while one fits before end.
func (s *schedule) lane(ctx context.Context, rows []row, end time.Time) {
	for ctx.Err() == nil {
		r, seed, expected, ok := s.next(rows, time.Until(end))
		if !ok {
			return
		}
		begin := time.Now()
		done, err := r.run(ctx, s.lab, seed)
		if ctx.Err() != nil {
			return // interrupted: counted as nothing
		}
		if !s.finish(r, seed, done, time.Since(begin), expected, err) {
			return
		}
	}
}

// next picks the row that got least of its share in this run, and of those the one that got least ever.
func (s *schedule) next(rows []row, left time.Duration) (picked row, seed uint64, expected time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	least, leastEver := 0.0, 0.0
	for _, r := range rows {
		t := s.book.row(r.name)
		takes := max(r.takes, t.average()*5/4)
		if takes > left || s.failed[r.name] >= enough {
			continue
		}
		now, ever := s.spent[r.name].Seconds()/r.share, t.Spent.Seconds()/r.share
		if !ok || now < least || now == least && ever < leastEver {
			picked, expected, ok, least, leastEver = r, takes, true, now, ever
		}
	}
	if !ok {
		return picked, 0, 0, false
	}
	s.spent[picked.name] += expected
	t := s.book.row(picked.name)
	seed = t.NextSeed
	t.NextSeed++
	return picked, seed, expected, true
}

// finish counts a seed and says whether to go on.
func (s *schedule) finish(r row, seed uint64, done done, took, expected time.Duration, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spent[r.name] += took - expected
	if errors.Is(err, errNotRun) {
		s.failed[r.name] = enough
		fmt.Printf("%s: %v\n", r.name, err)
		return true
	}
	s.book.row(r.name).add(seed, done, took, err)
	fmt.Printf("%s seed %d: %s in %s\n", r.name, seed, done.text(), took.Round(time.Millisecond))
	if err != nil {
		s.failures++
		s.failed[r.name]++
		fmt.Printf("FAILED, repeat with: go run ./test/fault/deep --only %s --seed %d\n%s\n%.4000s\n", r.name, seed,
			keepWhole(s.lab.Keep, r.name, seed, err), err)
	}
	if err := s.book.write(s.file); err != nil {
		fmt.Fprintln(os.Stderr, "deep:", err)
		s.failures++
		return false
	}
	return true
}

// keepWhole writes all that a failed seed said, the servers' logs too, which are too long to print.
func keepWhole(dir, name string, seed uint64, failure error) string {
	path := filepath.Join(dir, fmt.Sprintf("%s-%d.log", name, seed))
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, []byte(failure.Error()), 0o644)); err != nil {
		return err.Error()
	}
	return "all of this is in " + path
}
