package dnsapi

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// normal reads a reply so that two encodings of the same answer compare equal.
func normal(t *testing.T, raw []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(raw); err != nil {
		t.Fatalf("reply %x: %v", raw, err)
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			// Names compressed into the question take over its letter case.
			soa.Serial, soa.Hdr.Name, soa.Ns, soa.Mbox = 0, strings.ToLower(soa.Hdr.Name), strings.ToLower(soa.Ns),
				strings.ToLower(soa.Mbox)
		}
	}
	m.Compress = false
	return m
}

// FuzzBothPathsAgree puts any bytes to the server: nothing panics, replies are well formed
// and within their size, and where the fast path answers, it says what the slow path says.
func FuzzBothPathsAgree(f *testing.F) {
	w := sample(f)
	servers := []*Server{newServer(f, w, Settings{}),
		newServer(f, w, Settings{Limits: Limits{EnableTruncate: true, UDPAnswerLimit: 8, ARecordLimit: 4}, AltDomain: "a.b"})}
	for _, name := range []string{"web.service.consul.", "WEB.Service.a.b.", "_web._tcp.service.consul.",
		"big.service.dc1.consul.", "db-1.node.consul.",
		"six.node.consul.", "mixed.service.consul.", "named.node.consul.", "0a090909.addr.consul.", "consul.", "example.com.",
		"1.0.1.10.in-addr.arpa.",
		"_web._tcp.dc1.consul.", "web.virtual.consul.", "a.b.query.dc1.dc.consul.", "_q._tcp.query.consul.",
		"web.service.dc2.consul.", "_._.consul.", "x.addr.dc.consul."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT, dns.TypeANY, dns.TypeSOA} {
			m := query(name, qtype)
			b, _ := m.Pack()
			f.Add(b, false, uint64(qtype))
			m.SetEdns0(1232, qtype == dns.TypeA)
			b, _ = m.Pack()
			f.Add(b, qtype == dns.TypeSRV, uint64(qtype))
		}
	}
	f.Add([]byte{}, false, uint64(0))
	f.Add([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xC0, 0x0C, 0, 1, 0, 1}, false, uint64(0))
	f.Fuzz(func(t *testing.T, query []byte, tcp bool, seed uint64) {
		for _, s := range servers {
			compare(t, s, query, tcp, seed)
		}
	})
}

func compare(t *testing.T, s *Server, query []byte, tcp bool, seed uint64) {
	w := s.newResponder()
	w.random = seeded(seed)
	first, later := w.respond(query, origin{tcp: tcp}) // fills the cache
	if later != nil {
		raw := s.resolve(t.Context(), query, later)
		normal(t, raw)
		return
	}
	if first == nil {
		return
	}
	normal(t, first)
	q, key, ok := readQuestion(query, nil)
	if !ok {
		return
	}
	w.random = seeded(seed)
	fast := w.fromCache(query, q, key, origin{tcp: tcp})
	if fast == nil {
		return
	}
	req := new(dns.Msg)
	if err := req.Unpack(query); err != nil {
		t.Fatalf("the fast path took what is no message: %v", err)
	}
	v := s.answer(req, origin{tcp: tcp}, seeded(seed))
	if v.todo != done {
		t.Fatalf("the fast path answered what the slow path leaves to others")
	}
	slow := s.pack(v.reply, tcp)
	limit := limitsFor(s.settings.Load(), q.qtype, tcp, q.size, 0).size
	if len(fast) > limit || len(slow) > limit {
		t.Fatalf("%d and %d bytes, limit %d", len(fast), len(slow), limit)
	}
	a, b := normal(t, fast), normal(t, slow)
	if a.String() != b.String() {
		t.Fatalf("fast (%d bytes)\n%s\nslow (%d bytes)\n%s", len(fast), a, len(slow), b)
	}
}

func TestBothPathsAgreeOnEverySizeAndType(t *testing.T) {
	w := sample(t)
	s := newServer(t, w, Settings{Limits: Limits{EnableTruncate: true}})
	for _, name := range []string{"big.service.consul.", "ten.service.consul.", "web.service.consul.", "db-1.node.consul.",
		"mixed.service.consul."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeANY, dns.TypeTXT} {
			for size := 512; size < 20000; size += 523 {
				m := query(name, qtype)
				m.SetEdns0(uint16(size), false)
				b, _ := m.Pack()
				compare(t, s, b, false, uint64(size))
			}
		}
	}
	if s.metrics.fast.Value() == 0 {
		t.Error("the fast path was never taken")
	}
}

// FuzzReadQuestion holds the reader of the fast path against miekg/dns.
func FuzzReadQuestion(f *testing.F) {
	b, _ := query("Web.service.consul.", dns.TypeA).Pack()
	f.Add(b)
	f.Add(append(slices.Clone(b), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, key, ok := readQuestion(b, nil)
		if !ok {
			return
		}
		m := new(dns.Msg)
		if err := m.Unpack(b); err != nil {
			t.Fatalf("%x is taken, but %v", b, err)
		}
		if len(m.Question) != 1 || m.Question[0].Qtype != q.qtype || m.Response || m.Opcode != 0 ||
			(m.IsEdns0() != nil) != q.hasOPT {
			t.Fatalf("%x is taken as %+v, but is %v", b, q, m)
		}
		if got := len(labelsOf(key)); got != dns.CountLabel(m.Question[0].Name) ||
			binary.BigEndian.Uint16(key[len(key)-2:]) != q.qtype {
			t.Fatalf("%x: %d labels of %s", b, got, m.Question[0].Name)
		}
	})
}
