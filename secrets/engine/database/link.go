package database

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"corbel.dev/corbel/kit/errkind"
)

const (
	connectWithin = 10 * time.Second
	workWithin    = 30 * time.Second
	idleFor       = 30 * time.Second
)

// links are the connections of a mount: a bounded number of each database, kept for a while.
type links struct {
	mu    sync.Mutex
	pools map[string]*pool // by the name of the configuration
}

type pool struct {
	cfg   config
	slots chan struct{} // held by who uses a connection
	mu    sync.Mutex
	idle  []*link
	gone  bool
}

// link is one connection.
type link struct {
	conn     *pgx.Conn
	password string // that it was opened with
	made     time.Time
	since    time.Time // idle
}

func (s *links) pool(cfg *config) *pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[cfg.Name]
	if p != nil && p.cfg.same(cfg) {
		return p
	}
	if p != nil {
		_ = p.close() // nobody waits for them
	}
	if s.pools == nil {
		s.pools = map[string]*pool{}
	}
	p = &pool{cfg: *cfg, slots: make(chan struct{}, cfg.Open)}
	s.pools[cfg.Name] = p
	return p
}

// same reports whether connections for one configuration do for the other.
func (cfg *config) same(o *config) bool {
	return cfg.URL == o.URL && cfg.User == o.User && cfg.Password == o.Password && cfg.Pending == o.Pending &&
		cfg.Open == o.Open && cfg.Idle == o.Idle &&
		cfg.Lifetime == o.Lifetime && cfg.Raw == o.Raw && cfg.TLSCA == o.TLSCA && cfg.TLSCert == o.TLSCert &&
		cfg.TLSKey == o.TLSKey
}

// take takes a configuration's connections away, nil where there are none. Its caller closes them.
func (s *links) take(name string) *pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[name]
	delete(s.pools, name)
	return p
}

// sweep closes connections that were idle for long.
func (s *links) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pools {
		p.mu.Lock()
		var stay []*link
		for _, l := range p.idle {
			if now.Sub(l.since) < idleFor {
				stay = append(stay, l)
			} else {
				_ = l.close()
			}
		}
		p.idle = stay
		p.mu.Unlock()
	}
}

func (p *pool) close() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for _, l := range p.idle {
		err = errors.Join(err, l.close())
	}
	p.idle = nil
	return err
}

// close closes the connection; it goes either way.
func (l *link) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return l.conn.Close(ctx)
}

// do lets work be done on a connection. An error of kind Unavailable says that the database cannot be
// reached, Invalid that it refused.
func (s *links) do(ctx context.Context, cfg *config, work func(ctx context.Context, l *link) error) error {
	p := s.pool(cfg)
	ctx, cancel := context.WithTimeout(ctx, workWithin)
	defer cancel()
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return errkind.Errorf(errkind.Unavailable, "the database %s: all %d connections are in use", cfg.Name, cfg.Open)
	}
	defer func() { <-p.slots }()
	l, err := p.take(ctx)
	if err != nil {
		return err
	}
	err = work(ctx, l)
	p.give(l)
	return judged(cfg.Name, err)
}

func (p *pool) take(ctx context.Context) (*link, error) {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return p.connect(ctx)
		}
		l := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if (p.cfg.Lifetime == 0 || time.Since(l.made) < p.cfg.Lifetime) && l.conn.Ping(ctx) == nil {
			return l, nil
		}
		_ = l.close()
	}
}

// connect tries the password, and one that may have been set.
func (p *pool) connect(ctx context.Context) (*link, error) {
	var last error
	for _, password := range []string{p.cfg.Password, p.cfg.Pending} {
		if last != nil && password == "" {
			break
		}
		pc, err := p.cfg.connection(password)
		if err != nil {
			return nil, err
		}
		conn, err := pgx.ConnectConfig(ctx, pc)
		if err == nil {
			return &link{conn: conn, password: password, made: time.Now()}, nil
		}
		last = err
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || !strings.HasPrefix(refused.Code, "28") {
			break // not the password's fault
		}
	}
	return nil, judged(p.cfg.Name, last)
}

func (p *pool) give(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := p.cfg.Idle
	if most == 0 {
		most = p.cfg.Open
	}
	if p.gone || l.conn.IsClosed() || l.conn.PgConn().TxStatus() != 'I' || len(p.idle) >= most {
		_ = l.close()
		return
	}
	l.since = time.Now()
	p.idle = append(p.idle, l)
}

// judged gives an error its kind, without what may show a password.
func judged(name string, err error) error {
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && (strings.HasPrefix(refused.Code, "57") || strings.HasPrefix(refused.Code, "53")):
		return errkind.Errorf(errkind.Unavailable, "the database %s: %s", name, refused.Message)
	case errors.As(err, &refused):
		return errkind.Errorf(errkind.Invalid, "the database %s refused (SQLSTATE %s): %s", name, refused.Code,
			refused.Message)
	case errkind.Of(err) != errkind.Internal:
		return err
	}
	return errkind.Errorf(errkind.Unavailable, "the database %s cannot be reached", name)
}

// values are what statements hold places for.
type values struct {
	user, password string
	until          time.Time
}

// expand fills the places of a statement. What would end a quotation is refused, not escaped: whether a
// place stands in quotes, and in which, is the statement's to say.
func (v values) expand(statement string) (string, error) {
	for _, text := range []string{v.user, v.password} {
		if strings.ContainsAny(text, unfit) {
			return "", invalid("a name or password with quotes, backslashes, semicolons or line ends cannot stand in statements")
		}
	}
	until := "infinity"
	if !v.until.IsZero() {
		until = v.until.UTC().Format("2006-01-02 15:04:05-0700")
	}
	return strings.NewReplacer("{{name}}", v.user, "{{username}}", v.user, "{{password}}", v.password, "{{expiration}}",
		until).Replace(statement), nil
}

// run executes statements as one transaction.
func (l *link) run(ctx context.Context, list []string, v values) error {
	tx, err := l.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a commit there is nothing to take back
	for _, one := range list {
		text, err := v.expand(one)
		if err != nil {
			return err
		}
		if _, err := l.conn.PgConn().Exec(ctx, text).ReadAll(); err != nil {
			return v.silent(err)
		}
	}
	return tx.Commit(ctx)
}

// silent takes the password out of an error.
func (v values) silent(err error) error {
	var refused *pgconn.PgError
	if v.password != "" && errors.As(err, &refused) && strings.Contains(refused.Message, v.password) {
		own := *refused
		own.Message = strings.ReplaceAll(own.Message, v.password, "*****")
		return &own
	}
	return err
}

func (l *link) exists(ctx context.Context, user string) (is bool, err error) {
	err = l.conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)", user).Scan(&is)
	return is, err
}

// drop takes back what the role was given in this database, and drops it.
func (l *link) drop(ctx context.Context, user string) error {
	tx, err := l.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a commit there is nothing to take back
	rows, err := tx.Query(ctx, "SELECT DISTINCT table_schema FROM information_schema.role_table_grants WHERE grantee = "+
		"$1 UNION SELECT 'public'", user)
	if err != nil {
		return err
	}
	schemas, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	who := pgx.Identifier{user}.Sanitize()
	var list []string
	for _, s := range schemas {
		in := pgx.Identifier{s}.Sanitize()
		for _, what := range []string{"TABLES", "SEQUENCES", "FUNCTIONS"} {
			list = append(list, fmt.Sprintf("REVOKE ALL PRIVILEGES ON ALL %s IN SCHEMA %s FROM %s", what, in, who))
		}
		list = append(list, fmt.Sprintf("REVOKE ALL ON SCHEMA %s FROM %s", in, who))
	}
	list = append(list, fmt.Sprintf("REVOKE ALL ON DATABASE %s FROM %s",
		pgx.Identifier{l.conn.Config().Database}.Sanitize(), who), "DROP ROLE IF EXISTS "+who)
	for _, text := range list {
		if _, err := tx.Exec(ctx, text); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}
