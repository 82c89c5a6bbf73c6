package raftgroup

import (
	"testing"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
)

func TestCountVotes(t *testing.T) {
	voter := func(ids ...string) (list []group.Server) {
		for _, id := range ids {
			list = append(list, group.Server{ID: id, Voter: true})
		}
		return list
	}
	server := func(id string, status member.Status, tags ...string) member.Member {
		m := member.Member{Name: id, Status: status, Tags: map[string]string{"id": id, "monitor": "1"}}
		for _, tag := range tags {
			m.Tags[tag] = "1"
		}
		return m
	}
	three := []member.Member{server("a", member.Alive), server("b", member.Alive), server("c", member.Alive)}
	for _, test := range []struct {
		name      string
		servers   []group.Server
		pool      []member.Member
		whole     bool
		tolerance int
	}{
		{"three", voter("a", "b", "c"), three, true, 1},
		{"one has no vote yet", append(voter("a", "b"), group.Server{ID: "c"}), three, false, 0},
		{"one is not a member yet", voter("a", "b"), three, false, 0},
		{"one came back as another, and the former still votes", append(voter("a", "b", "former"), group.Server{ID: "c"}),
			three, false, 0},
		{"one is dead", voter("a", "b", "c"), []member.Member{three[0], three[1], server("c", member.Failed)}, false, 0},
		{"a replica", append(voter("a", "b", "c"), group.Server{ID: "r"}),
			append(three[:3:3], server("r", member.Alive, "read_replica")), true, 1},
		{"a server without the plane", voter("a", "b", "c"),
			append(three[:3:3], member.Member{Status: member.Alive, Tags: map[string]string{"id": "x"}}), true, 1},
		{"one alone", voter("a"), three[:1], true, 0},
		{"five, of which two are dead", voter("a", "b", "c", "d", "e"), three, false, 0},
	} {
		whole, tolerance := countVotes(test.servers, test.pool,
			func(m member.Member) bool { return m.Tags["monitor"] != "" })
		if whole != test.whole || tolerance != test.tolerance {
			t.Errorf("%s: %t, %d", test.name, whole, tolerance)
		}
	}
}
