// Package pgevents keeps events in PostgreSQL, for all servers of a cluster.
//
// A commit is one statement: upserts from arrays, whatever it holds. It counts only for shards whose row has the
// writer's epoch and turn, which is compared within the statement: a server that lost a shard, or a statement that
// got lost and comes late, changes nothing. A server writes the shards that it owns; those that it follows are their
// owners' to write.
//
// The owner's memory is the truth. While PostgreSQL does not answer nothing queues but the numbers of what changed:
// once it is back they are asked for again (Refresh), and the newest of each is written. So that needs no bound and
// no order. Entries of the history do wait, as many as Config.Waiting; what is beyond it is lost and counted. They
// are written by whoever took the results, also when the shard is another server's since: that one knows the state,
// not the way there.
//
// A Commit waits for PostgreSQL at most Config.Patience, and not at all while it is known to be gone.
package pgevents

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor/eventstore"
)

// Config of a store. Zero values mean the defaults that are named.
type Config struct {
	// DSN is a connection string as libpq takes it, or a URL. Never logged: it may hold a password.
	DSN string
	// Self is this server's id.
	Self string
	// Owner tells the epoch of a shard that this server owns. Nil is that of all, with epoch 1.
	Owner func(shard uint16) (epoch uint64, owned bool)
	// Settled tells whether it is known which server has which shard: what could not be read at the start is read then.
	// Nil is always.
	Settled func() bool
	// Timeout (10 s) bounds each statement, and connecting; LoadTime (5 min) reading everything at the start.
	Timeout, LoadTime time.Duration
	// Patience (2 s) is how long a commit waits for its statement.
	Patience time.Duration
	// Retention (7 days) is how long the history is kept, by whole days.
	Retention time.Duration
	// Waiting (50000) is how many entries of the history may wait.
	Waiting int
	// WaitingBytes (64 MiB) is how much memory the outputs of these may take.
	WaitingBytes int
	// Conns (4) is how many connections are open at most.
	Conns int
	Log   *slog.Logger
	Now   func() time.Time
}

func (c *Config) complete() (*pgxpool.Config, error) {
	for _, d := range []struct {
		to  *time.Duration
		def time.Duration
	}{{&c.Timeout, 10 * time.Second}, {&c.LoadTime, 5 * time.Minute}, {&c.Patience, 2 * time.Second},
		{&c.Retention, 7 * day}} {
		if *d.to == 0 {
			*d.to = d.def
		}
	}
	if c.Waiting == 0 {
		c.Waiting = 50000
	}
	if c.WaitingBytes == 0 {
		c.WaitingBytes = 64 << 20
	}
	if c.Conns == 0 {
		c.Conns = 4
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Owner == nil {
		c.Owner = func(uint16) (uint64, bool) { return 1, true }
	}
	settings, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "dsn", err) // pgx leaves the password out
	}
	settings.MaxConns = int32(c.Conns)
	settings.ConnConfig.ConnectTimeout = c.Timeout
	for key, value := range map[string]string{"application_name": "corbel events", "statement_timeout": millis(c.Timeout),
		"lock_timeout": millis(c.Timeout / 2)} {
		if _, given := settings.ConnConfig.RuntimeParams[key]; !given {
			settings.ConnConfig.RuntimeParams[key] = value
		}
	}
	return settings, nil
}

// CheckDSN says what is wrong with a connection string; what it holds is not repeated.
func CheckDSN(dsn string) error {
	_, err := (&Config{DSN: dsn}).complete()
	return err
}

// shard is what is known of one.
type shard struct {
	results, entities []bool          // numbers in use
	dirty             map[slot]uint64 // not durable, with the number of the commit that changed it
	dead              map[slot]bool   // of those, such as are to be deleted
	fenced            time.Time       // when it was found to be another server's
	epoch             uint64          // under which it was claimed; 0 is not
	turn              int64           // likewise
	alien             bool            // the table has it with numbers that are not ours
	until             uint64          // the newest sequence that was committed
	durable           uint64          // the newest that PostgreSQL has, where nothing is dirty
}

// Store is the event store.
type Store struct {
	cfg        Config
	pool       *pgxpool.Pool
	durability string
	jobs       chan *job
	lifetime

	writing

	mu      sync.Mutex
	shards  map[uint16]*shard
	commits uint64
	stats   Stats
	busy    bool
	down    error // why nothing can be written
	history
	changes uint64
}

// lifetime is how a store ends.
type lifetime struct {
	ended chan struct{}
	stop  context.CancelFunc
	once  sync.Once
}

// writing is the writer's alone.
type writing struct {
	turn int64          // the writer's alone, and
	days map[int64]bool // which have partitions
	// late gives what the tables hold to whoever opened the store when they could not be read; nil once it has. The
	// writer's, after Open.
	late func(context.Context, func(eventstore.Loaded) error) error
}

// history is what goes to the history; the store's lock guards it.
type history struct {
	waiting  []run // entries of the history, the oldest first
	telling  int   // entries that a statement under way has
	loggedAt time.Time
	lostSeen uint64 // of Stats.HistoryLost, what was logged
}

// Stats counts since the start.
type Stats struct {
	Statements uint64 // that were written
	// changes that were not written with their commit, and are written as they are later, newest per
	// check
	Deferred    uint64
	HistoryLost uint64 // entries of the history
	Fenced      uint64 // shards that were not written, since they are another server's
	Failures    uint64 // statements whose outcome is an error or unknown
	Dirty       int    // checks and entities that are not durable as they are
	Waiting     int    // entries of the history that PostgreSQL does not have, as far as is known
}

var (
	_ eventstore.Store     = (*Store)(nil)
	_ eventstore.Lagging   = (*Store)(nil)
	_ eventstore.Historian = (*Store)(nil)
)

// Open connects, brings the tables to this program's version, and gives what they hold to l. While PostgreSQL is away
// it opens all the same where l takes that late.
func Open(ctx context.Context, cfg Config, l eventstore.Loaded) (*Store, error) {
	settings, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "postgresql", err)
	}
	s := &Store{cfg: cfg, pool: pool, jobs: make(chan *job, 1), lifetime: lifetime{ended: make(chan struct{})},
		writing: writing{days: map[int64]bool{}},
		shards:  map[uint16]*shard{}}
	if err := s.open(ctx, l); err != nil && l.Late != nil && away(err) {
		s.late, s.down, s.durability = l.Late, errkind.E(errkind.Unavailable, "postgresql", err),
			"not known yet: PostgreSQL was away at the start"
		cfg.Log.Error("PostgreSQL is down: starting without its events, loading them once it is back", "error", err)
	} else if err != nil {
		pool.Close()
		if errkind.Of(err) == errkind.Internal {
			err = errkind.E(errkind.Unavailable, "postgresql", err)
		}
		return nil, err
	}
	running, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.write(running)
	return s, nil
}

func (s *Store) open(ctx context.Context, l eventstore.Loaded) error {
	quick, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	for _, step := range []func(context.Context) error{s.look, s.migrate, s.begin, s.retain} {
		if err := step(quick); err != nil {
			return &early{err}
		}
	}
	slow, done := context.WithTimeout(ctx, s.cfg.LoadTime)
	defer done()
	return s.load(slow, l)
}

// begin ends what a former life of this server may still have under way.
func (s *Store) begin(ctx context.Context) error {
	return s.pool.QueryRow(ctx,
		`WITH mine AS (SELECT nextval('corbel_event_turns') AS turn), gone AS (UPDATE corbel_event_shards SET turn = mine.turn FROM mine WHERE owner = $1)
SELECT turn FROM mine`, s.cfg.Self).Scan(&s.turn)
}

// of returns a shard. The lock is held.
func (s *Store) of(number uint16) *shard {
	x := s.shards[number]
	if x == nil {
		x = &shard{dirty: map[slot]uint64{}, dead: map[slot]bool{}}
		s.shards[number] = x
	}
	return x
}

// forget drops what was to be written: it is another server's to write.
func (x *shard) forget() {
	clear(x.dirty)
	clear(x.dead)
	x.epoch, x.durable = 0, x.until
}

func (x *shard) use(k slot, used bool) {
	list := &x.results
	if k.entity {
		list = &x.entities
	}
	for int(k.n) >= len(*list) {
		*list = append(*list, false)
	}
	(*list)[k.n] = used
}

func (x *shard) used(k slot) bool {
	list := x.results
	if k.entity {
		list = x.entities
	}
	return int(k.n) < len(list) && list[k.n]
}

// fencedPause is how long a shard rests that is another server's in the table, and this server's as far as it knows.
const fencedPause = time.Second

// Refresh returns what is not durable, as far as this server owns it and PostgreSQL answers.
func (s *Store) Refresh(most int) (results, entities []eventstore.Number) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil || s.busy {
		return nil, nil
	}
	for number, x := range s.shards {
		if len(x.dirty) == 0 {
			continue
		}
		if _, owned := s.cfg.Owner(number); !owned {
			x.forget()
			continue
		}
		if time.Since(x.fenced) < fencedPause {
			continue
		}
		for k := range x.dirty {
			if most == 0 {
				return results, entities
			}
			switch {
			case !x.used(k):
				continue // the next commit deletes it
			case k.entity:
				entities = append(entities, eventstore.NumberOf(number, k.n))
			default:
				results = append(results, eventstore.NumberOf(number, k.n))
			}
			most--
		}
	}
	return results, entities
}

// Behind implements eventstore.Lagging.
func (s *Store) Behind(number uint16) (durable uint64, behind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.shards[number]
	if x == nil || len(x.dirty) == 0 {
		return 0, false
	}
	return x.durable, true
}

// Info implements eventstore.Store. Of what is on disk only PostgreSQL knows.
func (s *Store) Info() eventstore.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return eventstore.Info{Type: "postgresql", Durability: s.durability, Commits: s.stats.Statements, Changes: s.changes}
}

// Stats returns the counts.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Waiting = len(s.waiting) + s.telling
	for _, x := range s.shards {
		st.Dirty += len(x.dirty)
	}
	return st
}

// Healthy says why nothing can be written at the moment; nil is healthy.
func (s *Store) Healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

var errClosed = errors.New("the store is closed")

// Close ends what is under way, and the connections.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		if s.down == nil {
			s.down = errClosed
		}
		s.mu.Unlock()
		close(s.jobs)
		s.stop()
		<-s.ended
		if st := s.Stats(); st.Dirty > 0 || st.Waiting > 0 {
			s.cfg.Log.Error("stopping before PostgreSQL has everything", "checks_and_entities", st.Dirty, "history_entries",
				st.Waiting)
		}
		s.pool.Close()
	})
	return nil
}
