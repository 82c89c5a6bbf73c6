package wire

import (
	"log/slog"
	"sync"
	"time"
)

// noteEvery is how often one kind of trouble may reach the log: a scanner or a
// misconfigured fleet must not fill a disk.
const noteEvery = 10 * time.Second

// notes are warnings limited per kind; what was left out is counted in the next one.
type notes struct {
	log *slog.Logger
	// mu guards last, which holds one entry per kind: a handful of constants.
	mu   sync.Mutex
	last map[string]*note
}

type note struct {
	at     time.Time
	silent int
}

func (n *notes) warn(kind, msg string, args ...any) {
	n.mu.Lock()
	if n.last == nil {
		n.last = map[string]*note{}
	}
	e := n.last[kind]
	if e == nil {
		e = &note{}
		n.last[kind] = e
	}
	now := time.Now()
	if !e.at.IsZero() && now.Sub(e.at) < noteEvery {
		e.silent++
		n.mu.Unlock()
		return
	}
	silent := e.silent
	e.at, e.silent = now, 0
	n.mu.Unlock()
	if silent > 0 {
		args = append(args, "alike", silent)
	}
	n.log.Warn(msg, args...)
}
