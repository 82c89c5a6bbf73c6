package pgstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
)

// The lock is a row with a holder and a time, by the database's clock, until which it holds. It has a connection of its
// own, so that renewals wait behind no record. Its number is the epoch of the term, which the fence row then has.
const (
	lockTTL   = 15 * time.Second // how long a holder that is gone keeps it
	lockRenew = 5 * time.Second
	lockTry   = time.Second     // how often the others look
	lockCall  = 4 * time.Second // bounds one statement of it, and connecting
)

// Locker is the lock of servers that share the store.
type Locker struct {
	url string
	id  string
	sql lockSQL

	mu   sync.Mutex // one statement at a time; guards conn
	conn *pgx.Conn
}

var _ storage.Lock = (*Locker)(nil)

type lockSQL struct{ create, first, take, renew, drop, holder string }

// Locker makes the lock's table where it is missing. id names this server.
func (s *Store) Locker(ctx context.Context, id string) (*Locker, error) {
	fill := strings.NewReplacer("{lock}", pgx.Identifier{s.cfg.Table + "_lock"}.Sanitize(), "{fence}",
		pgx.Identifier{s.cfg.Table + "_fence"}.Sanitize())
	l := &Locker{url: s.cfg.URL, id: id, sql: lockSQL{
		create: fill.Replace(`CREATE TABLE IF NOT EXISTS {lock} (id int PRIMARY KEY CHECK (id = 1), holder text NOT NULL, ` +
			`epoch bigint NOT NULL, until timestamptz NOT NULL)`),
		first: fill.Replace(`INSERT INTO {lock} VALUES (1, '', 0, '-infinity') ON CONFLICT DO NOTHING`),
		// A server that comes back takes its own lock at once: its former self is fenced by the epoch.
		take: fill.Replace(`UPDATE {lock} SET holder = $1, until = clock_timestamp() + $2::interval,
  epoch = GREATEST(epoch, (SELECT f.epoch FROM {fence} f WHERE f.id = 1)) + 1
WHERE id = 1 AND (until < clock_timestamp() OR holder = $1) RETURNING epoch`),
		renew: fill.Replace(`UPDATE {lock} SET until = clock_timestamp() + $3::interval WHERE id = 1 AND holder = $1 AND ` +
			`epoch = $2 RETURNING epoch`),
		drop: fill.Replace(
			`UPDATE {lock} SET holder = '', until = '-infinity' WHERE id = 1 AND holder = $1 AND epoch = $2`),
		holder: fill.Replace(`SELECT holder FROM {lock} WHERE id = 1 AND until >= clock_timestamp()`),
	}}
	todo := []string{l.sql.create, l.sql.first}
	if s.cfg.Made {
		todo = todo[1:]
	}
	for _, sql := range todo {
		if err := l.do(ctx, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, sql)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// do runs one statement on the lock's connection, which is made anew after an error.
func (l *Locker) do(ctx context.Context, f func(ctx context.Context, c *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, lockCall)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		conn, err := pgx.Connect(ctx, l.url)
		if err != nil {
			return errkind.E(errkind.Unavailable, "storage postgresql: lock", err)
		}
		l.conn = conn
	}
	err := f(ctx, l.conn)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		closing, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		_ = l.conn.Close(closing) // whatever it was: the next statement begins with a sound one
		l.conn = nil
		return errkind.E(errkind.Unavailable, "storage postgresql: lock", err)
	}
	return err
}

// Acquire implements storage.Lock.
func (l *Locker) Acquire(ctx context.Context) (storage.Leadership, error) {
	for {
		sent := time.Now() // before: what the database counts begins later
		var epoch int64
		err := l.do(ctx, func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, l.sql.take, l.id, lockTTL).Scan(&epoch)
		})
		if err == nil {
			return newLeadership(l, epoch, sent), nil
		}
		if !errors.Is(err, pgx.ErrNoRows) && ctx.Err() == nil {
			return nil, err
		}
		if !storage.Pause(ctx, nil, lockTry) {
			return nil, ctx.Err()
		}
	}
}

// Holder implements storage.Lock.
func (l *Locker) Holder(ctx context.Context) (string, error) {
	var id string
	err := l.do(ctx, func(ctx context.Context, c *pgx.Conn) error { return c.QueryRow(ctx, l.sql.holder).Scan(&id) })
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return id, err
}

// Close ends the lock's connection. What is held expires.
func (l *Locker) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := l.conn.Close(ctx)
	l.conn = nil
	return err
}

// leadership is a lock that is held and renewed.
type leadership struct {
	l     *Locker
	epoch int64
	until atomic.Int64 // nanoseconds since began up to which it surely holds
	began time.Time
	stop  chan struct{}
	once  sync.Once
	done  chan struct{}
}

// sure is how long after a renewal was sent nobody else can have the lock, with room for clocks that run at different
// rates.
const sure = lockTTL * 9 / 10

func newLeadership(l *Locker, epoch int64, sent time.Time) *leadership {
	r := &leadership{l: l, epoch: epoch, began: sent, stop: make(chan struct{}), done: make(chan struct{})}
	r.until.Store(int64(sure))
	go r.keep()
	return r
}

// keep renews until the lock is lost or given back.
func (r *leadership) keep() {
	defer close(r.done)
	ctx := context.Background()
	wait := lockRenew
	for storage.Pause(ctx, r.stop, wait) {
		sent := time.Since(r.began)
		var epoch int64
		err := r.l.do(ctx, func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, r.l.sql.renew, r.l.id, r.epoch, lockTTL).Scan(&epoch)
		})
		switch {
		case err == nil:
			r.until.Store(int64(sent + sure))
			wait = lockRenew
		case errors.Is(err, pgx.ErrNoRows): // somebody else has it
			r.until.Store(0)
			return
		case time.Since(r.began) >= time.Duration(r.until.Load()):
			return
		default:
			wait = lockTry
		}
	}
}

// Epoch implements storage.Leadership.
func (r *leadership) Epoch() storage.Epoch { return storage.Epoch(r.epoch) }

var errLockLost = errkind.New(errkind.NotLeader, "the lock in PostgreSQL was not renewed in time")

// Held implements storage.Leadership.
func (r *leadership) Held(context.Context) error {
	if time.Since(r.began) < time.Duration(r.until.Load()) {
		return nil
	}
	return errLockLost
}

// Done implements storage.Leadership.
func (r *leadership) Done() <-chan struct{} { return r.done }

// Release implements storage.Leadership.
func (r *leadership) Release(ctx context.Context) {
	r.once.Do(func() { close(r.stop) })
	<-r.done
	r.until.Store(0)
	// When it fails the lock expires.
	_ = r.l.do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, r.l.sql.drop, r.l.id, r.epoch)
		return err
	})
}
