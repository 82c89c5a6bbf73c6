package dnsapi

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	forwardTimeout = 5 * time.Second
	// chaseDepth bounds the CNAMEs that we follow within our own zone.
	chaseDepth = 3
)

// askRecursors passes the question on and gives the first answer that is one. m becomes
// the failure when there is none.
func (s *Server) askRecursors(ctx context.Context, c *settled, req, m *dns.Msg, tcp bool) *dns.Msg {
	order := c.recursors
	if c.RecursorStrategy == "random" {
		order = append([]string(nil), order...)
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	client := dns.Client{Net: "udp", Timeout: c.RecursorTimeout}
	if tcp {
		client.Net = "tcp"
	}
	for _, address := range order {
		if ctx.Err() != nil {
			break
		}
		reply, _, err := client.ExchangeContext(ctx, req, address)
		if err != nil || reply == nil || reply.Rcode == dns.RcodeServerFailure || reply.Rcode == dns.RcodeRefused {
			s.cfg.Logger.Debug("a recursor does not answer", "recursor", address, "error", err)
			continue
		}
		reply.Compress = m.Compress
		reply.RecursionAvailable = true
		return reply
	}
	m.Rcode = dns.RcodeServerFailure
	m.RecursionAvailable = true
	setOPT(m, req)
	return m
}

// follow appends what the reply's CNAME leads to: from our own zone, or from the recursors.
func (s *Server) follow(ctx context.Context, c *settled, req, m *dns.Msg, tcp bool) {
	q := req.Question[0]
	if q.Qtype != dns.TypeA && q.Qtype != dns.TypeAAAA && q.Qtype != dns.TypeANY {
		return
	}
	for range chaseDepth {
		last := len(m.Answer) - 1
		if last < 0 {
			return
		}
		cname, ok := m.Answer[last].(*dns.CNAME)
		if !ok {
			return
		}
		next := new(dns.Msg)
		next.SetQuestion(cname.Target, q.Qtype)
		labels := dns.SplitDomainName(strings.ToLower(cname.Target))
		rest, z := within(c.zones, labels)
		if z != nil && s.cfg.Source != nil && s.cfg.Source.State() != nil {
			l := lookup{s: s, c: c, state: s.cfg.Source.State(), access: s.cfg.Access(), zone: z, owner: cname.Target, qtype: q.Qtype}
			for _, g := range l.zoneAnswer(rest).groups {
				m.Answer = append(m.Answer, g.rr)
			}
			if len(m.Answer) == last+1 {
				return
			}
			continue
		}
		if len(c.recursors) == 0 {
			return
		}
		found := s.askRecursors(ctx, c, next, new(dns.Msg).SetReply(next), tcp)
		m.Answer = append(m.Answer, found.Answer...)
		break
	}
	if !tcp {
		size := plainUDPSize
		if opt := req.IsEdns0(); opt != nil {
			size = max(size, int(opt.UDPSize()))
		}
		truncated := m.Truncated
		m.Truncate(min(size, maxUDPSize))
		m.Truncated = m.Truncated && c.EnableTruncate || truncated
	}
}
