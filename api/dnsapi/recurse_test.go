package dnsapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"corbel.dev/corbel/catalog"
)

// upstream is a name server outside, over UDP and TCP on one port, which answers as handle does.
func upstream(t *testing.T, handle func(w dns.ResponseWriter, r *dns.Msg)) string {
	t.Helper()
	var packets net.PacketConn
	var listener net.Listener
	var err error
	for range 20 { // a port that is free for both
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if packets, err = net.ListenPacket("udp", listener.Addr().String()); err == nil {
			break
		}
		_ = listener.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, server := range []*dns.Server{{PacketConn: packets, Handler: dns.HandlerFunc(handle)},
		{Listener: listener, Handler: dns.HandlerFunc(handle)}} {
		wg.Go(func() { _ = server.ActivateAndServe() })
		t.Cleanup(func() { _ = server.Shutdown() })
	}
	t.Cleanup(func() { _ = packets.Close(); _ = listener.Close(); wg.Wait() })
	return listener.Addr().String()
}

func overTCP(w dns.ResponseWriter) bool { _, ok := w.RemoteAddr().(*net.TCPAddr); return ok }

// addresses answers A with n addresses, 192.0.2.1 and following.
func addresses(r *dns.Msg, n int) *dns.Msg {
	m := new(dns.Msg).SetReply(r)
	for i := range n {
		m.Answer = append(m.Answer, &dns.A{Hdr: header(r.Question[0].Name, dns.TypeA, 60),
			A: net.IPv4(192, 0, 2, byte(i+1)).To4()})
	}
	return m
}

func resolveMsg(t *testing.T, s *Server, m *dns.Msg, tcp bool) *dns.Msg {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	out := new(dns.Msg)
	if err := out.Unpack(s.Resolve(context.Background(), Asked{Query: b, TCP: tcp})); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRecursorsAreAskedInOrder(t *testing.T) {
	var mu sync.Mutex
	var order []string
	var ids []uint16
	named := func(name string, rcode int) string {
		return upstream(t, func(w dns.ResponseWriter, r *dns.Msg) {
			mu.Lock()
			order, ids = append(order, name), append(ids, r.Id)
			mu.Unlock()
			m := addresses(r, 1)
			if m.Rcode = rcode; rcode != dns.RcodeSuccess {
				m.Answer = nil
			}
			_ = w.WriteMsg(m)
		})
	}
	settings := Settings{Recursion: Recursion{Recursors: []string{named("fails", dns.RcodeServerFailure), named("refuses",
		dns.RcodeRefused),
		named("good", dns.RcodeSuccess), named("never", dns.RcodeSuccess)},
		RecursorTimeout: 10 * time.Second}}
	s := newServer(t, newWorld(t), settings)
	q := query("www.example.com.", dns.TypeA)
	for range 4 {
		if got := resolveMsg(t, s, q, false); len(got.Answer) != 1 || got.Id != q.Id || !got.RecursionAvailable {
			t.Fatalf("%v", got)
		}
	}
	// taken returns who was asked since the last time, and under which ids.
	taken := func() ([]string, []uint16) {
		mu.Lock()
		defer mu.Unlock()
		names, under := order, ids
		order, ids = nil, nil
		return names, under
	}
	asked, under := taken()
	if want := []string{"fails", "refuses", "good"}; !slices.Equal(asked[:3], want) || slices.Contains(asked, "never") {
		t.Errorf("asked %v, want %v", asked, want)
	}
	if slices.Max(under) == slices.Min(under) {
		t.Errorf("recursors see the client's id, which could be guessed: %v", under)
	}
	// What a recursor says about a name is the answer: that it does not exist, too.
	s = newServer(t, newWorld(t), Settings{Recursion: Recursion{Recursors: []string{named("nx", dns.RcodeNameError),
		named("never", dns.RcodeSuccess)}, RecursorTimeout: 10 * time.Second}})
	if got := resolveMsg(t, s, q, false); got.Rcode != dns.RcodeNameError {
		t.Errorf("%v", got)
	}
	// In random order each of two is first now and then.
	settings = Settings{Recursion: Recursion{Recursors: []string{named("one", dns.RcodeSuccess), named("two",
		dns.RcodeSuccess)},
		RecursorStrategy: "random", RecursorTimeout: 10 * time.Second}}
	s = newServer(t, newWorld(t), settings)
	taken()
	for range 60 {
		resolveMsg(t, s, q, false)
	}
	if asked, _ := taken(); !slices.Contains(asked, "one") || !slices.Contains(asked, "two") {
		t.Errorf("strategy random asked %v", asked)
	}
}

func TestARecursorThatAnswersAnotherQuestionIsNotBelieved(t *testing.T) {
	liar := upstream(t, func(w dns.ResponseWriter, r *dns.Msg) {
		m := addresses(r, 1)
		m.Question[0].Name, m.Answer[0].Header().Name = "other.example.com.", "other.example.com."
		_ = w.WriteMsg(m)
	})
	s := newServer(t, newWorld(t), Settings{Recursion: Recursion{Recursors: []string{liar},
		RecursorTimeout: 10 * time.Second}})
	if got := resolveMsg(t, s, query("www.example.com.", dns.TypeA), false); got.Rcode != dns.RcodeServerFailure ||
		len(got.Answer) != 0 {
		t.Errorf("%v", got)
	}
}

// A cut answer goes to the client as it is, which asks again over TCP; what a CNAME leads to
// nobody but us can ask again.
func TestRecursorsOverTCP(t *testing.T) {
	var tcp atomic.Int32
	big := upstream(t, func(w dns.ResponseWriter, r *dns.Msg) {
		if overTCP(w) {
			tcp.Add(1)
			_ = w.WriteMsg(addresses(r, 20))
			return
		}
		m := new(dns.Msg).SetReply(r)
		m.Truncated = true
		_ = w.WriteMsg(m)
	})
	w := newWorld(t, instance("n", "10.0.0.1", catalog.Service{Name: "outside", Address: "web.example.com", Port: 1},
		catalog.Passing))
	s := newServer(t, w, Settings{Recursion: Recursion{Recursors: []string{big}, RecursorTimeout: 10 * time.Second}})
	if got := resolveMsg(t, s, query("www.example.com.", dns.TypeA), false); !got.Truncated || tcp.Load() != 0 {
		t.Errorf("over UDP: %v", got)
	}
	if got := resolveMsg(t, s, query("www.example.com.", dns.TypeA), true); len(got.Answer) != 20 || tcp.Load() != 1 {
		t.Errorf("over TCP: %v", got)
	}
	q := query("outside.service.consul.", dns.TypeA)
	q.SetEdns0(4096, false)
	if got := resolveMsg(t, s, q, false); len(got.Answer) != 21 || tcp.Load() != 2 {
		t.Errorf("a CNAME's target: %d answers, %d questions over TCP", len(got.Answer), tcp.Load())
	}
}

// A client that feeds its question byte by byte holds its own connection and nothing else.
func TestSlowTCPClientsAreBounded(t *testing.T) {
	s, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Source: sample(t), ConnLimit: 3, ConnIdle: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, s)
	var held []net.Conn
	for i := range 3 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte{0}); err != nil { // half a length
			t.Fatal(i, err)
		}
		held = append(held, conn)
	}
	for range 2 { // one more is refused at once, and says so by closing
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("a connection past the bound is kept: %v", err)
		}
		_ = conn.Close()
	}
	if got := exchange(t, "udp", address, query("ten.service.consul.", dns.TypeA)); len(got.Answer) != 3 {
		t.Errorf("slow connections hold up UDP: %v", got)
	}
	// Each is cut when its question takes too long.
	_ = held[0].SetReadDeadline(time.Now().Add(60 * time.Second))
	if _, err := held[0].Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("a half question is waited for without end: %v", err)
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// Packets that are larger, deeper or more twisted than a question are dropped or refused, and cost nothing to speak of.
func TestHostilePackets(t *testing.T) {
	s := newServer(t, sample(t), Settings{})
	address := serve(t, s)
	head := func(questions, additional byte) []byte {
		return []byte{0, 1, 1, 0, 0, questions, 0, 0, 0, 0, 0, additional}
	}
	labels := bytes.Repeat([]byte{1, 'a'}, 1500)
	packets := map[string][]byte{
		"a pointer to itself":  append(head(1, 0), 0xc0, 12, 0, 1, 0, 1),
		"two pointers":         append(head(1, 0), 0xc0, 14, 0xc0, 12, 0, 1, 0, 1),
		"1,500 labels":         append(append(head(1, 0), labels...), 0, 0, 1, 0, 1),
		"a label without end":  append(head(1, 0), 63, 'a'),
		"255 questions":        append(head(255, 0), bytes.Repeat([]byte{1, 'a', 0, 0, 1, 0, 1}, 255)...),
		"options past the end": append(head(1, 1), 1, 'a', 0, 0, 1, 0, 1, 0, 0, 41, 16, 0, 0, 0, 0, 0, 255, 255),
		"nothing":              {},
		"one byte":             {0},
	}
	for name, packet := range packets {
		conn, err := net.Dial("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(name, err)
		}
		_ = conn.Close()
		stream, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.SetDeadline(time.Now().Add(60 * time.Second))
		if _, err := stream.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)); err != nil {
			t.Fatal(name, err)
		}
		if got := exchange(t, "udp", address, query("ten.service.consul.", dns.TypeA)); len(got.Answer) != 3 {
			t.Errorf("after %s over UDP: %v", name, got)
		}
		if got := exchange(t, "tcp", address, query("ten.service.consul.", dns.TypeA)); len(got.Answer) != 10 {
			t.Errorf("after %s over TCP: %v", name, got)
		}
		_ = stream.Close()
	}
	// A frame that claims more than a question has is not waited for.
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := conn.Write([]byte{0xff, 0xff, 0}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("64 KiB of question are waited for: %v", err)
	}
}
