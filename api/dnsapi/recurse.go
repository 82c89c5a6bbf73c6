package dnsapi

import (
	"context"
	"errors"
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
// the failure when there is none. Each recursor has RecursorTimeout.
func (s *Server) askRecursors(ctx context.Context, c *settled, req, m *dns.Msg, tcp bool) *dns.Msg {
	order := c.recursors
	if c.RecursorStrategy == "random" {
		order = append([]string(nil), order...)
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for _, address := range order {
		if ctx.Err() != nil {
			break
		}
		reply, err := askRecursor(ctx, c, req, address, tcp)
		if err != nil || reply.Rcode == dns.RcodeServerFailure || reply.Rcode == dns.RcodeRefused {
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

var errOtherQuestion = errors.New("the recursor answered another question")

// askRecursor asks one recursor under an id of our own: a client's could be guessed by who wants to
// answer in the recursor's place.
func askRecursor(ctx context.Context, c *settled, req *dns.Msg, address string, tcp bool) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, c.RecursorTimeout)
	defer cancel()
	client := dns.Client{Net: "udp", Timeout: c.RecursorTimeout}
	if tcp {
		client.Net = "tcp"
	}
	asked := req.Copy()
	asked.Id = dns.Id()
	reply, _, err := client.ExchangeContext(ctx, asked, address)
	if err != nil {
		return nil, err
	}
	if len(reply.Question) != 1 || len(asked.Question) != 1 || !sameQuestion(reply.Question[0], asked.Question[0]) {
		return nil, errOtherQuestion
	}
	reply.Id = req.Id
	return reply, nil
}

func sameQuestion(a, b dns.Question) bool {
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}

// follow appends what the reply's CNAME leads to: from our own zone, from another datacenter, or from
// the recursors.
func (s *Server) follow(ctx context.Context, c *settled, req, m *dns.Msg, from origin) {
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
			break
		}
		found, more := s.leadsTo(ctx, c, cname.Target, q.Qtype, from)
		m.Answer = append(m.Answer, found...)
		if !more || len(found) == 0 {
			break
		}
	}
	if !from.tcp {
		size := max(plainUDPSize, int(ednsSize(req)))
		truncated := m.Truncated
		m.Truncate(min(size, maxUDPSize))
		m.Truncated = m.Truncated && c.EnableTruncate || truncated
	}
}

// leadsTo resolves the target of a CNAME; more tells that it may be a CNAME of ours again.
func (s *Server) leadsTo(ctx context.Context, c *settled, target string, qtype uint16, from origin) (found []dns.RR,
	more bool) {
	rest, z := within(c.zones, dns.SplitDomainName(strings.ToLower(target)))
	if z != nil && s.cfg.Source != nil && s.cfg.Source.State() != nil {
		p := locate(rest)
		if s.beyond(p, qtype, from) == cross {
			return s.askDatacenter(ctx, p.dc, target, qtype, z, from), false
		}
		l := lookup{s: s, c: c, dc: s.cfg.Datacenter, state: s.cfg.Source.State(), access: s.cfg.Access(from.token), zone: z,
			owner: target, qtype: qtype}
		for _, g := range l.zoneAnswer(p).groups {
			found = append(found, g.rr)
		}
		return found, true
	}
	if len(c.recursors) == 0 {
		return nil, false
	}
	next := new(dns.Msg).SetQuestion(target, qtype)
	reply := s.askRecursors(ctx, c, next, new(dns.Msg).SetReply(next), from.tcp)
	if reply.Truncated && !from.tcp { // nobody but us can ask again
		reply = s.askRecursors(ctx, c, next, new(dns.Msg).SetReply(next), true)
	}
	return reply.Answer, false
}

// askDatacenter resolves a name of another datacenter that a CNAME leads to.
func (s *Server) askDatacenter(ctx context.Context, dc, target string, qtype uint16, z *zone, from origin) []dns.RR {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	query, err := new(dns.Msg).SetQuestion(target, qtype).Pack()
	if err != nil {
		return nil
	}
	raw, err := s.cfg.Remote.ForwardDNSTo(ctx, dc, Asked{Query: query, TCP: true, Token: from.token, Domain: z.name,
		Crossed: true})
	reply := new(dns.Msg)
	if err != nil || reply.Unpack(raw) != nil {
		s.cfg.Logger.Debug("a datacenter does not answer", "name", target, "datacenter", dc, "error", err)
		return nil
	}
	return reply.Answer
}
