package hub

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor"
)

// wire remembers what was sent over it.
type wire struct {
	mu  sync.Mutex
	got []ws.Message
}

func (w *wire) Send(m ws.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = append(w.got, m)
	return nil
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.got)
}

func join(h *Hub, namespace, name string, subs ...string) (*Session, *wire) {
	w := new(wire)
	s := &Session{Namespace: namespace, Agent: name, Link: w}
	h.Join(s, subs)
	return s, w
}

func request() *Message {
	return NewMessage(KindCheckRequest,
		&monitor.CheckRequest{Config: &monitor.CheckConfig{Meta: monitor.Meta{Name: "cpu"}}})
}

func TestSendReachesEachOnce(t *testing.T) {
	h := NewHub()
	_, a := join(h, "default", "a", "linux", "web", "linux")
	_, b := join(h, "default", "b", "linux")
	_, c := join(h, "default", "c", "db")
	_, other := join(h, "prod", "a", "linux")
	if n := h.Send("default", []string{"linux", "web", "none"}, request()); n != 2 || a.count() != 1 || b.count() != 1 ||
		c.count() != 0 || other.count() != 0 {
		t.Fatalf("%d: %d %d %d %d", n, a.count(), b.count(), c.count(), other.count())
	}
	if n := h.Send("default", []string{"entity:c"}, request()); n != 1 || c.count() != 1 {
		t.Fatal("an agent's own subscription")
	}
	if got := h.Members("default", "linux"); !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Fatal(got)
	}
	if got := h.Counts(); !reflect.DeepEqual(got, map[string]int{"default": 3, "prod": 1}) {
		t.Fatal(got)
	}
}

func TestANewSessionReplacesTheFormer(t *testing.T) {
	h := NewHub()
	first, w1 := join(h, "default", "a", "linux")
	w2 := new(wire)
	second := &Session{Namespace: "default", Agent: "a", Link: w2}
	if former := h.Join(second, []string{"web"}); former != first {
		t.Fatal(former)
	}
	h.Leave(first) // late: its owner did not know
	h.Subscribe(first, []string{"web", "linux"})
	if h.Get("default", "a") != second || h.Send("default", []string{"web", "linux"}, request()) != 1 || w1.count() != 0 ||
		w2.count() != 1 {
		t.Fatal("the former session is still there")
	}
	h.Subscribe(second, []string{"db"})
	if h.Send("default", []string{"web"}, request()) != 0 || h.Send("default", []string{"db"}, request()) != 1 {
		t.Fatal("subscriptions did not change")
	}
	h.Leave(second)
	if len(h.topics)+len(h.agents) != 0 {
		t.Fatal("something is left")
	}
}

func TestBothFormsAreMadeOnce(t *testing.T) {
	h := NewHub()
	var wires []*wire
	for i := range 6 {
		w := new(wire)
		wires = append(wires, w)
		h.Join(&Session{Namespace: "n", Agent: fmt.Sprint(i), JSON: i%2 == 1, Link: w}, []string{"s"})
	}
	m := request()
	if h.Send("n", []string{"s"}, m) != 6 {
		t.Fatal("not all got it")
	}
	for i, w := range wires {
		if !reflect.DeepEqual(w.got[0], m.forms[i%2]) {
			t.Errorf("session %d got another form", i)
		}
	}
	if a, b := m.forms[0].Len(), m.forms[1].Len(); a == b || a == 0 || b == 0 {
		t.Error(a, b)
	}
}

// Whatever comes and goes, a message reaches those who have its subscriptions.
func TestAgainstAList(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := NewHub()
	subs := map[string][]string{}
	live := map[string]*Session{}
	words := strings.Fields("a b c d e")
	for range 5000 {
		name := fmt.Sprint("agent-", rng.IntN(20))
		var list []string
		for _, w := range words {
			if rng.IntN(2) == 0 {
				list = append(list, w)
			}
		}
		switch s := live[name]; {
		case s == nil || rng.IntN(5) == 0:
			live[name], _ = join(h, "n", name, list...)
			subs[name] = list
		case rng.IntN(3) == 0:
			h.Leave(s)
			delete(live, name)
			delete(subs, name)
		default:
			h.Subscribe(s, list)
			subs[name] = list
		}
		ask := words[rng.IntN(len(words))]
		want := 0
		for _, list := range subs {
			if slices.Contains(list, ask) {
				want++
			}
		}
		if got := h.Send("n", []string{ask}, request()); got != want || len(h.Members("n", ask)) != want {
			t.Fatalf("%d got it, want %d", got, want)
		}
	}
}
