package notify

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Health is what a probe of the process finds.
type Health struct {
	// Lacks is what the process waits for before clients may come; empty when it is ready.
	Lacks []string
	// Replayed of Entries entries of the log were applied; zeros where there is none to replay.
	Replayed, Entries uint64
}

// text is the health as `systemctl status` shows it.
func (h Health) text() string {
	if len(h.Lacks) == 0 {
		return "ready"
	}
	text := "not ready: " + strings.Join(h.Lacks, "; ")
	if h.Entries > 0 && h.Replayed < h.Entries {
		text = fmt.Sprintf("replayed %d %% of the log; %s", h.Replayed*100/h.Entries, text)
	}
	return oneLine(text)
}

// The times of a start that takes long.
const (
	// extension is what a start that goes on is given each time, and extendEvery how often: two may be lost.
	extension   = 60 * time.Second
	extendEvery = 15 * time.Second
	// stuck is after which time without one more entry a replay is not given more.
	stuck = 5 * time.Minute
)

// phase is where a process is in its life.
type phase int

const (
	starting phase = iota
	serving
	reloading
	stopping
)

// state decides what is said: it reads no clock and sends nothing.
type state struct {
	phase    phase
	status   string    // as last told
	fed      time.Time // of the watchdog
	extended time.Time
	replayed uint64
	moved    time.Time // when replayed last grew
}

// probed is what to say after the process answered a probe.
func (s *state) probed(now time.Time, h Health, watchdog time.Duration) (lines []string) {
	if s.phase == starting && len(h.Lacks) == 0 {
		s.phase = serving
		lines = append(lines, "READY=1")
	}
	if h.Replayed > s.replayed || s.moved.IsZero() {
		s.replayed, s.moved = h.Replayed, now
	}
	replays := h.Entries > h.Replayed
	if s.phase == starting && now.Sub(s.extended) >= extendEvery && (!replays || now.Sub(s.moved) < stuck) {
		s.extended = now
		lines = append(lines, extend(extension))
	}
	if watchdog > 0 && now.Sub(s.fed) >= watchdog/3 {
		s.fed = now
		lines = append(lines, "WATCHDOG=1")
	}
	if text := h.text(); text != s.status && (s.phase == starting || s.phase == serving) {
		s.status = text
		lines = append(lines, "STATUS="+text)
	}
	return lines
}

func extend(by time.Duration) string {
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(by.Microseconds(), 10)
}

// reloads is what to say before a reload. A process that never was ready has nothing to take back.
func (s *state) reloads(monotonic time.Duration) []string {
	if s.phase != serving {
		return nil
	}
	s.phase, s.status = reloading, "reloads its configuration"
	return []string{"RELOADING=1", "MONOTONIC_USEC=" + strconv.FormatInt(monotonic.Microseconds(), 10),
		"STATUS=" + s.status}
}

// reloaded is what to say after it.
func (s *state) reloaded(err error) []string {
	if s.phase != reloading {
		return nil
	}
	s.phase, s.status = serving, "ready"
	if err != nil {
		s.status = oneLine("ready; not reloaded, the former configuration stays: " + err.Error())
	}
	return []string{"READY=1", "STATUS=" + s.status}
}

// stops is what to say when the process ends within some time.
func (s *state) stops(within time.Duration) []string {
	if s.phase == stopping {
		return nil
	}
	s.phase, s.status = stopping, "drains and ends"
	lines := []string{"STOPPING=1", "STATUS=" + s.status}
	if within > 0 {
		lines = append(lines, extend(within))
	}
	return lines
}
