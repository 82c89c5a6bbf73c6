package database

import (
	"context"
	"errors"
	"sync"
	"time"

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
	session
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
		cfg.TLSKey == o.TLSKey && cfg.place == o.place
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
	return l.session.close(ctx)
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
	return cfg.kind().judged(cfg.Name, err)
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
		if (p.cfg.Lifetime == 0 || time.Since(l.made) < p.cfg.Lifetime) && l.ping(ctx) == nil {
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
		s, again, err := p.cfg.kind().connect(ctx, &p.cfg, password)
		if err == nil {
			return &link{session: s, password: password, made: time.Now()}, nil
		}
		last = err
		if !again {
			break // not the password's fault
		}
	}
	return nil, p.cfg.kind().judged(p.cfg.Name, last)
}

func (p *pool) give(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := p.cfg.Idle
	if most == 0 {
		most = p.cfg.Open
	}
	if p.gone || !l.clean() || len(p.idle) >= most {
		_ = l.close()
		return
	}
	l.since = time.Now()
	p.idle = append(p.idle, l)
}
