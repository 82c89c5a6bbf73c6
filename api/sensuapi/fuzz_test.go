package sensuapi

import (
	"encoding/json"
	"testing"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
)

// Whatever an agent sends, in either form, is taken or dropped; what was taken makes an event.
func FuzzMessage(f *testing.F) {
	stop, read := make(chan struct{}), make(chan struct{})
	f.Cleanup(func() { close(stop); <-read }) // after the backend's
	b := newBackend(f)
	go func() {
		defer close(read)
		for {
			select {
			case <-b.published:
			case <-stop:
				return
			}
		}
	}()
	e := &monitor.Event{Timestamp: 1_700_000_000, Sequence: 1,
		Entity: &monitor.Entity{Meta: monitor.Meta{Name: "a", Namespace: "default"}, Class: monitor.ClassAgent,
			Subscriptions: []string{"linux"}},
		Check: &monitor.Check{Meta: monitor.Meta{Name: "cpu", Namespace: "default"}, Interval: 10, Status: 1,
			Executed: 1_700_000_000, Output: "busy"}}
	text, err := json.Marshal(e)
	if err != nil {
		f.Fatal(err)
	}
	for _, kind := range []string{"event\n", "keepalive\n"} {
		f.Add(false, append([]byte(kind), tagproto.Append(nil, e)...))
		f.Add(true, append([]byte(kind), text...))
	}
	for _, broken := range []string{"", "\n", "strange\nbody", "event\n{}", "keepalive\n[1]",
		"event\n\x0a\xff\xff\xff\xff\x0f"} {
		f.Add(len(broken)%2 == 0, []byte(broken))
	}
	f.Fuzz(func(t *testing.T, inJSON bool, message []byte) {
		s := &session{agents: b.Agents}
		s.Namespace, s.Agent, s.JSON = "default", "a", inJSON
		if err := s.Message(t.Context(), message); err != nil { // a panic
			t.Fatal(err)
		}
		for _, p := range b.ingest.List("default", "") {
			if _, err := p.Event(); err != nil {
				t.Fatal(err)
			}
			b.ingest.Delete(p.Namespace, p.Entity, p.Check)
		}
	})
}
