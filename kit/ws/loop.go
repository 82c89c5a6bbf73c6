package ws

import (
	"context"
	"net"
	"sync"
	"time"
)

// Link is what a Handler's connection is sent messages by.
type Link interface {
	// Send sends a message without waiting. An error is the end of the connection.
	Send(Message) error
	// CloseWith tells the peer why, and closes. It may take a second.
	CloseWith(code int, text string) error
}

// Handler is what a connection of a Loop is for. Its methods are called one at a time: Begin, then Message for each
// message, and Ended once, last.
type Handler interface {
	// Begin is called before anything is read. An error ends the connection.
	Begin(Link) error
	// Message takes a message, which is the loop's again afterwards. It may wait as long as ctx lets it: then nothing
	// more is read of its connection, and others are not held up. An error ends the connection.
	Message(ctx context.Context, message []byte) error
	// Ended is told how the connection ended, as Conn.Read tells it.
	Ended(error)
}

// LoopConfig is what a Loop is made of.
type LoopConfig struct {
	Limits Limits
	// Take is how long a Message may wait (30 s).
	Take time.Duration
	// Workers is how many messages are taken at once, beside those that wait (twice the processors).
	Workers int
}

// Loop reads connections, on all of which little comes. On Linux and without TLS a connection that waits has neither
// a goroutine nor a buffer nor a timer nor Go's own network descriptor: one epoll instance, which the runtime's
// poller waits on, says which are to be read, and a few workers read them. A Message that waits (it asks its context
// for Done or Deadline) makes room for another worker, so there are never more than there are connections of which
// messages are taken. Elsewhere each connection has a goroutine.
type Loop struct {
	cfg    LoopConfig
	poller poller

	mu      sync.Mutex
	ended   bool
	readers sync.WaitGroup // of connections with a goroutine
	all     map[*Conn]struct{}
}

// NewLoop makes a loop. Run must be called.
func NewLoop(cfg LoopConfig) (*Loop, error) {
	cfg.Limits = cfg.Limits.orDefaults()
	if cfg.Take == 0 {
		cfg.Take = 30 * time.Second
	}
	l := &Loop{cfg: cfg, all: map[*Conn]struct{}{}}
	return l, l.poller.open(&l.cfg)
}

// Run reads until ctx ends, then closes what is still connected and returns when every Handler was told.
func (l *Loop) Run(ctx context.Context) error {
	err := l.poller.run(ctx)
	l.mu.Lock()
	l.ended = true
	for c := range l.all {
		_ = c.nc.Close() // its reader sees it
	}
	l.mu.Unlock()
	l.readers.Wait()
	return err
}

// Serve has the loop read c, which nothing was read of yet. The loop owns c from now on. Limits are the loop's own.
func (l *Loop) Serve(c *Conn, h Handler) {
	if l.poller.takes(c) {
		if err := l.poller.serve(c, h); err != nil {
			_ = c.nc.Close()
			h.Ended(err)
		}
		return
	}
	c.limits = &l.cfg.Limits
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		_ = c.nc.Close()
		h.Ended(net.ErrClosed)
		return
	}
	l.all[c] = struct{}{}
	l.readers.Go(func() {
		err := l.read(c, h)
		c.giveBack()
		_ = c.Close()
		l.mu.Lock()
		delete(l.all, c)
		l.mu.Unlock()
		h.Ended(err)
	})
	l.mu.Unlock()
}

// keepBytes is how large a buffer may be that a connection with a goroutine keeps between messages.
const keepBytes = 1 << 10

func (l *Loop) read(c *Conn, h Handler) error {
	if err := h.Begin(c); err != nil {
		return err
	}
	var in []byte
	p := newPatience(l.cfg.Take, nil)
	for {
		var err error
		if in, err = c.Read(in[:0]); err != nil {
			return err
		}
		err = h.Message(p, in)
		if p = p.after(); err != nil {
			return err
		}
		if cap(in) > keepBytes {
			in = nil
		}
	}
}

// patience is the context of a Message. Its timer and its channel are made when somebody asks for them, which most
// messages never do.
type patience struct {
	take  time.Duration
	waits func(bool) // told when somebody waits, and when it is over; nil is nobody

	mu    sync.Mutex
	done  chan struct{}
	until time.Time
	timer *time.Timer
	over  error
}

func newPatience(take time.Duration, waits func(bool)) *patience {
	return &patience{take: take, waits: waits}
}

// Done implements context.Context.
func (p *patience) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done, p.until = make(chan struct{}), time.Now().Add(p.take)
		p.timer = time.AfterFunc(p.take, func() { p.end(context.DeadlineExceeded) })
		if p.waits != nil {
			p.waits(true)
		}
	}
	return p.done
}

func (p *patience) end(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over == nil {
		p.over = why
		close(p.done)
	}
}

// after ends it with its message, and returns the one of the next: itself where nobody asked, since others may hold
// on to it.
func (p *patience) after() *patience {
	p.mu.Lock()
	asked := p.done != nil
	p.mu.Unlock()
	if !asked {
		return p
	}
	p.timer.Stop()
	p.end(context.Canceled)
	if p.waits != nil {
		p.waits(false)
	}
	return newPatience(p.take, p.waits)
}

// Err implements context.Context.
func (p *patience) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// Deadline implements context.Context. Who asks is about to wait.
func (p *patience) Deadline() (time.Time, bool) {
	p.Done()
	return p.until, true
}

// Value implements context.Context.
func (p *patience) Value(any) any { return nil }
