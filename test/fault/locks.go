package faultrun

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"corbel.dev/corbel/kit/fault/history"
)

// lockHolder is what a client knows of its session and of the lock that it holds.
type lockHolder struct {
	session string
	key     string // "" when it holds none
	fence   uint64
}

const lockKeys = 3

// lockStep goes one step on: make a session, take a lock, or give it up. After an
// unknown outcome the session is destroyed first, so that what it may hold is free.
func (w *worker) lockStep(ctx context.Context) (history.Outcome, error) {
	h := &w.holder
	switch {
	case h.session == "":
		id, r := w.client.createSession(ctx, "clients")
		if r.Outcome == history.OK {
			h.session = id
		}
		return r.Outcome, nil
	case h.key == "":
		return w.acquire(ctx, "locks/"+strconv.Itoa(w.rng.IntN(lockKeys)))
	case w.rng.IntN(8) == 0:
		w.invalidate(ctx, h.key)
		return history.OK, nil
	default:
		return w.release(ctx), nil
	}
}

func (w *worker) acquire(ctx context.Context, key string) (history.Outcome, error) {
	h := &w.holder
	step := history.Step{Kind: history.Acquire, Key: key}
	p := w.shared.Locks.Begin(w.id, step)
	r := w.client.Do(ctx, "PUT", "/v1/kv/"+key+"?acquire="+h.session, []byte(w.value()))
	if r.Outcome == history.OK && strings.TrimSpace(string(r.Body)) == "true" {
		held, found, again := w.client.get(ctx, key, "?consistent")
		if again.Outcome == history.OK && (!found || held.Session != h.session) {
			p.Unknown(nil)
			return history.OK, fmt.Errorf("lock %s was acquired by session %s, but the key shows %+v", key, h.session, held)
		}
		r.Outcome, r.Err = again.Outcome, again.Err
		if r.Outcome != history.OK {
			r.Outcome = history.Unknown // it is held, under a fence that nobody was told
		}
		step.Done, step.Index = true, held.LockIndex
	}
	r.end(p, step)
	switch {
	case r.Outcome == history.Unknown:
		w.invalidate(ctx, key)
	case r.Outcome == history.OK && step.Done:
		h.key, h.fence = key, step.Index
	}
	return r.Outcome, nil
}

func (w *worker) release(ctx context.Context) history.Outcome {
	h := &w.holder
	step := history.Step{Kind: history.Release, Key: h.key, Index: h.fence}
	p := w.shared.Locks.Begin(w.id, step)
	r := w.client.Do(ctx, "PUT", "/v1/kv/"+h.key+"?release="+h.session, []byte(w.value()))
	step.Done = strings.TrimSpace(string(r.Body)) == "true"
	r.end(p, step)
	switch r.Outcome {
	case history.OK:
		h.key = ""
	case history.Unknown:
		w.invalidate(ctx, h.key)
	}
	return r.Outcome
}

// invalidate gives the session up. Whether the server hears of it or not, the
// lock may be lost from now on, and this client never uses the session again.
func (w *worker) invalidate(ctx context.Context, key string) {
	step := history.Step{Kind: history.Invalidate, Key: key}
	p := w.shared.Locks.Begin(w.id, step)
	r := w.client.Do(ctx, "PUT", "/v1/session/destroy/"+w.holder.session, nil)
	r.end(p, step)
	w.holder = lockHolder{}
}
