package pipeline

import (
	"container/list"
	"sync"
)

// queue holds what waits for one handler, or for its filters. Tasks of one key leave in their order and one at a
// time: the next one only when the one before was done with. Keys take turns.
//
// It is bounded. While there is room nothing is lost. When it is full, room is made for a new task by, in this order:
// its key's newest task, if that neither begins nor ends an incident; the oldest such task of which a newer one of
// its key waits; the oldest task of any sort of which a newer one of its key waits; its key's newest one. These are
// merged: the newest state of every key stays as long as there are not more keys than room. When there are, some are
// shed: the oldest task that is no edge, else the new one if it is none, else the oldest.
type queue struct {
	most int

	mu    sync.Mutex // guards all below
	n     int
	lanes map[laneKey]*lane
	ready *list.List // of lanes that have tasks and of which none is being done
	// Waiting tasks, oldest first: all, those that are no edges, and those of either sort of which a newer one of their
	// key waits.
	all, plain, olderPlain, olderEdges *list.List
}

// laneKey tells apart what must not be merged: one handler may be in several workflows.
type laneKey struct {
	key
	workflow string
}

type lane struct {
	key   laneKey
	tasks *list.List // waiting, oldest first
	busy  bool
	turn  *list.Element // in ready
}

// task is an event on one workflow.
type task struct {
	*item
	w    *workflow
	lane *lane
	// Where it is in its lane, in all, in plain (nil for an edge) and in one of the older ones (nil for its key's newest).
	inLane, inAll, inPlain, inOlder *list.Element
}

func newQueue(most int) *queue {
	return &queue{most: most, lanes: map[laneKey]*lane{}, ready: list.New(), all: list.New(), plain: list.New(),
		olderPlain: list.New(), olderEdges: list.New()}
}

// lost says what became of tasks that gave way.
type lost struct {
	merged int // a newer one of their key waits
	shed   int // none does
}

// put adds a task.
func (q *queue) put(t *task) (l lost) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := laneKey{t.item.key(), t.w.id}
	if q.n >= q.most {
		gives, merged := q.givesWayLocked(q.lanes[k], t)
		if merged {
			l.merged++
		} else {
			l.shed++
		}
		if gives == t {
			return l
		}
		q.removeLocked(gives)
	}
	ln := q.lanes[k]
	if ln == nil {
		ln = &lane{key: k, tasks: list.New()}
		q.lanes[k] = ln
	}
	if back := ln.tasks.Back(); back != nil {
		if older := back.Value.(*task); older.inOlder == nil { // else its newer one gave way just now
			older.inOlder = q.olderOf(older).PushBack(older)
		}
	}
	t.lane = ln
	t.inLane, t.inAll = ln.tasks.PushBack(t), q.all.PushBack(t)
	if !t.edge() {
		t.inPlain = q.plain.PushBack(t)
	}
	q.n++
	if !ln.busy && ln.turn == nil {
		ln.turn = q.ready.PushBack(ln)
	}
	return l
}

// givesWayLocked says which task makes room for t in a lane (nil is none yet), and whether a newer one of its key
// stays.
func (q *queue) givesWayLocked(ln *lane, t *task) (gives *task, merged bool) {
	var newest *task
	if ln != nil && ln.tasks.Len() > 0 {
		newest = ln.tasks.Back().Value.(*task)
	}
	first := func(l *list.List) *task { return l.Front().Value.(*task) }
	switch {
	case newest != nil && newest.inPlain != nil:
		return newest, true
	case q.olderPlain.Len() > 0:
		return first(q.olderPlain), true
	case q.olderEdges.Len() > 0:
		return first(q.olderEdges), true
	case newest != nil:
		return newest, true
	case q.plain.Len() > 0:
		return first(q.plain), false
	case !t.edge():
		return t, false
	}
	return first(q.all), false
}

func (q *queue) olderOf(t *task) *list.List {
	if t.inPlain != nil {
		return q.olderPlain
	}
	return q.olderEdges
}

// removeLocked takes a waiting task out.
func (q *queue) removeLocked(t *task) {
	ln := t.lane
	if t.inOlder != nil {
		q.olderOf(t).Remove(t.inOlder)
	}
	ln.tasks.Remove(t.inLane)
	q.all.Remove(t.inAll)
	if t.inPlain != nil {
		q.plain.Remove(t.inPlain)
	}
	q.n--
	if ln.tasks.Len() == 0 && ln.turn != nil {
		q.ready.Remove(ln.turn)
		ln.turn = nil
	}
	if ln.tasks.Len() == 0 && !ln.busy {
		delete(q.lanes, ln.key)
	}
}

// take returns a task to be done, nil when there is none; done must be called with it.
func (q *queue) take() *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	front := q.ready.Front()
	if front == nil {
		return nil
	}
	ln := front.Value.(*lane)
	t := ln.tasks.Front().Value.(*task)
	ln.busy = true
	q.removeLocked(t)
	if ln.turn != nil {
		q.ready.Remove(ln.turn)
		ln.turn = nil
	}
	return t
}

// done lets the next task of the key go.
func (q *queue) done(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := t.lane
	ln.busy = false
	if ln.tasks.Len() == 0 {
		delete(q.lanes, ln.key)
	} else if ln.turn == nil {
		ln.turn = q.ready.PushBack(ln)
	}
}

// drop empties the queue and returns how many waited.
func (q *queue) drop() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.all.Len() > 0 {
		q.removeLocked(q.all.Front().Value.(*task))
		n++
	}
	return n
}

// waiting returns how many tasks wait, and whether one of them may be taken now.
func (q *queue) waiting() (n int, ready bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n, q.ready.Len() > 0
}
