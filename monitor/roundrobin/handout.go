package roundrobin

import (
	"context"
	"slices"
	"sync"

	"corbel.dev/corbel/kit/errkind"
)

// handOut gives ticks that were noted to agents.
func (r *RoundRobin) handOut(ctx context.Context, batch []*waiting) {
	deals := make([]*dealt, len(batch))
	asks := make([][]ask, len(batch))
	for i, w := range batch {
		deals[i] = newDealt(&w.Tick)
		asks[i] = deals[i].asks()
	}
	for range tries {
		byServer := map[string][]*Hand{}
		of := map[*Hand]int{}
		for i, d := range deals {
			for server, h := range d.deal(asks[i], r.ring) {
				byServer[server] = append(byServer[server], h)
				of[h] = i
			}
			asks[i] = nil
		}
		if len(byServer) == 0 {
			return
		}
		again := false
		for server, result := range r.handAll(ctx, byServer) {
			for j, h := range byServer[server] {
				d := deals[of[h]]
				more := d.again(h, result.refused(j))
				if result.away {
					d.gone[serverKey(server)] = true
				}
				asks[of[h]] = append(asks[of[h]], more...)
				again = again || len(more) > 0
				r.passed.Add(uint64(len(more)))
			}
		}
		if !again || ctx.Err() != nil {
			return
		}
	}
}

// result is what became of a server's hands.
type result struct {
	away   bool // the server certainly sent nothing
	agents [][]string
}

// refused returns who of a hand got nothing.
func (r *result) refused(hand int) func(agent string) bool {
	return func(agent string) bool {
		return r.away || hand < len(r.agents) && slices.Contains(r.agents[hand], agent)
	}
}

// handAll hands out to all servers at once.
func (r *RoundRobin) handAll(ctx context.Context, byServer map[string][]*Hand) map[string]*result {
	addresses := map[string]string{}
	for _, s := range r.cfg.Servers() {
		addresses[s.ID] = s.Address
	}
	out := make(map[string]*result, len(byServer))
	var all sync.WaitGroup
	for server, hands := range byServer {
		res := new(result)
		out[server] = res
		all.Go(func() { r.handTo(ctx, server, addresses[server], hands, res) })
	}
	all.Wait()
	return out
}

func (r *RoundRobin) handTo(ctx context.Context, server, addr string, list hands, out *result) {
	var requests uint64
	for _, h := range list {
		for _, s := range h.Shares {
			requests += uint64(max(len(s.Proxies), 1))
		}
	}
	if server == r.cfg.Self {
		out.agents = r.deliver(list)
		r.dealt.Add(requests)
		return
	}
	if out.away = addr == ""; out.away {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	reply, err := r.cfg.Call(ctx, addr, methodHand, encode(&list))
	if err == nil {
		err = decode(methodHand, reply, (*refused)(&out.agents))
	}
	switch {
	case err == nil:
		r.dealt.Add(requests)
	case errkind.Is(err, errkind.Unavailable): // it was certainly not asked
		out.away = true
	default:
		r.unsure.Add(requests)
		r.cfg.Log.Warn("a server did not confirm that it sent its check requests", "server", server, "requests", requests,
			"error", err)
	}
}

func (r *RoundRobin) deliver(hands []*Hand) [][]string {
	out := make([][]string, len(hands))
	for i, h := range hands {
		out[i] = r.cfg.Deliver(*h)
	}
	return out
}

func (r *RoundRobin) serveHand(_ context.Context, req []byte) ([]byte, error) {
	var list hands
	if err := decode(methodHand, req, &list); err != nil {
		return nil, err
	}
	away := refused(r.deliver(list))
	return encode(&away), nil
}
