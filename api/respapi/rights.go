package respapi

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Rights are judged every judgeEvery, and a client goes after so many refusals in a row: within 5 s of its right, but
// not for one answer of a judge in trouble.
const (
	judgeEvery   = 2 * time.Second
	mostRefusals = 2
)

// credentials are by what a client came in: empty ones where it had to show none.
type credentials struct{ user, password string }

// open reports whether clients need not show who they are.
func (s *Server) open() bool { return s.cfg.Authenticate == nil || s.cfg.Authenticate("", "") }

// known reports whether the client has shown who it is.
func (c *conn) known() bool { return c.shown.Load() != nil }

// login takes a password, or a user and a password.
func (c *conn) login(words [][]byte) bool {
	who := credentials{"default", string(words[len(words)-1])}
	if len(words) == 2 {
		who.user = string(words[0])
	}
	check := c.s.cfg.Authenticate
	ok := check != nil && check(who.user, who.password) || check == nil && who.user == "default"
	if ok {
		c.shown.Store(&who)
	}
	return ok
}

// keepRights cuts the clients whose rights are taken.
func (s *Server) keepRights(ctx context.Context) {
	timer := s.cfg.Clock.NewTimer(judgeEvery)
	defer timer.Stop()
	var refused map[credentials]int
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		refused = s.judge(ctx, refused)
		timer.Reset(judgeEvery)
	}
}

// judge judges the credentials of all clients once. refused is how often in a row each was refused before.
func (s *Server) judge(ctx context.Context, refused map[credentials]int) map[credentials]int {
	clients := map[credentials][]*conn{}
	for _, c := range s.all() {
		if who := c.shown.Load(); who != nil {
			clients[*who] = append(clients[*who], c)
		}
	}
	now := map[credentials]int{}
	for who, list := range clients {
		if ctx.Err() != nil {
			return now
		}
		switch err := s.still(who); {
		case err == nil:
			continue
		case errkind.Is(err, errkind.Denied):
			now[who] = refused[who] + 1
		default: // nobody is cut for what is not known
			now[who] = refused[who]
			s.cfg.Log.Debug("the rights of a client of the cache cannot be judged now", "user", who.user, "error", err)
		}
		if now[who] < mostRefusals {
			continue
		}
		for _, c := range list {
			c.cut(who)
		}
	}
	return now
}

func (s *Server) still(who credentials) error {
	if s.cfg.Still != nil {
		return s.cfg.Still(who.user, who.password)
	}
	if !s.cfg.Authenticate(who.user, who.password) {
		return errkind.New(errkind.Denied, wrongPassword)
	}
	return nil
}

// cut ends a client, unless it has come in anew. What it has sent already is not done: it is a stranger again.
func (c *conn) cut(who credentials) {
	shown := c.shown.Load()
	if shown == nil || *shown != who || !c.shown.CompareAndSwap(shown, nil) {
		return
	}
	_ = c.net.Close() // whatever it is about
	c.s.cfg.Log.Info("a client of the cache is cut: its right was taken", "client", c.net.RemoteAddr(), "user", who.user)
}
