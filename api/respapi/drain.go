package respapi

import (
	"maps"
	"slices"
	"time"
)

const pushDraining = ">2\r\n$11\r\nmaintenance\r\n$8\r\ndraining\r\n"

// Drain has the maintenance key exist, and tells the clients that can be told. They are served on.
func (s *Server) Drain() {
	if s.draining.Swap(true) {
		return
	}
	for _, c := range s.all() {
		c.tell()
	}
}

func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// tell sends the push between two answers: at once, or when the answer under way has ended.
func (c *conn) tell() {
	c.send.push.Store(true)
	if !c.send.mu.TryLock() {
		return // whoever has the lock looks again when it has let go
	}
	defer c.send.mu.Unlock()
	if c.send.partial || !c.send.third || !c.send.push.Swap(false) {
		return
	}
	if c.write([]byte(pushDraining), pushPatience) != nil {
		_ = c.net.Close() // it has not read for long, or is gone
	}
}

// pushPatience is short: these few bytes wait only when the client has let everything fill up.
const pushPatience = 100 * time.Millisecond

// Undo ends a drain: the maintenance key is gone.
func (s *Server) Undo() {
	s.draining.Store(false)
	for _, c := range s.all() {
		c.seen.knows.Store(false)
	}
}

// Waiter is a client that a drain waits for.
type Waiter struct {
	Addr string        `json:"addr"`
	Name string        `json:"name,omitempty"`
	Idle time.Duration `json:"-"`
	Why  string        `json:"why"`
}

// Waiting are the clients that a drain waits for: those that said something lately, other than a health check does, and
// health checkers that have not seen the maintenance key yet.
func (s *Server) Waiting() (list []Waiter) {
	now := s.cfg.Clock.Now()
	for _, c := range s.all() {
		w := Waiter{Addr: c.net.RemoteAddr().String(), Idle: now.Sub(time.Unix(0, c.seen.busy.Load()))}
		if told := c.told.Load(); told != nil {
			w.Name = *told
		}
		switch {
		case w.Idle < s.cfg.IdleAfter:
			w.Why = "it still sends commands"
		case s.draining.Load() && c.seen.checks.Load() && !c.seen.knows.Load():
			w.Why = "it checks the health, and has not seen the maintenance key yet"
		default:
			continue
		}
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b Waiter) int { return int(a.Idle - b.Idle) })
	return list
}
