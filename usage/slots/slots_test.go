package slots

import (
	"fmt"
	"slices"
	"testing"
)

// TestOf has the published vectors, and the rules of braces.
func TestOf(t *testing.T) {
	for key, want := range map[string]int{"123456789": 0x31c3, "foo": 12182, "bar": 5061, "hello": 866,
		"{user1000}.following": Of([]byte("user1000")), "foo{}{bar}": Of([]byte("foo{}{bar}")),
		"foo{{bar}}zap": Of([]byte("{bar")), "foo{bar}{zap}": Of([]byte("bar")), "": 0, "{": Of([]byte("{"))} {
		if got := Of([]byte(key)); got != want {
			t.Errorf("%q is in slot %d, want %d", key, got, want)
		}
	}
	if Of([]byte("foo{}{bar}")) == Of([]byte("bar")) {
		t.Error("empty braces are a part of the key")
	}
}

func nodes(n int) (list []Node) {
	for i := range n {
		list = append(list, Node{ID: fmt.Sprintf("%040x", i*7919), Host: "10.0.0." + fmt.Sprint(i), Port: 6379})
	}
	return list
}

func owned(m *Map) map[string]int {
	count := map[string]int{}
	for s := range Count {
		n, _ := m.Owner(s)
		count[n.ID]++
	}
	return count
}

// TestAssign: shares are fair, a host that drains owns nothing, and only its slots move.
func TestAssign(t *testing.T) {
	list := nodes(5)
	all := Assign(list, 2)
	for id, n := range owned(all) {
		if n < Count/5*7/10 || n > Count/5*13/10 {
			t.Errorf("%s owns %d slots of %d", id, n, Count)
		}
	}
	slices.Reverse(list)
	if got := Assign(list, 2); fmt.Sprint(owned(got)) != fmt.Sprint(owned(all)) {
		t.Error("the order of the hosts matters")
	}
	list[1].Draining = true
	less := Assign(list, 2)
	for s := range Count {
		before, _ := all.Owner(s)
		after := less.Owners(s)
		switch {
		case len(after) != 2 || after[0].ID == after[1].ID:
			t.Fatalf("slot %d is at %v", s, after)
		case after[0].ID == list[1].ID:
			t.Fatalf("slot %d stayed with the host that drains", s)
		case before.ID != list[1].ID && before.ID != after[0].ID:
			t.Fatalf("slot %d moved from %s to %s", s, before.ID, after[0].ID)
		case before.ID == list[1].ID && all.Owners(s)[1].ID != after[0].ID:
			t.Fatalf("slot %d did not go to its replica", s)
		}
	}
	at := 0
	for _, r := range less.Ranges() {
		if r.From != at || r.To < r.From {
			t.Fatalf("a range from %d to %d after %d", r.From, r.To, at)
		}
		at = r.To + 1
	}
	if at != Count {
		t.Errorf("the ranges end at %d", at)
	}
}

// TestFew: one host that drains is still the owner, and no hosts own nothing.
func TestFew(t *testing.T) {
	one := nodes(1)
	one[0].Draining = true
	if n, ok := Assign(one, 2).Owner(3); !ok || n.Addr() != "10.0.0.0:6379" {
		t.Error(n, ok)
	}
	if _, ok := Assign(nil, 2).Owner(3); ok {
		t.Error("nobody owns something")
	}
	if got := len(Assign(nodes(300), 1).Nodes()); got != MaxNodes {
		t.Error(got)
	}
	if got := (Node{Host: "::1", Port: 1}).Addr(); got != "[::1]:1" {
		t.Error(got)
	}
}
