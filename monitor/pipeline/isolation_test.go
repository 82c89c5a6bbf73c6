package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/monitor"
)

// TestOneHangs: a command that never ends, a sink that takes nothing, a filter and a mutator that loop. Each holds
// its own workers; another handler of the same events gets all of them meanwhile, and what the stuck ones gave up is
// counted.
func TestOneHangs(t *testing.T) {
	stalled, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stalled.Close() // whatever is accepted by the kernel is never read
	port := uint32(stalled.Addr().(*net.TCPAddr).Port)
	const queue, workers, entities, rounds = 20, 2, 10, 12
	loop := pipe("loops", "true", "endless")
	spin := pipe("spins", "true")
	spin.Mutator = "spin"
	w := start(t, func(c *Config) { c.Queue, c.Workers = queue, workers },
		pipe("hangs", `echo >> "$OUT/hangs"; sleep 1000`), loop, spin,
		&monitor.Handler{Meta: meta("stalls"), Type: "tcp", Mutator: "large",
			Socket: &monitor.HandlerSocket{Host: "127.0.0.1", Port: port}},
		&monitor.Mutator{Meta: meta("large"), Type: "javascript",
			Eval: "var s = 'xxxxxxxxxxxxxxxx'; while (s.length < 1 << 25) s += s; return s", Timeout: 30},
		&monitor.Mutator{Meta: meta("spin"), Type: "javascript", Eval: "while (true);", Timeout: 1},
		allow("endless", "while (true);"), writes("good", "is_incident"))
	for i := range rounds {
		for n := range entities {
			w.send(result(fmt.Sprint("e", n), "cpu", 1+uint32(i%2), "hangs", "loops", "spins", "stalls", "good"))
		}
		// The next round comes when the good handler has this one: so it never has more to do than it has room for,
		// whatever the others do.
		polltest.Until(t, func() bool { return w.of("good").Done == uint64((i+1)*entities) },
			"the good handler to have round %d: %+v", i, w.Stats())
	}
	if s := w.of("good"); s.Queued != rounds*entities || s.Merged+s.Shed+s.Failed != 0 {
		t.Errorf("good: %+v", s)
	}
	hangs := w.of("hangs")
	if hangs.Busy != workers || hangs.Done+hangs.Failed != 0 || hangs.Waiting != queue ||
		hangs.Merged+hangs.Shed != rounds*entities-queue-workers || hangs.Shed != 0 {
		t.Errorf("hangs: %+v", hangs)
	}
	if s := w.of("stalls"); s.Done != 0 || s.Busy > workers || s.Waiting > queue {
		t.Errorf("stalls: %+v", s)
	}
	if cut := w.cfg.Scripts.Stats().Cut; cut == 0 {
		t.Error("nothing was cut")
	}
	begin := time.Now()
	w.stop()
	if lasted := time.Since(begin); lasted > 20*time.Second {
		t.Errorf("the end took %s", lasted)
	}
	for _, s := range w.Stats() {
		if s.Waiting+s.Busy != 0 || s.Queued != s.Done+s.Failed+s.Merged+s.Shed {
			t.Errorf("not accounted for: %+v", s)
		}
	}
}

// What is merged is the newest state: after a failure and its end came while the handler was stuck, it learns how
// things are.
func TestNewestStateWins(t *testing.T) {
	w := start(t, func(c *Config) { c.Queue, c.Workers = 4, 1 },
		pipe("slow", `read -r line; echo "$line" >> "$OUT/slow"; while [ -e "$OUT/stuck" ]; do sleep 0.05; done`))
	stuck := filepath.Join(w.dir, "stuck")
	if err := os.WriteFile(stuck, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.send(result("first", "cpu", 1, "slow"))
	polltest.Until(t, func() bool { return w.of("slow").Busy == 1 }, "the handler to be stuck")
	for range 30 {
		for n := range 4 {
			w.send(result(fmt.Sprint("e", n), "cpu", 2, "slow"))
		}
	}
	for n := range 2 {
		w.send(result(fmt.Sprint("e", n), "cpu", 0, "slow"))
	}
	polltest.Until(t, func() bool { return w.of("slow").Queued == 1+30*4+2 }, "all to be queued")
	if err := os.Remove(stuck); err != nil {
		t.Fatal(err)
	}
	w.settled()
	last := map[string]monitor.Event{}
	for _, line := range w.lines("slow") {
		var e monitor.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		last[e.Entity.Name] = e
	}
	for n := range 4 {
		e := last[fmt.Sprint("e", n)]
		status, occurrences, watermark := uint32(2), int64(30), int64(30)
		if n < 2 {
			status, occurrences = 0, 1
		}
		if e.Check == nil || e.Check.Status != status || e.Check.Occurrences != occurrences ||
			e.Check.Watermark != watermark {
			t.Errorf("e%d: the last it heard of is %+v", n, e.Check)
		}
	}
	if s := w.of("slow"); s.Merged == 0 || s.Shed != 0 || s.Queued != s.Done+s.Merged {
		t.Errorf("%+v", s)
	}
}

// A filter that lets only the first occurrence pass is asked before anything is merged.
func TestFiltersComeFirst(t *testing.T) {
	w := start(t, func(c *Config) { c.Queue, c.Workers = 2, 1 }, allow("first", "event.check.occurrences == 1"),
		pipe("once", `read -r line; echo "$line" >> "$OUT/once"; while [ -e "$OUT/stuck" ]; do sleep 0.05; done`,
			"is_incident", "first"))
	if err := os.WriteFile(filepath.Join(w.dir, "stuck"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, entity := range []string{"a", "b", "c"} {
		for range 50 {
			w.send(result(entity, "cpu", 2, "once"))
		}
		// with the first, so that there is room for the others
		polltest.Until(t, func() bool { return w.of("once").Busy == 1 }, "the handler to be stuck")
	}
	polltest.Until(t, func() bool { s := w.of("once"); return s.Queued+s.Filtered == 150 }, "all to be looked at")
	if err := os.Remove(filepath.Join(w.dir, "stuck")); err != nil {
		t.Fatal(err)
	}
	w.settled()
	if got := len(w.lines("once")); got != 3 {
		t.Errorf("%d first occurrences came", got)
	}
}

func TestEventLog(t *testing.T) {
	w := start(t, nil)
	path := filepath.Join(w.dir, "events.log")
	l, err := NewEventLog(path, 0, w.cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewEventLog(filepath.Join(w.dir, "none", "x"), 0, w.cfg.Log); err == nil {
		t.Error("a folder that is not there is fine")
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { done <- l.Run(ctx) }()
	offer := func(entity string) {
		w.send(result(entity, "cpu", 0))
		for _, p := range w.intake.List("default", entity) {
			l.Offer(p)
		}
	}
	offer("a")
	count := func(file string) int { b, _ := os.ReadFile(file); return strings.Count(string(b), "\n") }
	polltest.Until(t, func() bool { return count(path) == 1 }, "a line")
	if err := os.Rename(path, path+".1"); err != nil { // as log rotation does
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { offer("b"); return count(path) > 0 }, "a new file")
	offer("last")
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(path)
	if !strings.Contains(string(b), `"name":"last"`) {
		t.Error("what waited at the end was not written")
	}
	written, dropped := l.Counts()
	if lines := count(path) + count(path+".1"); uint64(lines) != written || dropped != 0 {
		t.Errorf("%d lines, %d written, %d dropped", lines, written, dropped)
	}
	full, err := NewEventLog(path, 1, w.cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(w.intake.List("default", "a"), w.intake.List("default", "b")...) {
		full.Offer(p)
	}
	if _, dropped := full.Counts(); dropped != 1 {
		t.Errorf("%d dropped from a full buffer", dropped)
	}
}
