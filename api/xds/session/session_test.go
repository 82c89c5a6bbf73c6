package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/mesh"
	"google.golang.org/protobuf/encoding/protowire"
)

// made encodes a resource as mesh/envoy does: body and Any in one array.
func made(t mesh.Type, name, version string, mentioned ...string) *mesh.Resource {
	value := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name+strings.Join(mentioned, " "))
	a := appendText(nil, 1, t.URL())
	a = protowire.AppendBytes(protowire.AppendTag(a, 2, protowire.BytesType), value)
	body := appendText(nil, 1, version)
	body = protowire.AppendBytes(protowire.AppendTag(body, 2, protowire.BytesType), a)
	at := len(body)
	body = appendText(body, 3, name)
	return &mesh.Resource{Type: t, Name: name, Version: version, Body: body, Any: body[at-len(a) : at : at]}
}

type sets map[mesh.Type]mesh.Set

func (s sets) Set(t mesh.Type) mesh.Set { return s[t] }

func (s sets) put(list ...*mesh.Resource) {
	for _, r := range list {
		s[r.Type] = s[r.Type].With(r)
	}
}

// script runs a session through lines of a small language and compares what it says.
type script struct {
	t    *testing.T
	s    *Session
	sets sets
	last map[mesh.Type]uint32
}

var short = map[string]mesh.Type{"sds": 0, "cds": 1, "eds": 2, "ecds": 3, "lds": 4, "rds": 5}

func shortName(t mesh.Type) string { return []string{"sds", "cds", "eds", "ecds", "lds", "rds"}[t] }

func (c *script) send() string {
	var out Response
	if !c.s.Next(c.sets, time.Unix(100, 0), &out) {
		return "nothing" + c.resumed(&out)
	}
	c.last[out.Type] = out.Nonce
	said := shortName(out.Type)
	for _, r := range out.Resources {
		said += " " + r.Name + "@" + r.Version
	}
	for _, name := range out.Removed {
		said += " -" + name
	}
	return said + c.resumed(&out)
}

func (c *script) resumed(out *Response) (said string) {
	for _, r := range out.Resumed {
		said += " (has " + r.Name + ")"
	}
	return said
}

// do runs one line: "set cds a@1 b@1 [mentioning]", "gone cds a", "sub|unsub cds a b",
// "have cds a@1" (a first request with versions), "want eds a b" (state of the world),
// "ack cds", "nack cds words", "stale cds"; it returns what was answered.
func (c *script) do(line string) string {
	w := strings.Fields(line)
	t := short[w[1]]
	r := Request{Type: t, Known: true}
	switch w[0] {
	case "set":
		for _, one := range w[2:] {
			name, version, _ := strings.Cut(one, "@")
			version, mentioned, _ := strings.Cut(version, ":")
			c.sets.put(made(t, name, version, mentioned))
		}
		c.s.Changed(1 << t)
		return ""
	case "gone":
		c.sets[t] = c.sets[t].Without(w[2:]...)
		c.s.Changed(1 << t)
		return ""
	case "sub":
		r.Subscribe = w[2:]
	case "unsub":
		r.Unsubscribe = w[2:]
	case "want":
		r.Subscribe, r.Nonce = w[2:], c.last[t]
	case "have":
		for _, one := range w[2:] {
			name, version, _ := strings.Cut(one, "@")
			r.Initial = append(r.Initial, Held{name, version})
			if t != mesh.TypeCluster && t != mesh.TypeListener {
				r.Subscribe = append(r.Subscribe, name)
			}
		}
	case "ack":
		r.Nonce = c.last[t]
	case "nack":
		r.Nonce, r.Failed, r.Error = c.last[t], true, strings.Join(w[2:], " ")
	case "stale":
		r.Nonce = c.last[t] + 7
	default:
		c.t.Fatalf("no such line: %s", line)
	}
	var a Answer
	ok, err := c.s.Request(&r, &a)
	if err != nil {
		return "error: " + err.Error()
	}
	if !ok {
		return ""
	}
	said := "applied"
	if a.Refused != "" {
		said = "refused (" + a.Refused + ")"
	}
	for _, r := range a.Resources {
		said += " " + r.Name + "@" + r.Version
	}
	if a.Removed > 0 {
		said += fmt.Sprintf(" and %d removed", a.Removed)
	}
	return said
}

// run executes "line" or "line => answer", and "< response".
func run(t *testing.T, world bool, story string) {
	t.Helper()
	c := &script{t: t, s: New(world), sets: sets{}, last: map[mesh.Type]uint32{}}
	for n, line := range strings.Split(strings.TrimSpace(story), "\n") {
		line = strings.TrimSpace(line)
		if want, ok := strings.CutPrefix(line, "< "); ok {
			if got := c.send(); got != want {
				t.Fatalf("line %d: sends %q, want %q", n+1, got, want)
			}
			continue
		}
		line, want, asked := strings.Cut(line, " => ")
		if got := c.do(line); asked && got != want {
			t.Fatalf("line %d: %s: got %q, want %q", n+1, line, got, want)
		}
	}
}

func TestDelta(t *testing.T) {
	for name, story := range deltaStories {
		t.Run(name, func(t *testing.T) { run(t, false, story) })
	}
}

func TestStateOfTheWorld(t *testing.T) {
	for name, story := range worldStories {
		t.Run(name, func(t *testing.T) { run(t, true, story) })
	}
}

func TestEntriesShowWhatTheClientHas(t *testing.T) {
	c := &script{t: t, s: New(false), sets: sets{}, last: map[mesh.Type]uint32{}}
	for _, line := range []string{"set cds a@1", "sub cds", "", "ack cds", "set cds a@2", ""} {
		if line == "" {
			c.send()
			continue
		}
		c.do(line)
	}
	c.do("nack cds no")
	got := c.s.Entries(mesh.TypeCluster)
	if len(got) != 1 || got[0].Sent.Version != "2" || got[0].Acked.Version != "1" {
		t.Errorf("entries: %+v", got)
	}
	if c.s.Entries(mesh.TypeRoute) != nil {
		t.Error("entries of a type that was never asked for")
	}
}

func TestTooManyNamesEndTheStream(t *testing.T) {
	s, r, a := New(false), Request{Type: mesh.TypeEndpoints, Known: true}, Answer{}
	for i := range maxNames {
		r.Subscribe = append(r.Subscribe, fmt.Sprint("a", i))
	}
	if _, err := s.Request(&r, &a); err != nil {
		t.Fatal(err)
	}
	r.Subscribe = []string{"one more"}
	if _, err := s.Request(&r, &a); err == nil {
		t.Error("a name beyond the limit was taken")
	}
}

func TestLargeResponsesAreSplit(t *testing.T) {
	c := &script{t: t, s: New(false), sets: sets{}, last: map[mesh.Type]uint32{}}
	for i := range 5 {
		r := made(mesh.TypeEndpoints, fmt.Sprint("e", i), "1")
		r.Body = append(slices.Clone(r.Body), make([]byte, responseBytes/2)...)
		c.sets.put(r)
	}
	c.do("sub eds e0 e1 e2 e3 e4")
	seen := ""
	for range 10 {
		if said := c.send(); said != "nothing" {
			seen += strings.TrimPrefix(said, "eds")
			c.do("ack eds")
		}
	}
	if want := " e0@1 e1@1 e2@1 e3@1 e4@1"; seen != want {
		t.Errorf("sent %q, want each once", seen)
	}
}

func TestChangedIsSetForNewsOnly(t *testing.T) {
	s, from, out, a := New(false), sets{}, Response{}, Answer{}
	at := time.Unix(1000, 0)
	put := func(version string) {
		r := made(mesh.TypeCluster, "a", version)
		r.Changed = at
		from.put(r)
		s.Changed(mesh.AllTypes)
	}
	put("1")
	_, _ = s.Request(&Request{Type: mesh.TypeCluster, Known: true}, &a)
	if !s.Next(from, at, &out) || !out.Changed.IsZero() {
		t.Fatalf("what a new client gets is no news: %v", out.Changed)
	}
	_, _ = s.Request(&Request{Type: mesh.TypeCluster, Known: true, Nonce: out.Nonce}, &a)
	put("2")
	if !s.Next(from, at, &out) || !out.Changed.Equal(at) {
		t.Fatalf("a change is news: %v", out.Changed)
	}
}
