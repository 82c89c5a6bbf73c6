package pipeline

import (
	"container/list"
	"sync"
)

// queue holds what waits for one handler, or for its filters. Tasks of one key leave in their order and one at a time: the next one only when the
// one before was done with. Keys take turns.
//
// It is bounded. While there is room nothing is lost. When it is full, a new task takes the place of its key's newest one
// that neither begins nor ends an incident; else the oldest such task of any key gives way; else, where all that wait begin or end
// incidents, it takes the place of its key's newest one of any sort; else the oldest of all gives way, unless
// the new one is of the lesser sort itself. So the newest state of a key stays as long as there are not more keys than room.
type queue struct {
	most int

	mu    sync.Mutex // guards all below
	n     int
	lanes map[laneKey]*lane
	ready *list.List // of lanes that have tasks and of which none is being done
	plain *list.List // of waiting tasks that are no edges, oldest first
	all   *list.List // of all waiting tasks, oldest first
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
	in   [3]*list.Element // in its lane, plain (nil for an edge) and all
}

func newQueue(most int) *queue {
	return &queue{most: most, lanes: map[laneKey]*lane{}, ready: list.New(), plain: list.New(), all: list.New()}
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
	ln := q.lanes[k]
	if q.n >= q.most {
		var newest *task
		if ln != nil && ln.tasks.Len() > 0 {
			newest = ln.tasks.Back().Value.(*task)
		}
		switch {
		case newest != nil && newest.in[1] != nil:
			q.removeLocked(newest)
			l.merged++
		case q.plain.Len() > 0:
			oldest := q.plain.Front().Value.(*task)
			if oldest.lane.tasks.Back().Value.(*task) != oldest {
				l.merged++
			} else {
				l.shed++
			}
			q.removeLocked(oldest)
		case newest != nil:
			q.removeLocked(newest)
			l.merged++
		case !t.edge():
			l.shed++
			return l
		default:
			oldest := q.all.Front().Value.(*task)
			if oldest.lane.tasks.Back().Value.(*task) != oldest {
				l.merged++
			} else {
				l.shed++
			}
			q.removeLocked(oldest)
		}
		ln = q.lanes[k] // it may have gone with its last task
	}
	if ln == nil {
		ln = &lane{key: k, tasks: list.New()}
		q.lanes[k] = ln
	}
	t.lane = ln
	t.in[0], t.in[2] = ln.tasks.PushBack(t), q.all.PushBack(t)
	if !t.edge() {
		t.in[1] = q.plain.PushBack(t)
	}
	q.n++
	if !ln.busy && ln.turn == nil {
		ln.turn = q.ready.PushBack(ln)
	}
	return l
}

// removeLocked takes a waiting task out.
func (q *queue) removeLocked(t *task) {
	ln := t.lane
	ln.tasks.Remove(t.in[0])
	q.all.Remove(t.in[2])
	if t.in[1] != nil {
		q.plain.Remove(t.in[1])
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
