package roundrobin

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// member is an agent of a ring and the server to which it is connected.
type member struct{ agent, server string }

// ask is a request that is to be given to somebody of a ring.
type ask struct {
	subscription string
	place        int // of the proxy; 0 where there is none
}

// dealt is the dealing of one tick. It is pure: the same tick and rings give the same hands.
//
// The turn of a tick with n requests a ring begins n places after that of the tick before it, at a place that
// the check's name gives, so that checks of one interval do not all meet the same agent.
type dealt struct {
	tick  *Tick
	start uint64
	given map[asked]struct{} // who has what: an agent gets a request once, though two of its subscriptions want it
	gone  map[string]bool    // agents and servers that could not be reached
}

type asked struct {
	agent string
	place int
}

func newDealt(t *Tick) *dealt {
	n := uint64(max(len(t.Proxies), 1))
	return &dealt{tick: t, start: t.Turn*n + xxhash.Sum64String(t.Check), given: map[asked]struct{}{},
		gone: map[string]bool{}}
}

// asks are all of a tick.
func (d *dealt) asks() (out []ask) {
	for i, s := range d.tick.Subscriptions {
		if slices.Contains(d.tick.Subscriptions[:i], s) {
			continue
		}
		for place := range max(len(d.tick.Proxies), 1) {
			out = append(out, ask{s, place})
		}
	}
	return out
}

// deal gives requests to agents and returns what each server is to send. What nobody can take is left out.
func (d *dealt) deal(asks []ask, ring func(Ring) []member) map[string]*Hand {
	hands := map[string]*Hand{}
	shares := map[[2]string]int{} // by subscription and agent: the place in its hand
	var of []member
	for i, a := range asks {
		if i == 0 || a.subscription != asks[i-1].subscription {
			of = ring(Ring{d.tick.Namespace, a.subscription})
		}
		m, ok := d.pick(of, a.place)
		if !ok {
			continue
		}
		h := hands[m.server]
		if h == nil {
			h = &Hand{Namespace: d.tick.Namespace, Check: d.tick.Check, Due: d.tick.Due, Over: d.tick.Over,
				Total: len(d.tick.Proxies)}
			hands[m.server] = h
		}
		key := [2]string{a.subscription, m.agent}
		at, has := shares[key]
		if !has {
			at = len(h.Shares)
			shares[key] = at
			h.Shares = append(h.Shares, Share{Subscription: a.subscription, Agent: m.agent})
		}
		if h.Total > 0 {
			h.Shares[at].Proxies = append(h.Shares[at].Proxies, Proxy{a.place, d.tick.Proxies[a.place]})
		}
	}
	return hands
}

func (d *dealt) pick(of []member, place int) (member, bool) {
	for i := range len(of) {
		m := of[(d.start+uint64(place)+uint64(i))%uint64(len(of))]
		key := asked{m.agent, place}
		if _, has := d.given[key]; has || d.gone[agentKey(m.agent)] || d.gone[serverKey(m.server)] {
			continue
		}
		d.given[key] = struct{}{}
		return m, true
	}
	return member{}, false
}

func agentKey(agent string) string   { return "a/" + agent }
func serverKey(server string) string { return "s/" + server }

// again returns what those shares of a hand held that were refused.
func (d *dealt) again(h *Hand, refused func(agent string) bool) (out []ask) {
	for _, s := range h.Shares {
		if !refused(s.Agent) {
			continue
		}
		d.gone[agentKey(s.Agent)] = true
		if h.Total == 0 {
			out = append(out, ask{subscription: s.Subscription})
		}
		for _, p := range s.Proxies {
			out = append(out, ask{s.Subscription, p.Place})
		}
	}
	return out
}
