package raftgroup

import (
	"testing"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/version"
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
	plain := func(id string) member.Member {
		return member.Member{Status: member.Alive, Tags: map[string]string{"id": id}}
	}
	three := []member.Member{server("a", member.Alive), server("b", member.Alive), server("c", member.Alive)}
	for _, test := range []struct {
		name    string
		servers []group.Server
		pool    []member.Member
		want    Votes
	}{
		{"three", voter("a", "b", "c"), three, Votes{true, 1, false}},
		{"one has no vote yet", append(voter("a", "b"), group.Server{ID: "c"}), three, Votes{}},
		{"one is not a member yet", voter("a", "b"), three, Votes{}},
		{"one came back as another, and the former still votes", append(voter("a", "b", "former"), group.Server{ID: "c"}),
			three, Votes{}},
		{"one is dead", voter("a", "b", "c"), []member.Member{three[0], three[1], server("c", member.Failed)}, Votes{}},
		{"a replica", append(voter("a", "b", "c"), group.Server{ID: "r"}),
			append(three[:3:3], server("r", member.Alive, "read_replica")), Votes{true, 1, false}},
		{"a server without the plane", voter("a", "b", "c"),
			append(three[:3:3], plain("x")), Votes{true, 1, false}},
		{"the plane came to one of three", voter("a"), []member.Member{three[0], plain("b"), plain("c")},
			Votes{true, 0, true}},
		{"and to two", voter("a", "b"), []member.Member{three[0], three[1], plain("c")}, Votes{true, 0, true}},
		{"it left one of three, which still votes", voter("a", "b", "c"),
			[]member.Member{plain("a"), three[1], three[2]}, Votes{true, 0, true}},
		{"and gossip forgot one", voter("a", "b", "c"), three[:2], Votes{}},
		{"one alone", voter("a"), three[:1], Votes{true, 0, true}},
		{"five, of which two are dead", voter("a", "b", "c", "d", "e"), three, Votes{}},
	} {
		got := countVotes(test.servers, test.pool, func(m member.Member) bool { return m.Tags["monitor"] != "" })
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// TestAllTell: what all servers of a group have to know is not taken for known while one of them does not say so, be it
// away, not heard of, or there in two releases.
func TestAllTell(t *testing.T) {
	two := []group.Server{{ID: "a", Voter: true}, {ID: "b"}}
	tells := func(id, value string, status member.Status) member.Member {
		return member.Member{Name: id + value, Status: status, Tags: map[string]string{"id": id, version.TagFeatures: value}}
	}
	a, b := tells("a", "jobs,order", member.Alive), tells("b", "order", member.Failed)
	for _, test := range []struct {
		name    string
		servers []group.Server
		pool    []member.Member
		want    bool
	}{
		{"both, one of which is away", two, []member.Member{a, b}, true},
		{"one of an older release", two, []member.Member{a, tells("b", "jobs", member.Alive)}, false},
		{"the same, away for the upgrade", two, []member.Member{a, tells("b", "jobs", member.Failed)}, false},
		{"one that gossip does not know", two, []member.Member{a}, false},
		{"one under two names", two, []member.Member{a, b, tells("b", "jobs", member.Failed)}, false},
		{"and the other way round", two, []member.Member{a, tells("b", "jobs", member.Failed), b}, false},
		{"an older one that is not of the group", two, []member.Member{a, b, tells("c", "jobs", member.Alive)}, true},
		{"no group", nil, []member.Member{a, b}, false},
	} {
		if got := allTell(test.servers, test.pool, "order"); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
