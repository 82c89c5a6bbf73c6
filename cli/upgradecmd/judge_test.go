package upgradecmd

import (
	"errors"
	"strings"
	"testing"

	"corbel.dev/corbel/client"
)

func member(name, release string) client.Member {
	return client.Member{Name: name, Status: 1, ProtocolCur: 2,
		Tags: map[string]string{"role": "consul", "ft": "acl,jobs", "build": "1.21.4:corbel" + release, "raft_vsn": "3"}}
}

// Each case is a change of a cluster that may be upgraded, and what is said of it.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*facts)
		grade  Grade
		want   string
	}{
		"fine":         {func(*facts) {}, Good, "a, b, c run it"},
		"last release": {func(f *facts) { f.own = "0.2.0" }, Good, "this one is 0.2.0"},
		"too far":      {func(f *facts) { f.own = "0.3.0" }, Refused, "2 minor releases later"},
		"way back":     {func(f *facts) { f.members[0] = member("a", "0.2.0") }, Warn, "later than 0.1.0"},
		"mixed":        {func(f *facts) { f.members[0] = member("a", "0.1.1") }, Warn, "0.1.0 and 0.1.1"},
		"features":     {func(*facts) {}, Good, "all that are switched on: acl, jobs"},
		"lacked": {func(f *facts) { f.members[2].Tags["ft"] = "acl,teleport" }, Refused,
			"c have it switched on, and this release lacks it"},
		"agents tell nothing": {func(f *facts) {
			f.members[2].Tags["ft"], f.members[2].Tags["role"] = "teleport", "node"
		}, Good, "all that are switched on: acl, jobs"},
		"silent":        {func(f *facts) { delete(f.members[1].Tags, "ft") }, Good, "b do not tell"},
		"foreign":       {func(f *facts) { f.members[0].Tags["build"] = "1.21.4" }, Warn, "not told by a"},
		"gossip":        {func(f *facts) { f.members[1].ProtocolCur = 6 }, Refused, "b speaks gossip 6"},
		"raft":          {func(f *facts) { f.members[1].Tags["raft_vsn"] = "2" }, Refused, "b speaks Raft 2"},
		"no leader":     {func(f *facts) { f.leader = "" }, Refused, "no leader"},
		"no spare":      {func(f *facts) { f.spare = 0 }, Refused, "none of 3 servers"},
		"one":           {func(f *facts) { f.raft = f.raft[:1] }, Warn, "there is one server"},
		"state":         {func(f *facts) { f.state = errors.New("unknown record") }, Refused, "unknown record"},
		"lost":          {func(f *facts) { f.same = false }, Refused, "writes it otherwise"},
		"denied":        {func(f *facts) { f.stateSkipped = "not checked: denied" }, Warn, "denied"},
		"configuration": {func(f *facts) { f.config = []string{"x: unknown key"} }, Refused, "unknown key"},
		"no files":      {func(f *facts) { f.configGiven = false }, Warn, "not checked"},
		"old key":       {func(f *facts) { f.warnings = []string{"y: no effect"} }, Warn, "no effect"},
		"left long ago": {func(f *facts) { f.members = append(f.members, client.Member{Name: "d", Status: 4}) }, Good,
			"a, b, c"},
		"a long way off": {func(f *facts) { f.own = "1.0.0" }, Refused, "99 minor releases"},
	} {
		f := &facts{own: "0.1.0", leader: "x", healthy: true, spare: 1, same: true, configGiven: true,
			members: []client.Member{member("a", "0.1.0"), member("b", "0.1.0"), member("c", "0.1.0")},
			raft: []client.RaftServer{{Voter: true, ProtocolVersion: "3"}, {Voter: true, ProtocolVersion: "3"},
				{Voter: true, ProtocolVersion: "3"}}}
		c.change(f)
		found, worst := false, Good
		for _, x := range judge(f) {
			found = found || x.Grade == c.grade && strings.Contains(x.Found, c.want)
			if x.Grade == Refused || x.Grade == Warn && worst == Good {
				worst = x.Grade
			}
			if (x.Grade == Good) != (x.Remedy == "") {
				t.Errorf("%s: %+v: a remedy belongs to what is not good", name, x)
			}
		}
		if !found || worst != c.grade {
			t.Errorf("%s: worst is %s, want %s with %q in %+v", name, worst, c.grade, c.want, judge(f))
		}
	}
}
