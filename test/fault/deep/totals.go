package main

import (
	"bytes"
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

	"corbel.dev/corbel/test/fault/catalogruns"
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
	// Done is how many seeds ended, Spent how long they took together.
	Done  int
	Spent time.Duration
	// Millis are the newest maxTimes times, in milliseconds; WorstMillis is of all.
	Millis      []int
	WorstMillis int
}

const maxTimes = 500

// average is how long a seed took so far, 0 before the first.
func (r *rowTotal) average() time.Duration {
	if r.Done == 0 {
		return 0
	}
	return r.Spent / time.Duration(r.Done)
}

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
	data = bytes.ReplaceAll(data, []byte(`},"`), []byte("},\n\"")) // a line for each row
	data = append(data, '\n')
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

func (r *rowTotal) add(seed uint64, d done, took time.Duration, err error) {
	for name, n := range d.Counts {
		r.Counts[name] += n
	}
	r.Done++
	r.Spent += took
	for _, t := range d.Times {
		r.Millis = append(r.Millis, int(t.Milliseconds()))
		r.WorstMillis = max(r.WorstMillis, int(t.Milliseconds()))
	}
	if len(r.Millis) > maxTimes {
		r.Millis = r.Millis[len(r.Millis)-maxTimes:]
	}
	if err != nil {
		r.Failed = append(r.Failed, seed)
	}
}

// quantiles are p50, p99 of the newest times and the worst of all, as cells of the table.
func (r *rowTotal) quantiles() string {
	if len(r.Millis) == 0 {
		return " | | "
	}
	var times []time.Duration
	for _, ms := range r.Millis {
		times = append(times, time.Duration(ms)*time.Millisecond)
	}
	return fmt.Sprintf("%s | %s | %s", catalogruns.Quantile(times, 0.5), catalogruns.Quantile(times, 0.99),
		time.Duration(r.WorstMillis)*time.Millisecond)
}

// crashes sums up what all crash cycles say together: by the rule of three, what was not seen in n is rarer than 3/n.
func (t *totals) crashes() string {
	cycles, acked := 0, 0
	for name, r := range t.Rows {
		if strings.HasPrefix(name, "crash-") {
			cycles += r.Counts["cycles"]
			acked += r.Counts["acknowledged"]
		}
	}
	if cycles == 0 {
		return ""
	}
	return fmt.Sprintf("\nCrash cycles together: %d, with %d acknowledged writes. A cycle that lost one would stand "+
		"among the failed seeds; "+
		"with none, the rate of loss is below %.2g %% for each crash (95 %%).\n", cycles, acked, 300/float64(cycles))
}

func (d done) text() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(d.Counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", d.Counts[name], name))
	}
	if len(d.Times) > 0 {
		parts = append(parts, "worst "+catalogruns.Quantile(d.Times, 1).Round(time.Millisecond).String())
	}
	return strings.Join(parts, ", ")
}

// table is the totals as Markdown.
func (t *totals) table() string {
	var b strings.Builder
	b.WriteString("| row | what | totals | p50 | p99 | worst | time spent | failed seeds |\n| --- | --- | --- | --- | " +
		"--- | --- | --- | --- |\n")
	for _, r := range rows {
		total := t.Rows[r.name]
		if total == nil || total.Done == 0 {
			fmt.Fprintf(&b, "| %s | %s | none yet | | | | | |\n", r.name, r.what)
			continue
		}
		failed := "none"
		if len(total.Failed) > 0 {
			failed = strings.Trim(fmt.Sprint(total.Failed), "[]")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.name, r.what, done{Counts: total.Counts}.text(),
			total.quantiles(),
			total.Spent.Round(time.Second), failed)
	}
	b.WriteString(t.crashes())
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
