package pgevents

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor/eventstore"
)

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// job is a commit on its way to the writer.
type job struct {
	commit  uint64
	batches []portion
	runs    []run
	done    chan struct{} // closed when its outcome is known
}

// portion is what one shard changes.
type portion struct {
	shard   uint16
	epoch   uint64
	until   uint64
	changes []change
}

// Commit implements eventstore.Store. It returns nil also when PostgreSQL does not answer: Behind tells.
func (s *Store) Commit(ctx context.Context, batches []eventstore.Batch, until []uint64) error {
	if len(batches) == 0 {
		return nil
	}
	s.mu.Lock()
	s.commits++
	j := s.gather(batches, until)
	if s.down != nil || s.busy {
		s.put(j)
		s.mu.Unlock()
		return nil
	}
	s.busy = true
	s.tell(j)
	s.bound()
	s.mu.Unlock()
	s.jobs <- j // there is room: nobody else is busy
	patience := time.NewTimer(s.cfg.Patience)
	defer patience.Stop()
	select {
	case <-j.done:
		return nil
	case <-patience.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-j.done:
	default:
		s.mark(j) // until it is known to be done
	}
	return nil
}

// gather takes what the batches hold, and what was left to be deleted; what is to be told is put behind what waits.
// The lock is held.
func (s *Store) gather(batches []eventstore.Batch, until []uint64) *job {
	j := &job{commit: s.commits, done: make(chan struct{})}
	for i, one := range batches {
		b := one.(*Batch)
		x := s.of(b.Shard())
		for k := range b.changes {
			x.use(b.changes[k].slot, b.changes[k].how != gone)
		}
		s.changes += uint64(b.Len())
		x.until = until[i]
		epoch, owned := s.cfg.Owner(b.Shard())
		if !owned {
			x.forget()
			continue
		}
		j.batches = append(j.batches, portion{b.Shard(), epoch, until[i], x.bury(b.changes, b.index)})
		s.waiting = append(s.waiting, b.runs...)
	}
	for number, x := range s.shards {
		if epoch, owned := s.cfg.Owner(number); len(x.dead) > 0 && owned {
			j.batches = append(j.batches, portion{number, epoch, x.until, x.bury(nil, nil)})
		}
	}
	return j
}

// What one statement tells of the history at most: after a long time without PostgreSQL it is not to take longer than
// Config.Timeout.
const (
	runsMost      = 5000
	runsMostBytes = 8 << 20 // of outputs
)

// tell gives a job what waits the longest. The lock is held.
func (s *Store) tell(j *job) {
	n, size := 0, 0
	for n < min(len(s.waiting), runsMost) && (n == 0 || size+len(s.waiting[n].output) <= runsMostBytes) {
		size += len(s.waiting[n].output)
		n++
	}
	if j.runs, s.waiting = s.waiting[:n:n], s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
	s.telling = n
}

// bury adds what is to be deleted since an earlier commit could not.
func (x *shard) bury(changes []change, newer map[slot]int) []change {
	for k := range x.dead {
		if _, is := newer[k]; !is && !x.used(k) {
			changes = append(changes, change{slot: k})
		}
	}
	clear(x.dead)
	return changes
}

// put notes that a job was not done. The lock is held.
func (s *Store) put(j *job) {
	s.mark(j)
	if len(j.runs) > 0 {
		s.waiting = append(j.runs, s.waiting...)
	}
	s.bound()
}

// bound lets go of what there is no room for, the oldest first. The lock is held.
func (s *Store) bound() {
	over, size := max(len(s.waiting)-s.cfg.Waiting, 0), 0
	for i := len(s.waiting) - 1; i >= over; i-- {
		if size += len(s.waiting[i].output); size > s.cfg.WaitingBytes {
			over = i + 1
		}
	}
	if over > 0 {
		s.stats.HistoryLost += uint64(over)
		clear(s.waiting[:over])
		s.waiting = s.waiting[over:]
	}
}

// mark notes what of a job is not durable. The lock is held.
func (s *Store) mark(j *job) {
	for _, p := range j.batches {
		x := s.of(p.shard)
		for i := range p.changes {
			k := p.changes[i].slot
			x.dirty[k] = max(j.commit, x.dirty[k])
			if p.changes[i].how == gone {
				x.dead[k] = true
			} else {
				delete(x.dead, k)
			}
		}
		s.stats.Deferred += uint64(len(p.changes))
	}
}

// probeEvery is how often a server that is gone is asked for a sign of life, which may take probeTime.
const (
	probeEvery = 500 * time.Millisecond
	probeTime  = 2 * time.Second
)

// retainEvery is how often days of the history are looked through.
const retainEvery = 10 * time.Minute

// write does the jobs, and finds out when a server that was gone is back. It ends with the store.
func (s *Store) write(ctx context.Context) {
	defer close(s.ended)
	probe, look := time.NewTicker(probeEvery), time.NewTicker(retainEvery)
	defer probe.Stop()
	defer look.Stop()
	for {
		select {
		case j, open := <-s.jobs:
			if !open {
				return
			}
			s.do(ctx, j)
		case <-probe.C:
			s.probe(ctx)
			for s.rest(ctx) {
			}
		case <-look.C:
			quick, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
			if s.Healthy() == nil {
				if err := s.retain(quick); err != nil {
					s.cfg.Log.Warn("cannot drop expired days of the history", "error", err)
				}
			}
			cancel()
		}
	}
}

func (s *Store) probe(ctx context.Context) {
	if s.Healthy() == nil {
		return
	}
	quick, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if s.pool.Ping(quick) != nil {
		return
	}
	if s.late != nil && !s.reread(ctx) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != errClosed {
		s.down = nil
	}
}

// rest tells of the history what no commit did, and reports whether it tried: a server that has no shard any more has
// no reason for a commit.
func (s *Store) rest(ctx context.Context) bool {
	s.mu.Lock()
	if s.down != nil || s.busy || len(s.waiting) == 0 {
		s.mu.Unlock()
		return false
	}
	s.busy = true
	j := &job{commit: s.commits, done: make(chan struct{})}
	s.tell(j)
	s.mu.Unlock()
	s.do(ctx, j)
	return true
}

// do runs a job to its outcome.
func (s *Store) do(ctx context.Context, j *job) {
	quick, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	mine, complete, err := s.run(quick, j)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(j.done)
	s.busy, s.telling = false, 0
	if err != nil {
		s.failed(err)
		s.put(j)
		return
	}
	s.stats.Statements++
	if !complete { // rows that were to be there are not: all of it is written whole
		s.mark(j)
	}
	for _, p := range j.batches {
		s.settle(j, p, mine[p.shard])
	}
	if lost := s.stats.HistoryLost - s.lostSeen; lost > 0 {
		s.lostSeen = s.stats.HistoryLost
		s.cfg.Log.Error("entries of the history were lost while PostgreSQL was gone; the state of all checks is written",
			"entries", lost)
	}
}

// settle notes what of a shard is durable now. What was dirty is not before all of it was written. The lock is held.
func (s *Store) settle(j *job, p portion, mine bool) {
	x := s.of(p.shard)
	if !mine {
		s.stats.Fenced++
		x.epoch, x.fenced = 0, time.Now()
	}
	for i := range p.changes {
		k := p.changes[i].slot
		switch at, dirty := x.dirty[k]; {
		case !mine:
			x.dirty[k] = max(j.commit, at)
		case dirty && at <= j.commit && p.changes[i].how != part:
			delete(x.dirty, k)
			delete(x.dead, k)
		}
	}
	if len(x.dirty) == 0 {
		x.durable = p.until
	}
}

// logEvery bounds how often failures are told.
const logEvery = 10 * time.Second

// failed notes why nothing can be written, and that the outcome of what was sent is unknown. The lock is held.
func (s *Store) failed(err error) {
	s.stats.Failures++
	if s.down == nil {
		s.down = errkind.E(errkind.Unavailable, "postgresql", err)
	}
	s.turn = 0
	if now := time.Now(); now.Sub(s.loggedAt) > logEvery {
		s.loggedAt = now
		s.cfg.Log.Error("events cannot be written to PostgreSQL; they are kept in memory until it is back", "error", err)
	}
}

// run claims what has to be claimed, and writes. complete says that all rows were there that were to be changed in
// part.
func (s *Store) run(ctx context.Context, j *job) (mine map[uint16]bool, complete bool, err error) {
	if s.turn == 0 {
		if err := s.pool.QueryRow(ctx, `SELECT nextval('corbel_event_turns')`).Scan(&s.turn); err != nil {
			return nil, false, err
		}
	}
	if err := s.claim(ctx, j); err != nil {
		return nil, false, err
	}
	w := &statement{}
	for _, p := range j.batches {
		w.shards, w.epochs, w.sequences = append(w.shards, int16(p.shard)), append(w.epochs, int64(p.epoch)),
			append(w.sequences, int64(p.until))
		for i := range p.changes {
			w.add(p.shard, &p.changes[i])
		}
	}
	for i := range j.runs {
		w.run(&j.runs[i])
	}
	if err := s.prepare(ctx, j.runs); err != nil {
		return nil, false, err
	}
	var done []int16
	var parts int64
	if err := s.pool.QueryRow(ctx, writeSQL, w.args(s.turn)...).Scan(&done, &parts); err != nil {
		clear(s.days) // a partition may be gone
		return nil, false, fmt.Errorf("a commit: %w", err)
	}
	mine = map[uint16]bool{}
	for _, n := range done {
		mine[uint16(n)] = true
	}
	return mine, parts == w.expected(mine), nil
}

// claim takes the shards of a job that were not taken under their epoch and this turn yet.
func (s *Store) claim(ctx context.Context, j *job) error {
	var shards []int16
	var epochs []int64
	s.mu.Lock()
	for _, p := range j.batches {
		if x := s.of(p.shard); x.epoch != p.epoch || x.turn != s.turn {
			shards, epochs = append(shards, int16(p.shard)), append(epochs, int64(p.epoch))
		}
	}
	s.mu.Unlock()
	if len(shards) == 0 {
		return nil
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, claimSQL, shards, epochs, s.cfg.Self, s.turn)
		if err != nil {
			return err
		}
		ours := map[uint16]bool{} // of those that were claimed, whether the table has them as this server left them
		var number int16
		var same bool
		if _, err := pgx.ForEachRow(rows, []any{&number, &same},
			func() error { ours[uint16(number)] = same; return nil }); err != nil {
			return err
		}
		for i, number := range shards {
			same, claimed := ours[uint16(number)]
			s.mu.Lock()
			same = same && !s.of(uint16(number)).alien
			s.mu.Unlock()
			if claimed && !same {
				err = s.takeover(ctx, tx, uint16(number), j.commit)
			}
			if err != nil {
				return err
			}
			if claimed {
				s.mu.Lock()
				x := s.of(uint16(number))
				x.epoch, x.turn, x.alien = uint64(epochs[i]), s.turn, false // should the transaction fail, the turn is over
				s.mu.Unlock()
			}
		}
		return nil
	})
}

// takeover has a shard that another server wrote before written as it is here.
func (s *Store) takeover(ctx context.Context, tx pgx.Tx, number uint16, commit uint64) error {
	var lists [2][]int64
	s.mu.Lock()
	x := s.of(number)
	for i, used := range [2][]bool{x.results, x.entities} {
		lists[i] = []int64{}
		numbers(used, func(n uint32) {
			lists[i] = append(lists[i], int64(n))
			x.dirty[slot{n, i == 1}] = commit
		})
	}
	s.mu.Unlock()
	_, err := tx.Exec(ctx, sweepSQL, int16(number), s.turn, lists[0], lists[1])
	return err
}
