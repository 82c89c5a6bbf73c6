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

// maxList bounds what lists are made for before their entries were read.
const maxList = 1 << 12

func record(fill func(b []byte) []byte) []byte {
	b, mark := pack.Begin(nil)
	return pack.End(fill(b), mark)
}

// read reads a record of a method.
func read(method string, b []byte, fields func(r *pack.Reader)) error {
	outer := pack.Read(b)
	r := outer.Record()
	fields(r)
	if r.Err() != nil || outer.Err() != nil {
		return errkind.Errorf(errkind.Invalid, "%s: a damaged message", method)
	}
	return nil
}

func list[T any](r *pack.Reader, one func() T) (out []T) {
	n := r.Count()
	out = make([]T, 0, min(n, maxList))
	for ; n > 0 && r.Err() == nil; n-- {
		out = append(out, one())
	}
	return out
}

func (t *told) encode() []byte {
	return record(func(b []byte) []byte {
		b = pack.Bool(pack.Uint(pack.Uint(pack.String(b, t.server), t.boot), t.seq), t.full)
		b = pack.Uint(b, uint64(len(t.changes)))
		for _, c := range t.changes {
			b = pack.Int(pack.String(pack.String(pack.String(b, c.Namespace), c.Subscription), c.agent), c.since)
		}
		return b
	})
}

func decodeTold(b []byte) (t *told, err error) {
	t = new(told)
	names := map[string]string{} // namespaces and subscriptions come again and again
	interned := func(s string) string {
		if have, ok := names[s]; ok {
			return have
		}
		names[s] = s
		return s
	}
	err = read(methodTell, b, func(r *pack.Reader) {
		t.server, t.boot, t.seq, t.full = r.String(), r.Uint(), r.Uint(), r.Bool()
		t.changes = list(r, func() change {
			return change{Ring{interned(r.String()), interned(r.String())}, r.String(), r.Int()}
		})
	})
	return t, err
}

func appendBallot(b []byte, x ballot) []byte { return pack.String(pack.Uint(b, x.n), x.server) }

func readBallot(r *pack.Reader) ballot { return ballot{r.Uint(), r.String()} }

func appendNotes(b []byte, notes []note) []byte {
	b = pack.Uint(b, uint64(len(notes)))
	for _, n := range notes {
		b = pack.String(pack.Int(pack.String(pack.String(b, n.namespace), n.check), n.due), n.by)
	}
	return b
}

func readNotes(r *pack.Reader) []note {
	return list(r, func() note { return note{name{r.String(), r.String()}, r.Int(), r.String()} })
}

// promise answers a leader that begins.
type promise struct {
	ok       bool
	promised ballot        // the greatest
	runs     time.Duration // how long the server has been running
	noted    []note
}

func (p *promise) encode() []byte {
	return record(func(b []byte) []byte {
		return appendNotes(pack.Int(appendBallot(pack.Bool(b, p.ok), p.promised), int64(p.runs)), p.noted)
	})
}

func decodePromise(b []byte) (p promise, err error) {
	err = read(methodBegin, b, func(r *pack.Reader) {
		p.ok, p.promised, p.runs = r.Bool(), readBallot(r), time.Duration(r.Int())
		p.noted = readNotes(r)
	})
	return p, err
}

func encodeHands(hands []*Hand) []byte {
	return record(func(b []byte) []byte {
		b = pack.Uint(b, uint64(len(hands)))
		for _, h := range hands {
			b = pack.Int(pack.Int(pack.String(pack.String(b, h.Namespace), h.Check), h.Due), int64(h.Over))
			b = pack.Uint(pack.Uint(b, uint64(h.Total)), uint64(len(h.Shares)))
			for _, s := range h.Shares {
				b = pack.Uint(pack.String(pack.String(b, s.Subscription), s.Agent), uint64(len(s.Proxies)))
				for _, p := range s.Proxies {
					b = pack.String(pack.Uint(b, uint64(p.Place)), p.Name)
				}
			}
		}
		return b
	})
}

// maxProxies is more than the proxies of any tick.
const maxProxies = 1 << 30

func decodeHands(b []byte) (hands []*Hand, err error) {
	number := func(r *pack.Reader) int { return int(min(r.Uint(), maxProxies)) }
	err = read(methodHand, b, func(r *pack.Reader) {
		hands = list(r, func() *Hand {
			h := &Hand{Namespace: r.String(), Check: r.String(), Due: r.Int(), Over: time.Duration(r.Int()), Total: number(r)}
			h.Shares = list(r, func() Share {
				return Share{Subscription: r.String(), Agent: r.String(),
					Proxies: list(r, func() Proxy { return Proxy{number(r), r.String()} })}
			})
			return h
		})
	})
	return hands, err
}

// encodeRefused answers hands: of each, who could not be reached.
func encodeRefused(refused [][]string) []byte {
	return record(func(b []byte) []byte {
		b = pack.Uint(b, uint64(len(refused)))
		for _, agents := range refused {
			b = pack.Strings(b, agents)
		}
		return b
	})
}

func decodeRefused(b []byte) (out [][]string, err error) {
	err = read(methodHand, b, func(r *pack.Reader) { out = list(r, r.Strings) })
	return out, err
}
