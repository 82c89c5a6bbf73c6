package eventlog

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"corbel.dev/corbel/kit/clock"
)

// Janitor trims a log. A record goes when all Groups have committed a position behind it and it is older than Keep;
// a log that is three quarters full does not wait for Keep. A group without a position holds everything.
type Janitor struct {
	Log    Log
	Groups []string
	// Keep is how long records stay for who asks what became of one, or wants a range counted again; zero means 24 h.
	Keep time.Duration
	// Every is how often it looks; zero means 10 s.
	Every  time.Duration
	Clock  clock.Clock
	Logger *slog.Logger
}

// Run trims until ctx ends.
func (j Janitor) Run(ctx context.Context) error {
	timer := j.clock().NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if err := j.Trim(ctx); err != nil && ctx.Err() == nil && j.Logger != nil {
			j.Logger.Warn("the log of usage events was not trimmed; it is tried again", "error", err)
		}
		timer.Reset(cmp.Or(j.Every, 10*time.Second))
	}
}

func (j Janitor) clock() clock.Clock {
	if j.Clock == nil {
		return clock.Real{}
	}
	return j.Clock
}

// Trim does it once.
func (j Janitor) Trim(ctx context.Context) error {
	if len(j.Groups) == 0 {
		return errors.New("no group: nobody says what is needed")
	}
	bounds, err := j.Log.Bounds(ctx)
	if err != nil {
		return err
	}
	below := make([]uint64, len(bounds))
	for p, b := range bounds {
		below[p] = b.Next
	}
	if info := j.Log.Info(); info.Most == 0 || info.Bytes < info.Most/4*3 {
		kept, err := j.Log.Since(ctx, j.clock().Now().Add(-cmp.Or(j.Keep, 24*time.Hour)))
		if err != nil {
			return err
		}
		lower(below, kept)
	}
	for _, group := range j.Groups {
		positions, err := j.Log.Committed(ctx, group)
		if err != nil {
			return err
		}
		read := make([]uint64, len(below))
		for _, p := range positions {
			if p.Partition < len(read) {
				read[p.Partition] = p.Offset
			}
		}
		lower(below, read)
	}
	return j.Log.Trim(ctx, below)
}

func lower(to, bound []uint64) {
	for i := range to {
		to[i] = min(to[i], bound[i])
	}
}
