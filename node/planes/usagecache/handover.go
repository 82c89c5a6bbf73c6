package usagecacheplane

import (
	"cmp"
	"context"
	"net"
	"time"

	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/usage/remote"
	"corbel.dev/corbel/usage/slots"
)

const (
	// handoverMost bounds what the end of a process waits for; handoverChunk is about what goes at once, handoverAnswer
	// how long an answer may take.
	handoverMost   = 30 * time.Second
	handoverChunk  = 1 << 20
	handoverAnswer = 5 * time.Second
)

// handOver gives the keys of a host that ends to their next owners, so that these need not make them anew. Where the
// keys are not divided by the catalog, nobody knows where they belong, and nothing goes over.
func (p *Plane) handOver(ctx context.Context) {
	rate := p.keys.Cache.Handover
	if p.hosts == nil || rate == 0 {
		return
	}
	if cfg := p.d.Cfg; cfg.TLS.HTTPS.Enabled() && !cfg.TLS.Disabled {
		p.d.Log.Info("the cache ends without giving its keys to others: they are reached by TLS")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handoverMost)
	defer cancel()
	m, self := p.hosts.slots(), nodeID(p.d.Cfg.Node.Name, Service)
	for _, n := range m.Nodes() {
		if n.ID == self || n.Draining {
			continue
		}
		keys, err := p.giveTo(ctx, n, m, rate)
		if err != nil {
			p.d.Log.Warn("the cache could not give its keys to another host: they are made anew there", "host", n.Addr(),
				"given", keys, "error", err)
			continue
		}
		p.d.Log.Info("the cache gave its keys to another host", "host", n.Addr(), "keys", keys)
	}
}

// giveTo gives a host the keys that it owns now.
func (p *Plane) giveTo(ctx context.Context, n slots.Node, m *slots.Map, rate int) (int, error) {
	dialer := net.Dialer{Timeout: handoverAnswer}
	nc, err := dialer.DialContext(ctx, "tcp", n.Addr())
	if err != nil {
		return 0, err
	}
	defer func() { _ = nc.Close() }()
	password := cmp.Or(p.keys.Cache.Password, p.d.Tokens.Get(base.TokenDefault), p.d.Tokens.Get(base.TokenAgent))
	if !p.d.Cfg.ACL.Enabled && p.keys.Cache.Password == "" {
		password = "" // everybody comes in, and AUTH is refused
	}
	cursor := uint64(0)
	theirs := func(key string) bool {
		owner, ok := m.Owner(slots.Of([]byte(key)))
		return ok && owner.ID == n.ID
	}
	return remote.Give(ctx, nc, "default", password, remote.Pace{BytesPerSecond: rate, Timeout: handoverAnswer},
		func() (chunk []byte, more bool) {
			chunk, cursor = p.cache.Dump(nil, cursor, handoverChunk, theirs)
			return chunk, cursor != 0
		})
}
