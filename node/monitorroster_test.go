package node

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/hub"
	"corbel.dev/corbel/monitor/objects"
)

// runner is an agent that counts the check requests it gets.
type runner struct {
	mu  sync.Mutex
	got map[string][]*monitor.CheckRequest // by check
}

// runs connects an agent that reads until its connection ends.
func (m *testMember) runs(name string, subscriptions ...string) *runner {
	m.t.Helper()
	conn := m.agent(name, subscriptions...)
	r := &runner{got: map[string][]*monitor.CheckRequest{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			b, err := conn.Read(nil)
			if err != nil {
				return
			}
			kind, body, _ := bytes.Cut(b, []byte{'\n'})
			if string(kind) != hub.KindCheckRequest {
				continue
			}
			q := new(monitor.CheckRequest)
			if err := tagproto.Unmarshal(body, q); err != nil {
				m.t.Error(err)
				return
			}
			r.mu.Lock()
			r.got[q.Config.Name] = append(r.got[q.Config.Name], q)
			r.mu.Unlock()
		}
	}()
	m.t.Cleanup(func() { _ = conn.Close(); <-done })
	return r
}

func (r *runner) count(check string) int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.got[check]) }

func (r *runner) last(check string) *monitor.CheckRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got[check][len(r.got[check])-1]
}

// more waits until each agent got so many more requests of a check.
func more(t *testing.T, agents []*runner, check string, n int) {
	t.Helper()
	before := make([]int, len(agents))
	for i, a := range agents {
		before[i] = a.count(check)
	}
	polltest.Until(t, func() bool {
		for i, a := range agents {
			if a.count(check) < before[i]+n {
				return false
			}
		}
		return true
	}, "%d more requests of %s", n, check)
}

func (m *testMember) put(c *monitor.CheckConfig) {
	m.t.Helper()
	c.Namespace = "default"
	op := objects.Op{Verb: objects.Put, Type: "checks", Namespace: "default", Name: c.Name, Encoded: tagproto.Append(nil, c)}
	polltest.NoError(m.t, time.Minute, func() error { return m.monitor.resources.Write(m.t.Context(), op) }, "check %s to be written", c.Name)
}

func everySecond(name string, subscriptions ...string) *monitor.CheckConfig {
	return &monitor.CheckConfig{Meta: monitor.Meta{Name: name}, Command: "true", Interval: 1, Publish: true, Subscriptions: subscriptions}
}

// TestMonitorSchedules: a check that is written reaches agents over their sessions, once though two subscriptions match; subdued or deleted it does not.
func TestMonitorSchedules(t *testing.T) {
	m := startServer(t, "mon", monitorOn+"bootstrap = true")
	a := m.runs("web-1", "linux", "web")
	m.put(everySecond("disk", "linux", "web"))
	m.put(everySecond("beat", "linux"))
	more(t, []*runner{a}, "disk", 3)
	a.mu.Lock()
	for i, q := range a.got["disk"][1:] {
		if before := a.got["disk"][i]; q.Issued <= before.Issued || q.Config.Command != "true" {
			t.Errorf("%+v after %+v", q, before)
		}
	}
	a.mu.Unlock()
	silent := func(why string) {
		t.Helper()
		more(t, []*runner{a}, "beat", 2) // what was on its way has come
		n := a.count("disk")
		if more(t, []*runner{a}, "beat", 3); a.count("disk") != n {
			t.Errorf("%s: the check still runs", why)
		}
	}
	c := everySecond("disk", "linux")
	c.Subdues = []*monitor.Subdue{{Begin: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), End: time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}}
	m.put(c)
	silent("subdued")
	m.put(everySecond("disk", "linux"))
	more(t, []*runner{a}, "disk", 2)
	if err := m.monitor.resources.Write(t.Context(), objects.Op{Verb: objects.Delete, Type: "checks", Namespace: "default", Name: "disk"}); err != nil {
		t.Fatal(err)
	}
	silent("deleted")
}

// TestMonitorClusterRounds: agents of three servers share a check that goes round, also after the leader has gone, and a check that is
// executed on request reaches all.
func TestMonitorClusterRounds(t *testing.T) {
	servers := startCluster(t, 3, monitorOn)
	var agents []*runner
	for i, m := range servers {
		for j := range 2 {
			agents = append(agents, m.runs(fmt.Sprintf("agent-%d-%d", i, j), "linux"))
		}
	}
	c := everySecond("shared", "linux")
	c.RoundRobin = true
	servers[0].put(c)
	more(t, agents, "shared", 2)
	if s := agents[5].last("shared").Config.Scheduler; s != "corbel" {
		t.Error(s)
	}
	asked := everySecond("asked", "linux")
	asked.Publish = false
	servers[1].put(asked)
	issued, err := servers[1].monitor.roster.Execute(t.Context(), "default", "asked", nil, "admin", "a look")
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range agents {
		polltest.Until(t, func() bool { return a.count("asked") == 1 }, "agent %d to run what was asked for", i)
		if at := a.last("asked").Issued; at != issued {
			t.Errorf("agent %d: issued %d, not %d", i, at, issued)
		}
	}
	var leader int
	polltest.Until(t, func() bool {
		for i, m := range servers {
			if m.monitor.raft.LeaseHeld() {
				leader = i
				return true
			}
		}
		return false
	}, "a leader of the plane")
	if err := servers[leader].stop(); err != nil {
		t.Error(err)
	}
	more(t, slices.Delete(agents, 2*leader, 2*leader+2), "shared", 2)
}
