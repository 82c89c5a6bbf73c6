package pipeline

import (
	"bufio"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/monitor"
)

// sink takes lines on an address that it may leave and come back to.
type sink struct {
	t     *testing.T
	mu    sync.Mutex
	conns []net.Conn
	made  int
	lines []string
	ended sync.WaitGroup
}

func (s *sink) listen(addr string) net.Listener {
	s.t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns, s.made = append(s.conns, c), s.made+1
			s.mu.Unlock()
			s.ended.Go(func() {
				for in := bufio.NewScanner(c); in.Scan(); {
					s.mu.Lock()
					s.lines = append(s.lines, in.Text())
					s.mu.Unlock()
				}
			})
		}
	})
	return l
}

// drop closes what is connected.
func (s *sink) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
}

func (s *sink) count() (lines, made int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines), s.made
}

// Events are lines over few connections that stay; when the other side goes, they wait for it and come by new ones.
// unheard waits until a handler has noticed that the other side ended its connections: what is written before may go
// nowhere.
func (w *world) unheard(t *testing.T, name string) {
	t.Helper()
	st := w.view.Load().namespaces["default"].handlers[streamName(name)].stream
	polltest.Until(t, func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		for _, c := range st.idle {
			select {
			case <-c.dead:
			default:
				return false
			}
		}
		return true
	}, "the handler to notice that its connections ended")
}

func TestTCPStream(t *testing.T) {
	s := &sink{t: t}
	l := s.listen("127.0.0.1:0")
	addr := l.Addr().String()
	handler := &monitor.TCPStreamHandler{Meta: meta("events"), Address: addr, MaxConnections: 2, MaxReconnectDelay: "20ms"}
	w := start(t, nil, handler, writes("events"),
		&monitor.Pipeline{Meta: meta("p"), Workflows: []*monitor.Workflow{{Name: "w",
			Handler: &monitor.Ref{Name: "events", Type: "TCPStreamHandler", APIVersion: "pipeline/v1"}}}})
	send := func(n int) {
		for i := range n {
			e := result("e"+string(rune('a'+i%20)), "cpu", uint32(i%3))
			e.Check.Pipelines = []*monitor.Ref{ref("Pipeline", "p")}
			w.send(e)
		}
		w.settled()
	}
	send(60)
	lines, made := s.count()
	polltest.Until(t, func() bool { lines, made = s.count(); return lines == 60 }, "60 lines, not %d", lines)
	if made > 2 || len(w.lines("events")) > 0 {
		t.Errorf("%d connections for 60 events; %d went to the handler of core/v2 of the same name", made,
			len(w.lines("events")))
	}
	var e monitor.Event
	if err := json.Unmarshal([]byte(s.lines[0]), &e); err != nil || e.Check == nil || e.Check.Name != "cpu" {
		t.Errorf("%v: %s", err, s.lines[0])
	}
	_ = l.Close()
	s.drop()
	w.unheard(t, "events")
	again := make(chan net.Listener, 1)
	time.AfterFunc(100*time.Millisecond, func() { again <- s.listen(addr) })
	send(20)
	l = <-again
	polltest.Until(t, func() bool { lines, _ := s.count(); return lines == 80 }, "events wait for the other side: %+v",
		w.Stats())
	if st := w.of("TCPStreamHandler/events"); st.Failed != 0 || st.Done != 80 {
		t.Errorf("%+v", st)
	}

	// A change of its address counts for what comes next, and the former connections end.
	w.compiledAfter(func() {
		changed := *handler
		changed.CACert = "/nowhere.pem"
		w.put(&changed)
	})
	send(1)
	if st := w.of("TCPStreamHandler/events"); st.Failed != 1 || !w.log.has("tls_ca_cert_file") {
		t.Errorf("%+v", st)
	}
	w.stop()
	_ = l.Close()
	s.drop()
	s.ended.Wait()
}

func TestLine(t *testing.T) {
	for in, want := range map[string]string{"{\"a\":\n1}\n": "{\"a\":1}\n", " x ": "x\n", "a\nb": ""} {
		got, err := line([]byte(in))
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for field, h := range map[string]*monitor.TCPStreamHandler{
		"address": {Address: "x"}, "tls_cert_file": {Address: "x:1", Cert: "c"},
		"max_reconnect_delay": {Address: "x:1", MaxReconnectDelay: "soon"},
		"min_reconnect_delay": {Address: "x:1", MinReconnectDelay: "1m"},
	} {
		h.Meta = meta("h")
		if err := h.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
