package taskrunner

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/driver/mockdriver"
	"corbel.dev/corbel/jobs/client/restartpolicy"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// harness runs a task of the mock driver inside a bubble of time.
type harness struct {
	*Runner
	mu   sync.Mutex
	last Saved
	done chan struct{}
	stop context.CancelFunc
}

func start(t *testing.T, config map[string]any, p restartpolicy.Policy, saved Saved) *harness {
	h := &harness{done: make(chan struct{}), last: saved}
	task := &driver.Task{Name: "t", Config: config, NoLogs: true}
	h.Runner = New(Config{Name: "t", Driver: &mockdriver.Driver{Clock: clock.Real{}}, Clock: clock.Real{}, Saved: saved,
		Prepare: func(context.Context, func(string, string)) (*driver.Task, error) { return task, nil },
		Known:   func() *driver.Task { return task },
		Settings: func() Settings {
			return Settings{Policy: p, KillTimeout: 5 * time.Second, ShutdownDelay: time.Second}
		},
		Changed: func(s Saved) { h.mu.Lock(); defer h.mu.Unlock(); h.last = s }})
	ctx, cancel := context.WithCancel(t.Context())
	h.stop = cancel
	go func() { _ = h.Run(ctx); close(h.done) }()
	return h
}

func (h *harness) kinds() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []string
	for _, e := range h.last.State.Events {
		list = append(list, e.Type)
	}
	return strings.Join(list, ", ")
}

// TestCourses: what becomes of tasks, and the events that tell it.
func TestCourses(t *testing.T) {
	once := restartpolicy.Policy{Attempts: 1, Interval: time.Hour, Delay: 10 * time.Second, Mode: "fail"}
	for _, c := range []struct {
		name   string
		config map[string]any
		kill   bool
		failed bool
		events string
	}{
		{"ends well", map[string]any{"run_for": "3s"}, false, false,
			"Received, Task Setup, Started, Terminated, Not Restarting"},
		{"fails twice", map[string]any{"run_for": "3s", "exit_code": 2}, false, true, "Received, Task Setup, Started, " +
			"Terminated, Restarting, Task Setup, Started, Terminated, Not Restarting"},
		{"cannot start", map[string]any{"start_error": "x"}, false, true,
			"Received, Task Setup, Driver Failure, Not Restarting"},
		{"cannot start for now", map[string]any{"start_error": "x", "start_error_recoverable": true}, false, true,
			"Received, Task Setup, Driver Failure, Restarting, Task Setup, Driver Failure, Not Restarting"},
		{"killed", map[string]any{"kill_after": "2s"}, true, false,
			"Received, Task Setup, Started, Waiting for shutdown delay, Killing, Terminated, Killed"},
		{"killed while it starts", map[string]any{"start_block_for": "1h"}, true, false, "Received, Task Setup, Killed"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := start(t, c.config, once, Saved{})
			h.Begin()
			synctest.Wait()
			if c.kill {
				h.Kill("Killing", "stop")
			}
			<-h.done
			if s := h.State(); s.State != "dead" || s.Failed != c.failed || h.kinds() != c.events || s.FinishedAt.IsZero() {
				t.Errorf("%s: %+v: %s", c.name, s, h.kinds())
			}
		})
	}
}

// TestLives: a task outlives its runner; the next one goes on with it, and a restart is not counted.
func TestLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := restartpolicy.Policy{Mode: "fail"}
		h := start(t, map[string]any{"run_for": "1m"}, p, Saved{})
		h.Begin()
		synctest.Wait()
		h.stop()
		<-h.done
		if h.last.State.State != "running" || h.last.Handle == nil {
			t.Fatalf("%+v", h.last)
		}
		time.Sleep(40 * time.Second)
		h = start(t, map[string]any{"run_for": "1m"}, p, h.last)
		began := time.Now()
		<-h.done
		if got := time.Since(began); got != 20*time.Second || h.State().Failed {
			t.Errorf("it ran on for %s", got)
		}
		h = start(t, map[string]any{}, p, Saved{})
		h.Begin()
		synctest.Wait()
		if err := h.Restart("please"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := h.State(); s.Restarts != 1 || s.State != "running" {
			t.Errorf("%+v", s)
		}
		h.Kill("Killing", "")
		<-h.done
		if err := h.Restart("please"); err == nil {
			t.Error("a dead task restarts")
		}
	})
}

// slow is a driver whose Engine is away at first.
type slow struct {
	mockdriver.Driver
	away int
}

// Recover implements driver.Driver.
func (s *slow) Recover(ctx context.Context, t *driver.Task, state []byte) (driver.Running, error) {
	if s.away--; s.away >= 0 {
		return nil, errkind.New(errkind.Unavailable, "away")
	}
	return s.Driver.Recover(ctx, t, state)
}

// TestRecoversLate: a task whose driver comes up later is found, not started again.
func TestRecoversLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, nil, restartpolicy.Policy{Mode: "fail"}, Saved{})
		h.Begin()
		synctest.Wait()
		h.stop()
		<-h.done
		task := &driver.Task{Name: "t", NoLogs: true}
		r := New(Config{Name: "t", Driver: &slow{mockdriver.Driver{Clock: clock.Real{}}, 5}, Clock: clock.Real{},
			Saved: h.last, Known: func() *driver.Task { return task }, Changed: func(Saved) {},
			Settings: func() Settings { return Settings{} }})
		done := make(chan struct{})
		go func() { _ = r.Run(t.Context()); close(done) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := r.State(); r.Running() == nil || s.Restarts != 0 || s.State != "running" {
			t.Errorf("%+v", s)
		}
		r.Kill("Killing", "")
		<-done
	})
}
