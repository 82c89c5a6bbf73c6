package dnsapi

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Sizes and counts that bound a reply.
const (
	plainUDPSize     = 512
	maxUDPSize       = 65467 // what an IPv6 datagram can carry, less a margin
	maxTCPSize       = 64 << 10
	udpAnswerCeiling = 8 // udp_answer_limit counts up to here
	tcpAddressLimit  = 4096
	tcpSRVLimit      = 1024
	staleAfter       = 5 * time.Second
)

// limits is what a reply to one question may hold.
type limits struct {
	size    int // bytes
	answers int
}

// limitsFor gives the bounds of a reply. edns is the size the client gave, 0 without OPT.
func limitsFor(c *settled, qtype uint16, tcp bool, edns uint16, count int) limits {
	l := limits{size: maxTCPSize - 1, answers: count}
	if tcp {
		if qtype == dns.TypeSRV {
			l.answers = min(l.answers, tcpSRVLimit)
		} else {
			l.answers = min(l.answers, tcpAddressLimit)
		}
	} else {
		l.size = min(max(int(edns), plainUDPSize), maxUDPSize)
		if l.size == plainUDPSize {
			l.answers = min(l.answers, udpAnswerCeiling, c.UDPAnswerLimit)
		}
	}
	if c.ARecordLimit > 0 && (qtype == dns.TypeA || qtype == dns.TypeAAAA || qtype == dns.TypeANY) {
		l.answers = min(l.answers, c.ARecordLimit)
	}
	return l
}

// shuffle fills order with the numbers below n and brings the first k of them into a
// random order.
func shuffle(order []uint32, n, k int, random *rand.Rand) []uint32 {
	order = order[:0]
	for i := range n {
		order = append(order, uint32(i))
	}
	for i := range min(k, n-1) {
		j := i + int(random.Uint32N(uint32(n-i)))
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// outcome says what is to become of a question.
type outcome uint8

const (
	done    outcome = iota // the message is the reply
	recurse                // ask the recursors
	forward                // ask a server
	cross                  // ask a server of another datacenter
	execute                // run a prepared query
	chase                  // the message is the reply but for what its CNAME leads to
)

// origin is where a question comes from.
type origin struct {
	tcp     bool
	crossed bool   // from another datacenter
	token   string // in whose name
	extra   *zone  // of the process that forwarded it; nil for a client's own
	agent   string // whose client asks
	source  netip.Addr
}

// verdict is what a question deserves.
type verdict struct {
	todo  outcome
	reply *dns.Msg // with done; with chase, all but what its CNAME leads to; else its frame
	keep  *result  // what of it may be kept; nil for nothing
	place place    // with cross and execute
	zone  *zone    // of the name; nil for reverse names and those of others
}

// answer is the slow path: it decides what a question deserves.
func (s *Server) answer(req *dns.Msg, from origin, random *rand.Rand) verdict {
	c := s.settings.Load()
	m := new(dns.Msg)
	m.SetReply(req)
	m.Compress = !c.DisableCompression
	m.RecursionAvailable = len(c.recursors) > 0
	if rcode := refuse(req); rcode != dns.RcodeSuccess {
		m.Rcode = rcode
		if rcode == dns.RcodeBadVers {
			setOPT(m, req)
		}
		return verdict{reply: m}
	}
	q := req.Question[0]
	labels := dns.SplitDomainName(strings.ToLower(q.Name))
	rest, z := within(c.zones, labels)
	if z == nil && from.extra != nil {
		if inside, _ := within([]zone{*from.extra}, labels); inside != nil {
			rest, z = inside, from.extra
		}
	}
	address, isReverse := reverseAddr(labels)
	isReverse = isReverse && (q.Qtype == dns.TypePTR || q.Qtype == dns.TypeANY)
	if z == nil && !isReverse {
		if len(c.recursors) > 0 {
			return verdict{todo: recurse, reply: m}
		}
		m.Rcode = dns.RcodeRefused
		setOPT(m, req)
		return verdict{reply: m}
	}
	if s.elsewhere(c) {
		return verdict{todo: forward, reply: m, zone: z}
	}
	l := lookup{s: s, c: c, dc: s.cfg.Datacenter, state: s.cfg.Source.State(), access: s.cfg.Access(from.token), zone: z,
		owner: q.Name, qtype: q.Qtype}
	var r result
	if isReverse {
		l.zone = &c.zones[0]
		var found bool
		if r, found = l.pointer(address); !found {
			if len(c.recursors) > 0 {
				return verdict{todo: recurse, reply: m}
			}
			r = nothing(dns.RcodeNameError)
		}
	} else {
		p := locate(rest)
		if todo := s.beyond(p, q.Qtype, from); todo != done {
			return verdict{todo: todo, reply: m, place: p, zone: z}
		}
		r = l.zoneAnswer(p)
	}
	limit := limitsFor(c, q.Qtype, from.tcp, ednsSize(req), len(r.groups))
	s.assemble(m, req, c, l.zone, &r, limit, shuffle(nil, len(r.groups), limit.answers, random), from.tcp)
	switch {
	case r.chase != "":
		return verdict{todo: chase, reply: m}
	case r.indexOf != nil && !c.DisableCompression && z != from.extra:
		return verdict{reply: m, keep: &r}
	}
	return verdict{reply: m}
}

// beyond tells what of the network a name in our zone needs: another datacenter, or the run of a
// prepared query. done means that the catalog here has the answer, if only that the name does not exist.
func (s *Server) beyond(p place, qtype uint16, from origin) outcome {
	switch qtype {
	case dns.TypeSOA, dns.TypeNS, dns.TypeAXFR, dns.TypeIXFR:
		return done // the zone's, whatever the name
	}
	if s.foreign(p) {
		if from.crossed || s.cfg.Remote == nil || !s.cfg.Remote.Knows(p.dc) {
			return done
		}
		return cross
	}
	if p.kind == kindQuery && s.cfg.Queries != nil {
		return execute
	}
	return done
}

// foreign tells that a name is another datacenter's. An address is the same everywhere.
func (s *Server) foreign(p place) bool {
	return p.dc != "" && p.dc != s.cfg.Datacenter && p.kind != kindAddr
}

func ednsSize(req *dns.Msg) uint16 {
	if opt := req.IsEdns0(); opt != nil {
		return opt.UDPSize()
	}
	return 0
}

// refuse finds what is wrong with a question before its name is looked at.
func refuse(req *dns.Msg) int {
	switch {
	case req.Opcode != dns.OpcodeQuery:
		return dns.RcodeNotImplemented
	case len(req.Question) != 1:
		return dns.RcodeFormatError
	case req.Question[0].Qclass != dns.ClassINET && req.Question[0].Qclass != dns.ClassANY:
		return dns.RcodeRefused
	}
	if opt := req.IsEdns0(); opt != nil && opt.Version() != 0 {
		return dns.RcodeBadVers
	}
	return dns.RcodeSuccess
}

// elsewhere tells that this process cannot answer for the catalog itself, and counts stale answers.
func (s *Server) elsewhere(c *settled) bool {
	if s.cfg.Source == nil || s.cfg.Source.State() == nil {
		return true
	}
	lag := s.cfg.Source.Lag()
	if lag == 0 {
		return false
	}
	if c.RequireFresh || (c.MaxStale > 0 && lag > c.MaxStale) {
		return true
	}
	if lag > staleAfter {
		s.metrics.stale.Add(1)
	}
	return false
}

// assemble puts a result into the reply, in the given order, cut to the limit.
func (s *Server) assemble(m, req *dns.Msg, c *settled, z *zone, r *result, limit limits, order []uint32, tcp bool) {
	m.Rcode, m.Authoritative = r.rcode, true
	m.Ns = append(m.Ns, r.ns...)
	if r.soa {
		m.Ns = append(m.Ns, soa(c, z, time.Now()))
	}
	setOPT(m, req)
	opt := m.Extra
	fill := func(count int, extras bool) {
		m.Answer, m.Extra = m.Answer[:0], nil
		for _, i := range order[:count] {
			m.Answer = append(m.Answer, r.groups[i].rr)
			if extras {
				m.Extra = append(m.Extra, r.groups[i].extra...)
			}
		}
		slices.SortStableFunc(m.Extra, func(a, b dns.RR) int { return isTXT(a) - isTXT(b) }) // addresses before texts
		m.Extra = append(append(m.Extra, r.extra...), opt...)
	}
	count := min(limit.answers, len(r.groups))
	fill(count, true)
	if m.Len() > limit.size { // the most that fits, by halves
		low, high := 0, count
		for low < high {
			middle := (low + high + 1) / 2
			if fill(middle, true); m.Len() <= limit.size {
				low = middle
			} else {
				high = middle - 1
			}
		}
		if count = low; count > 0 {
			fill(count, true)
		} else if count = 1; len(r.groups) > 0 {
			fill(count, false)
		}
		if m.Len() > limit.size {
			count = 0
			fill(0, false)
		}
	}
	m.Truncated = !tcp && c.EnableTruncate && count < len(r.groups)
}

func isTXT(rr dns.RR) int {
	if rr.Header().Rrtype == dns.TypeTXT {
		return 1
	}
	return 0
}

// setOPT answers EDNS with EDNS: the client's size, and its subnet with a scope of 0,
// since what we say does not depend on it.
func setOPT(m, req *dns.Msg) {
	opt := req.IsEdns0()
	if opt == nil {
		return
	}
	out := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	out.SetUDPSize(opt.UDPSize())
	for _, o := range opt.Option {
		if subnet, ok := o.(*dns.EDNS0_SUBNET); ok {
			copied := *subnet
			copied.SourceScope = 0
			out.Option = append(out.Option, &copied)
		}
	}
	m.Extra = append(m.Extra, out)
}

// resolve finishes what needs the network. It always gives a reply.
func (s *Server) resolve(ctx context.Context, query []byte, d *deferred) []byte {
	c := s.settings.Load()
	m, tcp := d.reply, d.from.tcp
	switch d.todo {
	case recurse:
		return s.pack(s.askRecursors(ctx, c, d.req, m, tcp), tcp)
	case forward, cross:
		if reply := s.hand(ctx, c, query, d); reply != nil {
			return reply
		}
		m.Rcode = dns.RcodeServerFailure
		setOPT(m, d.req)
	case execute:
		if s.runQuery(ctx, c, d); d.todo == chase {
			s.follow(ctx, c, d.req, m, d.from)
		}
	case chase:
		s.follow(ctx, c, d.req, m, d.from)
	}
	return s.pack(m, tcp)
}

// hand passes a question on to another process and returns its answer; nil for none.
func (s *Server) hand(ctx context.Context, c *settled, query []byte, d *deferred) (reply []byte) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	a := Asked{Query: query, TCP: d.from.tcp, Token: d.from.token, Crossed: d.from.crossed, Agent: d.from.agent,
		Source: d.from.source}
	if d.zone != nil {
		a.Domain = d.zone.name
	}
	var err error
	switch {
	case d.todo == cross:
		a.Crossed = true
		reply, err = s.cfg.Remote.ForwardDNSTo(ctx, d.place.dc, a)
	case s.cfg.Forward != nil:
		reply, err = s.cfg.Forward.ForwardDNS(ctx, a)
	}
	if err != nil || len(reply) < headerSize {
		s.cfg.Logger.Debug("a server does not answer", "question", d.req.Question, "datacenter", d.place.dc, "error", err)
		return nil
	}
	reply[3] &^= 0x80 // whether recursion is available depends on whom the client asked
	if len(c.recursors) > 0 {
		reply[3] |= 0x80
	}
	s.aged.put(d.key, c, reply)
	return reply
}

// pack encodes a message; one that cannot be encoded is a server failure.
func (s *Server) pack(m *dns.Msg, tcp bool) []byte {
	b, err := m.Pack()
	if err == nil && (len(b) <= maxUDPSize || (tcp && len(b) < maxTCPSize)) {
		return b
	}
	s.cfg.Logger.Warn("a DNS reply cannot be encoded", "question", m.Question, "error", err)
	failure := &dns.Msg{MsgHdr: m.MsgHdr, Question: m.Question}
	failure.Rcode = dns.RcodeServerFailure
	b, err = failure.Pack()
	if err != nil {
		return nil
	}
	return b
}

// Resolve answers a question of another process, as the other end of a Forwarder or Remote.
// nil means that it deserves no reply. It is bounded by ctx and its own deadlines.
func (s *Server) Resolve(ctx context.Context, a Asked) []byte {
	from := origin{tcp: a.TCP, crossed: a.Crossed, token: a.Token, agent: a.Agent, source: a.Source}
	if a.Domain != "" {
		if z, err := newZone(a.Domain); err == nil {
			from.extra = &z
		}
	}
	w, ok := s.responders.Get().(*responder)
	if !ok {
		w = s.newResponder()
	}
	begin := time.Now()
	reply, later := w.respond(a.Query, from)
	reply = bytes.Clone(reply) // the responder's own buffer is another's soon
	qtype := w.qtype
	s.responders.Put(w)
	if later != nil {
		reply = s.resolve(ctx, a.Query, later)
	}
	s.metrics.observe(qtype, time.Since(begin))
	return reply
}
