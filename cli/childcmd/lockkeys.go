package childcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
)

// Flags that mark keys as locks and semaphores, so that peers' tools and ours can
// share them and refuse keys of the other kind.
const (
	LockFlag      = 0x2ddccbc058a50c18
	semaphoreFlag = 0xe0f69a2baa414de0
)

// semaphore is the value of a semaphore's .lock key.
type semaphore struct {
	Limit   int
	Holders map[string]bool // by session
}

func (l *locker) lockKey() string {
	if l.key != "" {
		return l.key
	}
	return l.prefix + "/.lock"
}

// contender is the key whose lock shows that a session still lives.
func (l *locker) contender() string { return l.prefix + "/" + l.session }

// holds tells whether the .lock key says that the lock is ours.
func (l *locker) holds(p *client.KVPair) bool {
	if p == nil {
		return false
	}
	if l.o.limit == 1 {
		return p.Session == l.session
	}
	var s semaphore
	return json.Unmarshal(p.Value, &s) == nil && s.Holders[l.session]
}

// takeLock waits until the key is free and takes it.
func (l *locker) takeLock(ctx context.Context) error {
	var index uint64
	for {
		p, meta, err := l.cl.KV().Get(ctx, l.lockKey(), client.Query{Index: index, Wait: 15 * time.Second})
		if err != nil {
			return err
		}
		if p != nil && p.Flags != LockFlag {
			return fmt.Errorf("%s exists and is not a lock (flags %#x); choose another prefix", l.lockKey(), p.Flags)
		}
		if p == nil || p.Session == "" {
			won, err := l.cl.KV().Put(ctx, l.lockKey(), nil, client.KVWrite{Flags: LockFlag, Acquire: l.session})
			if err != nil || won {
				return err
			}
			// Free but refused: the lock-delay of a lost lock. No write ends it, so ask again.
			command.Wait(ctx, 500*time.Millisecond)
			index = 0
			continue
		}
		index = max(meta.Index, 1)
	}
}

func (l *locker) giveLock(ctx context.Context) error {
	_, err := l.cl.KV().Put(ctx, l.lockKey(), nil, client.KVWrite{Flags: LockFlag, Release: l.session})
	return err
}

// takeSlot announces this session as a contender, then waits for a free slot.
func (l *locker) takeSlot(ctx context.Context) error {
	ok, err := l.cl.KV().Put(ctx, l.contender(), nil, client.KVWrite{Flags: semaphoreFlag, Acquire: l.session})
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("could not lock %s", l.contender())
	}
	var index uint64
	for {
		pairs, meta, err := l.cl.KV().List(ctx, l.prefix+"/", client.Query{Index: index, Wait: 15 * time.Second})
		if err != nil {
			return err
		}
		s, at, err := l.slots(pairs)
		if err != nil {
			return err
		}
		if len(s.Holders) >= s.Limit {
			index = max(meta.Index, 1)
			continue
		}
		s.Holders[l.session] = true
		if ok, err := l.putSlots(ctx, s, at); err != nil || ok {
			return err
		}
		index = 0 // somebody was faster: look again
	}
}

// slots reads the semaphore and drops holders whose session has ended.
func (l *locker) slots(pairs []client.KVPair) (semaphore, uint64, error) {
	s, at, alive := semaphore{Limit: l.o.limit}, uint64(0), map[string]bool{}
	for _, p := range pairs {
		switch {
		case p.Key == l.lockKey():
			if p.Flags != semaphoreFlag {
				return s, 0, fmt.Errorf("%s exists and is not a semaphore (flags %#x); choose another prefix", p.Key, p.Flags)
			}
			if err := json.Unmarshal(p.Value, &s); err != nil {
				return s, 0, fmt.Errorf("%s holds no semaphore: %w", p.Key, err)
			}
			if s.Limit != l.o.limit {
				return s, 0, fmt.Errorf("the semaphore %s has limit %d, not %d", l.prefix, s.Limit, l.o.limit)
			}
			at = p.ModifyIndex
		case p.Session != "":
			alive[strings.TrimPrefix(p.Key, l.prefix+"/")] = true
		}
	}
	holders := map[string]bool{}
	for id := range s.Holders {
		if alive[id] {
			holders[id] = true
		}
	}
	s.Holders = holders
	return s, at, nil
}

func (l *locker) putSlots(ctx context.Context, s semaphore, at uint64) (bool, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return false, err
	}
	return l.cl.KV().Put(ctx, l.lockKey(), text, client.KVWrite{Flags: semaphoreFlag, CAS: &at})
}

// giveSlot takes this session out of the holders and deletes its contender key.
func (l *locker) giveSlot(ctx context.Context) error {
	for range 20 { // each round somebody else made progress
		pairs, _, err := l.cl.KV().List(ctx, l.prefix+"/", client.Query{})
		if err != nil {
			return err
		}
		s, at, err := l.slots(pairs)
		if err != nil {
			return err
		}
		if s.Holders[l.session] {
			delete(s.Holders, l.session)
			ok, err := l.putSlots(ctx, s, at)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
		}
		_, err = l.cl.KV().Delete(ctx, l.contender(), false, nil)
		return err
	}
	return errors.New("the semaphore is too busy; the end of the session frees the slot")
}
