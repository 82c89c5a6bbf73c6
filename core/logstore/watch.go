package logstore

import (
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
)

type opKind int

const (
	opAppend opKind = iota
	opStable
	opMark
	opKinds
)

var opNames = [opKinds]string{"append", "stable", "mark"}

// Stall is the fact that one disk operation takes, or took, longer than
// Config.StallAfter. It is published when it begins to, and again when it ended.
type Stall struct {
	Group string
	Op    string
	For   time.Duration
	Ended bool
}

// watch holds the start of the running operation of each kind; writers set it, anybody reads it without a lock.
type watch struct {
	clock clock.Clock
	base  time.Time
	start [opKinds]atomic.Int64 // nanoseconds since base plus one; 0: nothing runs
}

func (w *watch) now() int64 { return int64(w.clock.Since(w.base)) + 1 }

func (w *watch) begin(kind opKind) int64 {
	now := w.now()
	w.start[kind].Store(now)
	return now
}

func (w *watch) end(kind opKind, began int64) time.Duration {
	w.start[kind].Store(0)
	return time.Duration(w.now() - began)
}

func (w *watch) running(kind opKind) time.Duration {
	began := w.start[kind].Load()
	if began == 0 {
		return 0
	}
	return max(time.Duration(w.now()-began), 1)
}

func (w *watch) oldest() time.Duration {
	var most time.Duration
	for kind := range opKinds {
		most = max(most, w.running(kind))
	}
	return most
}

// run looks four times per StallAfter at what hangs.
func (w *watch) run(stop <-chan struct{}, cfg Config) {
	step := cfg.StallAfter / 4
	timer := cfg.Clock.NewTimer(step)
	defer timer.Stop()
	var stalled [opKinds]time.Duration
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		for kind := range opKinds {
			w.report(cfg, kind, &stalled[kind])
		}
		timer.Reset(step)
	}
}

// report publishes the begin and the end of a stall; seen is how long it was when last looked at.
func (w *watch) report(cfg Config, kind opKind, seen *time.Duration) {
	now := w.running(kind)
	switch {
	case now >= cfg.StallAfter && *seen == 0:
		*seen = now
		cfg.publish(Stall{Group: cfg.Group, Op: opNames[kind], For: now})
	case now >= *seen && *seen > 0:
		*seen = now
	case *seen > 0: // it ended, or another one runs
		cfg.publish(Stall{Group: cfg.Group, Op: opNames[kind], For: *seen, Ended: true})
		*seen = 0
	}
}

func (c *Config) publish(stall Stall) {
	if stall.Ended {
		c.Log.Warn("disk answers again", "group", c.Group, "op", stall.Op, "stalled_for", stall.For)
	} else {
		c.Log.Warn("disk stall: an operation does not return", "group", c.Group, "op", stall.Op, "for", stall.For)
	}
	if c.OnStall != nil {
		c.OnStall(stall)
	}
}
