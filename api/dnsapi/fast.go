package dnsapi

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/miekg/dns"
)

const (
	headerSize = 12
	// pointerToQuestion is the compressed form of the question's name.
	pointerToQuestion = 0xC00C
	// srvTarget is where the target's name begins in an SRV record without its owner.
	srvTarget = 2 + 2 + 4 + 2 + 6
	optSize   = 11
	// pointerLimit is the first offset that a compressed name cannot point to.
	pointerLimit = 1 << 14
	soaSize      = 2 + 10 + (3 + 2) + (11 + 2) + 20
)

// question is what the fast path reads from a query.
type question struct {
	end    int // where the question section ends
	qtype  uint16
	hasOPT bool
	size   uint16 // the client's UDP size
}

// readQuestion reads a query with one plain question and at most an empty OPT record,
// and appends its name in lower case and its type to key. ok is false for all else.
func readQuestion(b, key []byte) (q question, _ []byte, ok bool) {
	if len(b) < headerSize+5 {
		return q, key, false
	}
	// A standard query: no QR, opcode, AA, TC, RA, Z or rcode; AD and CD are the resolver's business.
	if b[2]&0xFE != 0 || b[3]&0xCF != 0 {
		return q, key, false
	}
	if binary.BigEndian.Uint16(b[4:]) != 1 || binary.BigEndian.Uint32(b[6:]) != 0 || b[10] != 0 || b[11] > 1 {
		return q, key, false
	}
	i := headerSize
	for {
		if i >= len(b) {
			return q, key, false
		}
		n := int(b[i])
		if n == 0 {
			break
		}
		if n > 63 || i+n+1 >= len(b) || i+n+2-headerSize > 255 {
			return q, key, false
		}
		key = append(key, b[i])
		for _, c := range b[i+1 : i+1+n] {
			if c >= 'A' && c <= 'Z' {
				c += 'a' - 'A'
			}
			key = append(key, c)
		}
		i += n + 1
	}
	if i == headerSize || i+5 > len(b) {
		return q, key, false
	}
	q.qtype = binary.BigEndian.Uint16(b[i+1:])
	if binary.BigEndian.Uint16(b[i+3:]) != dns.ClassINET {
		return q, key, false
	}
	q.end = i + 5
	key = append(key, b[i+1], b[i+2])
	rest := b[q.end:]
	if b[11] == 0 {
		return q, key, len(rest) == 0
	}
	// The root, OPT, size, extended rcode and version 0, any flags, no options.
	if len(rest) != optSize || rest[0] != 0 || binary.BigEndian.Uint16(rest[1:]) != dns.TypeOPT ||
		rest[5] != 0 || rest[6] != 0 || rest[9] != 0 || rest[10] != 0 {
		return q, key, false
	}
	q.hasOPT, q.size = true, binary.BigEndian.Uint16(rest[3:])
	return q, key, true
}

// responder answers questions one after the other. Each socket loop has its own.
type responder struct {
	s      *Server
	random *rand.Rand
	order  []uint32
	key    []byte
	out    []byte
	qtype  uint16 // of the last question, for observe
}

// deferred is a question that needs the network.
type deferred struct {
	verdict
	req  *dns.Msg
	from origin
	key  string // under which an agent keeps the answer; "" for what it does not keep
}

func (s *Server) newResponder() *responder {
	return &responder{s: s, random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		key: make([]byte, 0, 260), out: make([]byte, 0, 1232)}
}

func (w *responder) observe(took time.Duration) { w.s.metrics.observe(w.qtype, took) }

// respond answers a query from the cache, else by the slow path. The reply is valid until the
// next call. With later set the question needs the network; with neither it deserves no reply.
func (w *responder) respond(query []byte, from origin) (reply []byte, later *deferred) {
	q, key, ok := readQuestion(query, w.key[:0])
	w.key, w.qtype = key[:0], q.qtype
	if ok {
		if reply := w.fromCache(query, q, key, from); reply != nil {
			w.s.metrics.fast.Add(1)
			return reply, nil
		}
		if w.s.cfg.Source == nil {
			return w.asAgent(query, q, key, from)
		}
	}
	return w.slowly(query, key, ok, from)
}

// own is the origin of this process's own clients.
func (w *responder) own(tcp bool) origin {
	return origin{tcp: tcp, token: w.s.cfg.Token(), agent: w.s.cfg.NodeName}
}

func (w *responder) fromCache(query []byte, q question, key []byte, from origin) []byte {
	e := w.s.cache.get(key)
	if e == nil {
		return nil
	}
	c := w.s.settings.Load()
	if w.s.elsewhere(c) || !e.holds(c, w.s.cfg.Source.State(), w.s.cfg.Access(from.token).Version) {
		return nil
	}
	limit := limitsFor(c, q.qtype, from.tcp, q.size, len(e.groups))
	w.order = shuffle(w.order, len(e.groups), limit.answers, w.random)
	w.out = appendReply(w.out[:0], query, q, &e.encoded, c, limit, w.order, from.tcp)
	return w.out
}

// slowly answers by the slow path and keeps what may be kept.
func (w *responder) slowly(query, key []byte, plain bool, from origin) (reply []byte, later *deferred) {
	s := w.s
	req := new(dns.Msg)
	if err := req.Unpack(query); err != nil || req.Response {
		s.metrics.malformed.Add(1)
		return formatError(query, err), nil
	}
	if len(req.Question) > 0 {
		w.qtype = req.Question[0].Qtype
	}
	access, state := s.cfg.Access(from.token).Version, uint64(0)
	if s.cfg.Source != nil && s.cfg.Source.State() != nil {
		state = s.cfg.Source.State().Index()
	}
	c := s.settings.Load()
	v := s.answer(req, from, w.random)
	if v.todo != done {
		return nil, &deferred{verdict: v, req: req, from: from}
	}
	s.metrics.slow.Add(1)
	if keep := v.keep; keep != nil && plain {
		_, z := within(c.zones, labelsOf(key))
		if enc, ok := encode(keep, z); ok && z != nil {
			e := &entry{encoded: enc, settings: c, access: access, indexOf: keep.indexOf, index: keep.index}
			e.seen.Store(state) // taken before the answer: an older State is found out by the index
			s.cache.put(key, e)
		}
	}
	return s.pack(v.reply, from.tcp), nil
}

// labelsOf reads a key's labels; a key is a name without its root, and the type.
func labelsOf(key []byte) (labels []string) {
	for i := 0; i < len(key)-2; i += int(key[i]) + 1 {
		labels = append(labels, string(key[i+1:i+1+int(key[i])]))
	}
	return labels
}

// formatError answers a query that cannot be read, unless it is a reply or too short to be answered.
func formatError(query []byte, err error) []byte {
	if err == nil || len(query) < headerSize || query[2]&0x80 != 0 {
		return nil
	}
	out := make([]byte, headerSize)
	copy(out, query[:2])
	out[2] = 0x80 | query[2]&0x79 // the opcode and RD come back
	out[3] = dns.RcodeFormatError
	return out
}

// appendReply writes the reply to a question that readQuestion read.
func appendReply(b, query []byte, q question, e *encoded, c *settled, limit limits, order []uint32, tcp bool) []byte {
	size := q.end
	if q.hasOPT {
		size += optSize
	}
	if e.soa {
		size += soaSize
	}
	count, extras := fit(e, order, limit, size)
	flags := byte(0x84) | query[2]&0x01 // QR, AA, RD
	if !tcp && c.EnableTruncate && count < len(e.groups) {
		flags |= 0x02
	}
	available := byte(0)
	if len(c.recursors) > 0 {
		available = 0x80
	}
	b = append(b, query[0], query[1], flags, available|query[3]&0x10, 0, 1)
	b = binary.BigEndian.AppendUint16(b, uint16(count))
	b = append(b, 0, 0, 0, 0) // Authority and Additional, counted below
	b = append(b, query[headerSize:q.end]...)
	var room [64]int
	targets := room[:0]
	for _, i := range order[:count] {
		b = binary.BigEndian.AppendUint16(b, pointerToQuestion)
		targets = append(targets, len(b)+srvTarget)
		b = append(b, e.groups[i].rr...)
	}
	additional := 0
	if e.soa {
		b = appendSOA(b, e.zone, q, c)
		b[9] = 1
	}
	// All addresses before all texts.
	for pass := 0; pass < 2 && extras; pass++ {
		for n, i := range order[:count] {
			for _, x := range e.groups[i].extra {
				if text := binary.BigEndian.Uint16(x.rr) == dns.TypeTXT; text != (pass == 1) {
					continue
				}
				b = appendOwner(b, x.ofTarget, targets[n], e.groups[i].rr)
				b = append(b, x.rr...)
				additional++
			}
		}
	}
	if q.hasOPT {
		b = append(b, 0, 0, byte(dns.TypeOPT))
		b = binary.BigEndian.AppendUint16(b, q.size)
		b = append(b, 0, 0, 0, 0, 0, 0)
		additional++
	}
	binary.BigEndian.PutUint16(b[10:], uint16(additional))
	return b
}

// appendOwner writes the owner of an Additional record: a pointer to the target in its
// SRV record, or the target in full where a pointer does not reach.
func appendOwner(b []byte, ofTarget bool, target int, srv []byte) []byte {
	switch {
	case !ofTarget:
		return binary.BigEndian.AppendUint16(b, pointerToQuestion)
	case target < pointerLimit:
		return binary.BigEndian.AppendUint16(b, 0xC000|uint16(target))
	default:
		return append(b, srv[srvTarget:]...)
	}
}

// fit counts how many groups go into the reply, and whether with their Additional records.
func fit(e *encoded, order []uint32, limit limits, size int) (count int, extras bool) {
	for _, i := range order[:min(limit.answers, len(order))] {
		g := &e.groups[i]
		next := size + g.size + g.extras
		if next > pointerLimit { // the names of targets may have to be written in full
			for _, x := range g.extra {
				if x.ofTarget {
					next += len(g.rr) - srvTarget
				}
			}
		}
		if next > limit.size {
			break
		}
		size = next
		count++
	}
	if count == 0 && len(order) > 0 && limit.answers > 0 && size+e.groups[order[0]].size <= limit.size {
		return 1, false
	}
	return count, true
}

// appendSOA writes the zone's SOA, its names as pointers into the question's.
func appendSOA(b []byte, z *zone, q question, c *settled) []byte {
	domain := 0xC000 | uint16(q.end-4-z.wire)
	b = binary.BigEndian.AppendUint16(b, domain)
	b = append(b, 0, byte(dns.TypeSOA), 0, byte(dns.ClassINET))
	b = binary.BigEndian.AppendUint32(b, c.SOA.MinTTL)
	b = binary.BigEndian.AppendUint16(b, soaSize-2-10)
	b = append(b, 2, 'n', 's')
	b = binary.BigEndian.AppendUint16(b, domain)
	b = append(b, "\x0ahostmaster"...)
	b = binary.BigEndian.AppendUint16(b, domain)
	b = binary.BigEndian.AppendUint32(b, uint32(time.Now().Unix()))
	b = binary.BigEndian.AppendUint32(b, c.SOA.Refresh)
	b = binary.BigEndian.AppendUint32(b, c.SOA.Retry)
	b = binary.BigEndian.AppendUint32(b, c.SOA.Expire)
	return binary.BigEndian.AppendUint32(b, c.SOA.MinTTL)
}
