package roundrobin

import (
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// The RPCs. Requests are one record each, so that a later version may append fields.
const (
	methodTell  = "monitor.rounds.tell"  // to the leader: who joined and left; answered by whether all is to be told
	methodBegin = "monitor.rounds.begin" // by a leader: what was noted?
	methodNote  = "monitor.rounds.note"  // by a leader: note these
	methodHand  = "monitor.rounds.hand"  // by a leader: send these; answered by who could not be reached
)

// message is what passes its fields.
type message interface{ pass(c *pack.Coder) }

func encode(m message) []byte { return pack.AppendRecord(nil, m.pass) }

// decode reads a message of a method.
func decode(method string, b []byte, m message) error {
	r := pack.Read(b)
	pack.ReadRecord(r, m.pass)
	if r.Err() != nil {
		return errkind.Errorf(errkind.Invalid, "%s: a damaged message", method)
	}
	return nil
}

func (t *told) pass(c *pack.Coder) {
	c.String(&t.server)
	pack.Unsigned(c, &t.boot, &t.seq)
	c.Bool(&t.full)
	names := map[string]string{} // namespaces and subscriptions come again and again
	pack.List(c, &t.changes, pack.Any, func(x *change) {
		c.String(&x.Namespace, &x.Subscription, &x.agent)
		if c.Reads() {
			x.Namespace, x.Subscription = interned(names, x.Namespace), interned(names, x.Subscription)
		}
		pack.Signed(c, &x.since)
	})
}

func interned(names map[string]string, s string) string {
	if have, ok := names[s]; ok {
		return have
	}
	names[s] = s
	return s
}

func (b *ballot) pass(c *pack.Coder) {
	pack.Unsigned(c, &b.n)
	c.String(&b.server)
}

func passNotes(c *pack.Coder, notes *[]note) {
	pack.List(c, notes, pack.Any, func(n *note) {
		c.String(&n.namespace, &n.check)
		pack.Signed(c, &n.due)
		c.String(&n.by)
	})
}

// noting asks a server to note.
type noting struct {
	with  ballot
	notes []note
}

func (n *noting) pass(c *pack.Coder) {
	n.with.pass(c)
	passNotes(c, &n.notes)
}

// promise answers a leader that begins.
type promise struct {
	ok       bool
	promised ballot        // the greatest
	runs     time.Duration // how long the server has been running
	noted    []note
}

func (p *promise) pass(c *pack.Coder) {
	c.Bool(&p.ok)
	p.promised.pass(c)
	pack.Signed(c, &p.runs)
	passNotes(c, &p.noted)
}

// hands is what a server is to send.
type hands []*Hand

func (l *hands) pass(c *pack.Coder) {
	pack.List(c, (*[]*Hand)(l), pack.Any, func(p **Hand) {
		if c.Reads() {
			*p = &Hand{}
		}
		h := *p
		c.String(&h.Namespace, &h.Check)
		pack.Signed(c, &h.Due)
		pack.Signed(c, &h.Over)
		passProxies(c, &h.Total)
		pack.List(c, &h.Shares, pack.Any, func(s *Share) {
			c.String(&s.Subscription, &s.Agent)
			pack.List(c, &s.Proxies, pack.Any, func(proxy *Proxy) {
				passProxies(c, &proxy.Place)
				c.String(&proxy.Name)
			})
		})
	})
}

// maxProxies is more than the proxies of any tick.
const maxProxies = 1 << 30

// passProxies passes a number of proxies.
func passProxies(c *pack.Coder, n *int) {
	number := uint64(*n)
	pack.Unsigned(c, &number)
	if c.Reads() {
		*n = int(min(number, maxProxies))
	}
}

// refused answers hands: of each, who could not be reached.
type refused [][]string

func (l *refused) pass(c *pack.Coder) {
	pack.List(c, (*[][]string)(l), pack.Any, func(agents *[]string) { c.Strings(agents) })
}
