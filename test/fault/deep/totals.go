package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/test/fault"
)

// totals are what all runs did together, by row.
type totals struct {
	Rows map[string]*rowTotal
}

// rowTotal is one row's.
type rowTotal struct {
	NextSeed uint64
	Counts   map[string]int
	Failed   []uint64 // seeds
	Spent    time.Duration
	// Times are the newest maxTimes times.
	Times []time.Duration
}

const maxTimes = 20000

func readTotals(path string) (*totals, error) {
	t := &totals{Rows: map[string]*rowTotal{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	return t, json.Unmarshal(data, t)
}

func (t *totals) row(name string) *rowTotal {
	if t.Rows[name] == nil {
		t.Rows[name] = &rowTotal{NextSeed: 1, Counts: map[string]int{}}
	}
	return t.Rows[name]
}

func (t *totals) write(path string) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

func (r *rowTotal) add(d done, took time.Duration, err error) {
	for name, n := range d.Counts {
		r.Counts[name] += n
	}
	r.Spent += took
	r.Times = append(r.Times, d.Times...)
	if len(r.Times) > maxTimes {
		r.Times = r.Times[len(r.Times)-maxTimes:]
	}
	if err != nil {
		r.Failed = append(r.Failed, r.NextSeed)
	}
}

func (d done) text() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(d.Counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", d.Counts[name], name))
	}
	if len(d.Times) > 0 {
		parts = append(parts, "worst "+faultrun.Quantile(d.Times, 1).Round(time.Millisecond).String())
	}
	return strings.Join(parts, ", ")
}

// table is the totals as Markdown.
func (t *totals) table() string {
	var b strings.Builder
	b.WriteString("| row | what | totals | p50 | p99 | worst | time spent | failed seeds |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		total := t.Rows[r.name]
		if total == nil {
			fmt.Fprintf(&b, "| %s | %s | none yet | | | | | |\n", r.name, r.what)
			continue
		}
		quantiles := " | | "
		if len(total.Times) > 0 {
			show := func(q float64) string { return faultrun.Quantile(total.Times, q).Round(time.Millisecond).String() }
			quantiles = show(0.5) + " | " + show(0.99) + " | " + show(1)
		}
		failed := "none"
		if len(total.Failed) > 0 {
			failed = strings.Trim(fmt.Sprint(total.Failed), "[]")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.name, r.what, done{Counts: total.Counts}.text(), quantiles,
			total.Spent.Round(time.Second), failed)
	}
	return b.String()
}

const (
	beginMark = "<!-- totals: go run ./test/fault/deep -->"
	endMark   = "<!-- end of totals -->"
)

// publish replaces the table between the marks of a page.
func (t *totals) publish(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, found := strings.Cut(string(data), beginMark)
	_, foot, closed := strings.Cut(rest, endMark)
	if !found || !closed {
		return fmt.Errorf("%s has no marks %s and %s", path, beginMark, endMark)
	}
	return os.WriteFile(path, []byte(head+beginMark+"\n\n"+t.table()+"\n"+endMark+foot), 0o644)
}
