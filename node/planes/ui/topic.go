package uiplane

import (
	"cmp"
	"context"
	"encoding/json"
	"hash/fnv"
	"net/url"
	"sync"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/kit/errkind"
)

const (
	// maxKept bounds the answers that a topic keeps: one for each set of rights and query that somebody looks at.
	maxKept = 256
	// share is the most of a core that a topic may cost: it is made again after this many times what making it took.
	share = 10
	// waited is the longest that a topic is kept for what making it took: most of a long making is waiting for others.
	waited = 5 * time.Second
)

// topic is made by asking, and what was made is shared by all who have the same rights and ask the same.
type topic struct {
	every time.Duration // the least time between two makings
	// rights tells apart those who may see different things.
	rights func(context.Context, *uiapi.Person) (string, error)
	// version is what the topic is made from; nil where only making it tells.
	version func() uint64
	make    func(context.Context, *uiapi.Person, url.Values) (any, error)

	mu   sync.Mutex
	kept map[string]*made
}

// turn is a lock that whoever waits for it may give up: it is held while others are asked. Make it with newTurn.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) leave() { <-t }

// made is an answer. Its turn is held while it is made: others want the same.
type made struct {
	used time.Time // guarded by the topic's lock

	turn    turn
	value   json.RawMessage
	index   uint64
	version uint64
	at      time.Time
	took    time.Duration
}

// Wait implements uiapi.Topic.
func (t *topic) Wait(ctx context.Context, p uiapi.Person, q url.Values, since uint64) (any, uint64, error) {
	for {
		rights, err := t.rights(ctx, &p)
		if err != nil {
			return nil, 0, err
		}
		m := t.of(rights + "?" + q.Encode())
		now, err := t.fresh(ctx, m, &p, q)
		if err != nil || now.index != since {
			return now.value, now.index, err
		}
		timer := time.NewTimer(now.pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, 0, uiapi.Unchanged{At: now.at}
		}
	}
}

// of is the answer that is kept under a key; the one that was not asked for the longest goes.
func (t *topic) of(key string) *made {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.kept[key]
	if m == nil {
		if t.kept == nil {
			t.kept = map[string]*made{}
		}
		if len(t.kept) >= maxKept {
			oldest := ""
			for k, v := range t.kept {
				if oldest == "" || v.used.Before(t.kept[oldest].used) {
					oldest = k
				}
			}
			delete(t.kept, oldest)
		}
		m = &made{turn: newTurn()}
		t.kept[key] = m
	}
	m.used = time.Now()
	return m
}

// looked is an answer, as of when it holds, and how long until it may be made again.
type looked struct {
	value json.RawMessage
	index uint64
	at    time.Time
	pause time.Duration
}

// fresh is the answer, made again where it is old.
func (t *topic) fresh(ctx context.Context, m *made, p *uiapi.Person, q url.Values) (looked, error) {
	if err := m.turn.take(ctx); err != nil {
		return looked{}, err
	}
	defer m.turn.leave()
	begin := time.Now()
	pause := max(t.every, min(share*m.took, waited))
	if age := begin.Sub(m.at); m.index != 0 && age < pause {
		return looked{m.value, m.index, m.at, pause - age}, nil
	}
	version := uint64(0)
	if t.version != nil {
		if version = t.version(); m.index != 0 && version == m.version {
			return looked{m.value, m.index, begin, t.every}, nil
		}
	}
	value, err := t.make(ctx, p, q)
	if err == nil {
		var text []byte
		if text, err = json.Marshal(value); err == nil {
			h := fnv.New64a()
			_, _ = h.Write(text)
			m.value, m.index = text, cmp.Or(h.Sum64()>>12, 1) // scripts know 53 bits
		}
	}
	if err != nil {
		if ctx.Err() != nil && !errkind.Is(err, errkind.Denied) {
			err = ctx.Err()
		}
		return looked{}, err
	}
	m.version, m.at, m.took = version, begin, time.Since(begin)
	return looked{m.value, m.index, begin, max(t.every, min(share*m.took, waited))}, nil
}
