package node

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
)

// write changes the plane's configuration through its group.
func (m *testMember) write(typ string, o monitor.Object) {
	m.t.Helper()
	namespace, name := o.Key()
	op := objects.Op{Verb: objects.Put, Type: typ, Namespace: namespace, Name: name, Encoded: tagproto.Append(nil, o)}
	polltest.NoError(m.t, time.Minute, func() error { return m.monitor().Group.Resources.Write(m.t.Context(), op) },
		"%s %s to be written", typ, name)
}

// TestMonitorHandlers: what an agent reports reaches a handler once it is stored, filtered by what was configured,
// and is counted.
func TestMonitorHandlers(t *testing.T) {
	sink, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	got := make(chan string, 100)
	go func() {
		for {
			c, err := sink.Accept()
			if err != nil {
				return
			}
			text, _ := bufio.NewReader(c).ReadString('\n')
			got <- text
			_ = c.Close()
		}
	}()
	lines := filepath.Join(t.TempDir(), "events.log")
	m := startServer(t, "mon", strings.Replace(monitorOn, "enabled = true", "enabled = true, event_log_file = \""+lines+
		"\"", 1)+"bootstrap = true")
	polltest.Until(t, func() bool { return len(m.monitor().Unready()) == 0 }, "the plane to be ready: %v",
		m.monitor().Unready())
	port := sink.Addr().(*net.TCPAddr).Port
	before := m.monitor().Pipes.Compiled()
	m.write("filters", &monitor.EventFilter{Meta: monitor.Meta{Name: "first", Namespace: "default"},
		Action: monitor.FilterAllow, Expressions: []string{"event.check.occurrences == 1"}})
	m.write("handlers", &monitor.Handler{Meta: monitor.Meta{Name: "sink", Namespace: "default"}, Type: monitor.HandlerTCP,
		Filters: []string{"is_incident", "first"},
		Socket:  &monitor.HandlerSocket{Host: "127.0.0.1", Port: uint32(port)}})
	pipes := m.monitor().Pipes
	polltest.Until(t, func() bool { return pipes.Compiled() >= before+1 && len(pipes.Stats()) == 1 },
		"the handler to be compiled")
	conn := m.agent("web-1")
	for at, status := range []uint32{0, 2, 2, 2, 0, 0} {
		e := &monitor.Event{Timestamp: int64(at),
			Entity: &monitor.Entity{Meta: monitor.Meta{Name: "web-1", Namespace: "default"}, Class: monitor.ClassAgent},
			Check: &monitor.Check{Meta: monitor.Meta{Name: "disk", Namespace: "default"}, Interval: 10, Status: status,
				Executed: int64(at), Issued: int64(at), Handlers: []string{"sink"}}}
		if err := conn.Write(append([]byte("event\n"), tagproto.Append(nil, e)...)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint32{2, 0} {
		var e monitor.Event
		if text := polltest.Get(t, got, "an event"); json.Unmarshal([]byte(text), &e) != nil || e.Check.Status != want ||
			e.Check.Occurrences != 1 {
			t.Errorf("status %d was to come: %s", want, text)
		}
	}
	polltest.Until(t, func() bool {
		_, body := m.open("/metrics")
		return strings.Contains(body, `sensu_go_handler_events{namespace="default",handler="sink",result="done"} 2`) &&
			strings.Contains(body, `sensu_go_handler_events{namespace="default",handler="sink",result="filtered"} 4`) &&
			strings.Contains(body, "sensu_go_event_handler_duration") &&
			strings.Contains(body, "sensu_go_event_handlers_busy 0")
	}, "the figures of the handler")
	polltest.Until(t, func() bool {
		b, _ := os.ReadFile(lines)
		return strings.Count(string(b), `"name":"disk"`) == 6
	}, "all events in the event log")
	if len(got) > 0 {
		t.Errorf("more came: %s", <-got)
	}
}
