package dnsapi

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"

	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/polltest"
)

func exchange(t testing.TB, network, address string, m *dns.Msg) *dns.Msg {
	t.Helper()
	client := dns.Client{Net: network, Timeout: 5 * time.Second}
	reply, _, err := client.Exchange(m, address)
	if err != nil {
		t.Fatalf("%s %v: %v", network, m.Question, err)
	}
	return reply
}

func TestServesUDPAndTCP(t *testing.T) {
	s := newServer(t, sample(t), Settings{})
	address := serve(t, s)
	for range 3 {
		if got := exchange(t, "udp", address, query("ten.service.consul.", dns.TypeA)); len(got.Answer) != 3 {
			t.Errorf("UDP: %v", got)
		}
		if got := exchange(t, "tcp", address, query("big.service.consul.", dns.TypeSRV)); len(got.Answer) != 200 {
			t.Errorf("TCP: %d answers", len(got.Answer))
		}
	}
	if s.metrics.domain.Count() < 6 || s.metrics.types[dns.TypeA].Count() < 3 || s.metrics.fast.Value() < 4 {
		t.Error("the questions were not counted")
	}
	// Two questions on one connection.
	conn, err := dns.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	for range 2 {
		if err := conn.WriteMsg(query("web.service.consul.", dns.TypeA)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if got, err := conn.ReadMsg(); err != nil || len(got.Answer) != 2 {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// TestTCPConnectionsAreBoundedByAddress closes one that its address may not have, and takes it once another one ended.
func TestTCPConnectionsAreBoundedByAddress(t *testing.T) {
	conns := limit.NewConns(1, 0, nil)
	s, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Source: sample(t), Conns: conns})
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, s)
	here := netip.MustParseAddr("127.0.0.1")
	held, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	polltest.Until(t, func() bool { n, _ := conns.Open(here); return n == 1 }, "the connection to be counted")
	client := dns.Client{Net: "tcp", Timeout: polltest.Deadline}
	if _, _, err := client.Exchange(query("web.service.consul.", dns.TypeA), address); err == nil || isTimeout(err) {
		t.Errorf("one too many: %v", err)
	}
	from2 := dns.Client{Net: "tcp", Dialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}}
	if got, _, err := from2.Exchange(query("web.service.consul.", dns.TypeA), address); err != nil ||
		len(got.Answer) != 2 {
		t.Errorf("another address: %v", err)
	}
	_ = held.Close()
	polltest.Until(t, func() bool { n, _ := conns.Open(here); return n == 0 }, "its end to be noticed")
	if got := exchange(t, "tcp", address, query("web.service.consul.", dns.TypeA)); len(got.Answer) != 2 {
		t.Errorf("afterwards: %v", got)
	}
}

// TestLargeRepliesTakeRoom: a reply over TCP that is longer than questions are has its place in the budget while it is
// written; where there is none its connection ends, and small ones pass.
func TestLargeRepliesTakeRoom(t *testing.T) {
	budget := limit.NewBytes(1<<20, nil)
	s, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Source: sample(t), Bytes: budget})
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, s)
	if got := exchange(t, "tcp", address, query("big.service.consul.", dns.TypeSRV)); len(got.Answer) != 200 {
		t.Errorf("%d answers", len(got.Answer))
	}
	if budget.Stats().High == 0 {
		t.Error("a large reply held nothing")
	}
	polltest.Until(t, func() bool { return budget.Stats().Used == 0 }, "what was held to be given back")
	rest := budget.Hold(netip.Addr{})
	if err := rest.Add(1 << 20); err != nil {
		t.Fatal(err)
	}
	client := dns.Client{Net: "tcp", Timeout: polltest.Deadline}
	_, _, err = client.Exchange(query("big.service.consul.", dns.TypeSRV), address)
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("without room: %v", err)
	}
	if got := exchange(t, "tcp", address, query("web.service.consul.", dns.TypeA)); len(got.Answer) != 2 {
		t.Errorf("a small one without room: %v", got)
	}
}

func TestAReplyLeavesFromTheAddressThatWasAsked(t *testing.T) {
	for _, bind := range []string{"0.0.0.0:0", "127.0.0.1:0"} {
		s, err := New(Config{Addresses: []string{bind}, Source: sample(t)})
		if err != nil {
			t.Fatal(err)
		}
		address := serve(t, s)
		targets := []string{"127.0.0.1"}
		if strings.HasPrefix(bind, "0.") {
			targets = append(targets, "127.0.0.2", "127.3.2.1")
		}
		_, port, _ := net.SplitHostPort(address)
		for _, to := range targets {
			// A connected socket takes datagrams from the address it asked and from no other.
			for range 2 {
				if got := exchange(t, "udp", net.JoinHostPort(to, port),
					query("ten.service.consul.", dns.TypeA)); len(got.Answer) != 3 {
					t.Errorf("%s: %v", to, got)
				}
			}
		}
	}
}

// recursor is a name server outside that answers A with one address, or nothing at all.
func recursor(t *testing.T, silent bool) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		if silent {
			return
		}
		m := new(dns.Msg).SetReply(r)
		m.Answer = []dns.RR{&dns.A{Hdr: header(r.Question[0].Name, dns.TypeA, 60), A: net.IPv4(192, 0, 2, 1).To4()}}
		_ = w.WriteMsg(m)
	})
	server := &dns.Server{PacketConn: conn, Handler: handler}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.ActivateAndServe() })
	t.Cleanup(func() { _ = server.Shutdown(); _ = conn.Close(); wg.Wait() })
	return conn.LocalAddr().String()
}

func TestOtherNamesGoToTheRecursors(t *testing.T) {
	good, silent := recursor(t, false), recursor(t, true)
	s := newServer(t, sample(t), Settings{Recursion: Recursion{Recursors: []string{silent, good},
		RecursorTimeout: 50 * time.Millisecond}})
	address := serve(t, s)
	got := exchange(t, "udp", address, query("www.example.com.", dns.TypeA))
	if len(got.Answer) != 1 || !got.RecursionAvailable || got.Authoritative {
		t.Errorf("a name outside: %v", got)
	}
	got = exchange(t, "udp", address, query("outside.service.consul.", dns.TypeA))
	if len(got.Answer) != 2 || got.Answer[0].Header().Rrtype != dns.TypeCNAME ||
		got.Answer[1].Header().Name != "web.example.com." {
		t.Errorf("a service whose address is a name: %v", got)
	}
	if got := exchange(t, "udp", address, query("ten.service.consul.", dns.TypeA)); !got.RecursionAvailable ||
		!got.Authoritative {
		t.Errorf("our own: %v", got.MsgHdr)
	}
	if err := s.Reload(Settings{Recursion: Recursion{Recursors: []string{silent},
		RecursorTimeout: 20 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	if got := exchange(t, "udp", address, query("www.example.com.", dns.TypeA)); got.Rcode != dns.RcodeServerFailure {
		t.Errorf("no recursor answers: %v", got)
	}
}

// A question that waits for the network holds up no other, and past the bound is refused.
func TestWaitingQuestionsAreBounded(t *testing.T) {
	s, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Source: sample(t), NetworkLimit: 2, SocketCount: 1,
		Settings: Settings{Recursion: Recursion{Recursors: []string{recursor(t, true)}, RecursorTimeout: 2 * time.Second}}})
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, s)
	conn, err := dns.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	for range 3 {
		if err := conn.WriteMsg(query("www.example.com.", dns.TypeA)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := conn.ReadMsg(); err != nil || got.Rcode != dns.RcodeServerFailure {
		t.Errorf("the third question: %v, %v", got, err)
	}
	if len(s.network) != 2 {
		t.Errorf("%d questions wait", len(s.network))
	}
	if got := exchange(t, "udp", address, query("ten.service.consul.", dns.TypeA)); len(got.Answer) != 3 {
		t.Errorf("our own names wait for others: %v", got)
	}
}

func TestAPortThatIsTakenIsAnError(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s, err := New(Config{Addresses: []string{taken.Addr().String()}, Source: sample(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("Run took a port that is in use")
	}
}

// TestAllocations: a cached answer costs no memory.
func TestAllocations(t *testing.T) {
	s := newServer(t, sample(t), Settings{})
	w := s.newResponder()
	b, _ := query("ten.service.consul.", dns.TypeA).Pack()
	w.respond(b, origin{})
	if n := testing.AllocsPerRun(100, func() { w.respond(b, origin{}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRespond(b *testing.B) {
	s := newServer(b, sample(b), Settings{})
	for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV} {
		raw, _ := query("ten.service.consul.", qtype).Pack()
		b.Run("fast"+dns.TypeToString[qtype], func(b *testing.B) {
			w := s.newResponder()
			b.ReportAllocs()
			for b.Loop() {
				w.respond(raw, origin{})
			}
		})
		b.Run("slow"+dns.TypeToString[qtype], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req := new(dns.Msg)
				_ = req.Unpack(raw)
				s.pack(s.answer(req, origin{}, seeded(1)).reply, false)
			}
		})
	}
}

// BenchmarkUDP asks a served socket from the same machine: b.N questions in batches, as many
// in flight as a few hundred clients would have. It reports questions answered per second.
func BenchmarkUDP(b *testing.B) {
	s := newServer(b, sample(b), Settings{})
	address := serve(b, s)
	raw, _ := query("ten.service.consul.", dns.TypeA).Pack()
	const clients, window = 4, 64
	var answered atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for range clients {
		wg.Go(func() {
			conn, err := net.Dial("udp4", address)
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			p := ipv4.NewPacketConn(conn.(*net.UDPConn))
			out, in := make([]ipv4.Message, window), make([]ipv4.Message, window)
			for i := range window {
				out[i].Buffers, in[i].Buffers = [][]byte{raw}, [][]byte{make([]byte, 512)}
			}
			for left := b.N / clients; left > 0; {
				n, err := p.WriteBatch(out[:min(window, left)], 0)
				if err != nil {
					b.Error(err)
					return
				}
				left -= n
				_ = conn.SetReadDeadline(time.Now().Add(time.Second))
				for got := 0; got < n; {
					k, err := p.ReadBatch(in, 0)
					if err != nil {
						break // lost to a full buffer: not answered
					}
					got += k
					answered.Add(int64(k))
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(answered.Load())/time.Since(begin).Seconds(), "answers/s")
}
