package feed

import (
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// pollServers is how often the list of servers is looked at.
	pollServers = 2 * time.Second
	// avoidFor is for how long others are preferred to a server that hung or lagged.
	avoidFor = 15 * time.Second
	// settled is how long a connection has lived that is no part of a series of failures.
	settled = 10 * time.Second
	// calm is how long all connections have lived when a series of failures is forgotten.
	calm = time.Minute
	// maxPatience bounds how often Silence is doubled.
	maxPatience = 2
	// minBackoff is the first wait after a server could not be reached.
	minBackoff = 100 * time.Millisecond
)

func (c *Client) addressLocked(addr string) *address {
	a := c.addrs[addr]
	if a == nil {
		a = &address{}
		c.addrs[addr] = a
	}
	return a
}

// endedLocked remembers why a connection ended, for choosing the next server.
func (c *Client) endedLocked(cc *clientConn, reason string) {
	c.meters.reconnect(reason)
	now := c.cfg.Clock.Now()
	a := c.addressLocked(cc.dialled.addr)
	if !cc.welcomed || reason == "protocol" {
		wait := c.cfg.MaxBackoff
		if a.failures < 16 {
			wait = min(wait, minBackoff<<a.failures)
		}
		a.failures++
		a.notBefore = now.Add(jitter(wait))
	}
	switch reason {
	case "silent":
		if now.Sub(cc.began) < settled && c.seek.patience < maxPatience {
			c.seek.patience++
		}
		fallthrough
	case "lagging", "unanswered", "overflow":
		a.avoidUntil = now.Add(avoidFor)
	case "bye", "lost":
		a.avoidUntil = now.Add(c.cfg.Silence)
	}
}

// planLocked leaves connections that are no good, begins those that are missing, and
// returns when to look again.
func (c *Client) planLocked(now time.Time, servers []string) time.Time {
	c.serversLocked(now, servers)
	for _, cc := range slices.Clone(c.conns) {
		if reason := c.judgeLocked(cc, now); reason != "" {
			if reason == "silent" {
				c.meters.missed.Add(1)
			}
			cc.endLocked(reason)
		}
	}
	if len(c.conns) > 0 && !slices.ContainsFunc(c.conns, func(cc *clientConn) bool {
		return !cc.welcomed ||
			now.Sub(cc.began) < calm
	}) {
		c.seek.patience = 0
	}
	c.turnLocked(now)
	c.markLocked(now)
	c.handoverLocked()
	want, active := c.wantOf(c.seek.servers), 0
	for _, cc := range c.conns {
		if cc.dialled.replaces == nil {
			active++
		}
	}
	for ; active < want; active++ {
		addr, delay := c.pickLocked(now)
		if addr == "" || c.startLocked(addr, delay) == nil {
			break
		}
	}
	for i := len(c.conns) - 1; i >= 0 && active > want; i-- {
		if c.conns[i].dialled.replaces == nil {
			c.conns[i].endLocked("removed")
			active--
		}
	}
	c.moveLocked(now)
	c.retryLocked(now)
	return c.dueLocked(now)
}

// serversLocked takes the addresses of now, and decides whether to move to one that is new.
func (c *Client) serversLocked(now time.Time, servers []string) {
	if slices.Equal(servers, c.seek.servers) {
		return
	}
	first := len(c.seek.servers) == 0
	for _, addr := range servers {
		// Of all agents, as many move as the new server has to carry.
		if !first && !slices.Contains(c.seek.servers, addr) && rand.IntN(len(servers)) < c.wantOf(servers) &&
			c.connLocked(addr) == nil {
			c.seek.move.to, c.seek.move.at = addr, now.Add(jitter(c.cfg.RebalanceOver))
		}
	}
	c.seek.servers = slices.Clone(servers)
	for addr := range c.addrs {
		if !slices.Contains(servers, addr) {
			delete(c.addrs, addr)
		}
	}
}

func (c *Client) wantOf(servers []string) int {
	if c.cfg.Hedge {
		return min(2, len(servers))
	}
	return min(1, len(servers))
}

func (c *Client) connLocked(addr string) *clientConn {
	for _, cc := range c.conns {
		if cc.dialled.addr == addr {
			return cc
		}
	}
	return nil
}

// judgeLocked returns why a connection is to be left, or "".
func (c *Client) judgeLocked(cc *clientConn, now time.Time) string {
	if len(c.seek.servers) > 0 && !slices.Contains(c.seek.servers, cc.dialled.addr) {
		return "removed"
	}
	if cc.conn == nil || now.Before(c.seek.graceUntil) {
		return ""
	}
	silent := now.Sub(cc.heard) >= c.silence()
	if silent && unread(cc.conn) {
		silent, cc.heard = false, now // it spoke; this process has no time to listen, and a new connection would cost more
	}
	switch {
	case silent:
		return "silent"
	case cc.unanswered > 0 && now.Sub(cc.progress) >= c.cfg.AnswerTimeout:
		return "unanswered"
	case c.lagsLocked(cc, now) && (cc.dialled.replaces != nil || c.otherLocked(now)):
		return "lagging"
	}
	return ""
}

// silence is how long a connection may show nothing: longer after one that was left soon after it was
// made, since servers with too much to do are not helped by agents that come anew again and again.
func (c *Client) silence() time.Duration { return c.cfg.Silence << c.seek.patience }

// lagsLocked reports whether a server is known to know too little.
func (c *Client) lagsLocked(cc *clientConn, now time.Time) bool {
	if !cc.welcomed {
		return false
	}
	if cc.beat.lag >= c.cfg.LagLimit {
		return true
	}
	from := c.lag.markAt
	if cc.began.After(from) {
		from = cc.began
	}
	behind := cc.beat.known == 0 || cc.beat.known < c.lag.mark || (c.history.told && cc.past.spoke &&
		cc.past.generation != c.history.generation)
	return behind && now.Sub(from) >= c.cfg.LagLimit
}

// otherLocked reports whether there is a server to try that nothing speaks against.
func (c *Client) otherLocked(now time.Time) bool {
	for _, addr := range c.seek.servers {
		a := c.addrs[addr]
		if c.connLocked(addr) == nil && (a == nil || (now.After(a.avoidUntil) && now.After(a.notBefore))) {
			return true
		}
	}
	return false
}

// markLocked sets a new index for all to reach once they have the last one.
func (c *Client) markLocked(now time.Time) {
	if c.lag.known <= c.lag.mark {
		return
	}
	for _, cc := range c.conns {
		if cc.welcomed && (cc.beat.known < c.lag.mark || cc.past.generation != c.history.generation) {
			return
		}
	}
	c.lag.mark, c.lag.markAt = c.lag.known, now
}

// handoverLocked ends connections whose replacement has everything.
func (c *Client) handoverLocked() {
	for _, cc := range slices.Clone(c.conns) {
		switch {
		case cc.dialled.replaces == nil:
		case cc.dialled.replaces.ended:
			cc.dialled.replaces = nil
		case cc.completeLocked() && cc.beat.known >= c.lag.mark:
			cc.dialled.replaces.endLocked("rebalance")
			cc.dialled.replaces = nil
		}
	}
}

// moveLocked begins the connection to a new server that is to replace one of the others.
func (c *Client) moveLocked(now time.Time) {
	if c.seek.move.to == "" || now.Before(c.seek.move.at) {
		return
	}
	to := c.seek.move.to
	c.seek.move.to = ""
	// It may have hung, lagged or gone since it was chosen.
	if len(c.conns) == 0 || c.connLocked(to) != nil || !slices.Contains(c.seek.servers, to) ||
		now.Before(c.addressLocked(to).avoidUntil) {
		return
	}
	old := c.conns[rand.IntN(len(c.conns))]
	if cc := c.startLocked(to, 0); cc != nil {
		cc.dialled.replaces = old
	}
}

// pickLocked chooses a server that is not connected: one of those that nothing speaks
// against, else the one that may be tried first.
func (c *Client) pickLocked(now time.Time) (addr string, delay time.Duration) {
	var good, avoided []string
	var soonest *address
	for _, s := range c.seek.servers {
		if c.connLocked(s) != nil {
			continue
		}
		a := c.addressLocked(s)
		switch {
		case now.Before(a.notBefore):
			if soonest == nil || a.notBefore.Before(soonest.notBefore) {
				addr, soonest = s, a
			}
		case now.Before(a.avoidUntil):
			avoided = append(avoided, s)
		default:
			good = append(good, s)
		}
	}
	if len(good) == 0 {
		good = avoided
	}
	if len(good) > 0 {
		if c.history.told { // it was connected before: many others may have lost the same server
			delay = jitter(c.cfg.Jitter)
		}
		return good[rand.IntN(len(good))], delay
	}
	if soonest != nil {
		delay = soonest.notBefore.Sub(now)
	}
	return addr, delay
}

// retryLocked asks again for what was refused.
func (c *Client) retryLocked(now time.Time) {
	if c.seek.retryAt.IsZero() || now.Before(c.seek.retryAt) {
		return
	}
	c.seek.retryAt = time.Time{}
	for _, s := range c.subs {
		switch {
		case s.retryAt.IsZero():
		case now.Before(s.retryAt):
			if c.seek.retryAt.IsZero() || s.retryAt.Before(c.seek.retryAt) {
				c.seek.retryAt = s.retryAt
			}
		default:
			s.retryAt = time.Time{}
			for _, cc := range c.conns {
				cc.askLocked(s)
			}
		}
	}
}

// dueLocked is when something may have to be done next, unless a connection wakes us before.
func (c *Client) dueLocked(now time.Time) time.Time {
	due := now.Add(pollServers)
	earlier := func(t time.Time) {
		if t.Before(due) {
			due = t
		}
	}
	for _, cc := range c.conns {
		if cc.conn == nil {
			continue
		}
		if silent := cc.heard.Add(c.silence()); silent.After(c.seek.graceUntil) {
			earlier(silent)
		}
	}
	if now.Before(c.seek.graceUntil) {
		earlier(c.seek.graceUntil)
	}
	if c.seek.move.to != "" {
		earlier(c.seek.move.at)
	}
	if !c.seek.retryAt.IsZero() {
		earlier(c.seek.retryAt)
	}
	return due
}
