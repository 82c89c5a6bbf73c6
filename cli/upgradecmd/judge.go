package upgradecmd

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/version"
)

// Grade is what a finding means for the upgrade.
type Grade string

// Grades.
const (
	Good    Grade = "ok"
	Warn    Grade = "warn"    // go on with care
	Refused Grade = "refused" // this release would refuse it, or lose something
)

// Finding is one thing that was looked at.
type Finding struct {
	Name   string
	Grade  Grade
	Found  string
	Remedy string `json:",omitempty"`
}

// facts are what a running cluster and the files of this host told.
type facts struct {
	own     string // this release
	members []client.Member
	raft    []client.RaftServer
	leader  string
	healthy bool
	spare   int // servers that may fail
	// state is why this release cannot read the state; same, whether it writes it again as it was.
	state        error
	same         bool
	stateSkipped string
	config       []string // problems of the files
	warnings     []string
	configGiven  bool
}

// What this release speaks: gossip and its delegate, as core/member sets them, and Raft.
const (
	gossipMin, gossipMax = 1, 5
	raftProtocol         = 3
)

// judge decides. It is pure.
func judge(f *facts) (list []Finding) {
	add := func(name string, g Grade, remedy, format string, args ...any) {
		if g == Good {
			remedy = ""
		}
		list = append(list, Finding{name, g, fmt.Sprintf(format, args...), remedy})
	}
	judgeReleases(f, add)
	judgeProtocols(f, add)
	judgeFeatures(f, add)
	judgeQuorum(f, add)
	switch {
	case f.stateSkipped != "":
		add("state", Warn, "give a token with management rights (-token), to know whether something would be lost",
			"%s", f.stateSkipped)
	case f.state != nil:
		add("state", Refused, "keep the release that runs, and report this", "this release cannot read it: %v", f.state)
	case !f.same:
		add("state", Refused, "it may hold what this release does not know: keep the release that runs, and report this",
			"this release reads it, and writes it otherwise")
	default:
		add("state", Good, "", "read to its end and written again byte by byte the same: nothing would be lost")
	}
	switch {
	case !f.configGiven:
		add("configuration", Warn, "give the servers' files: --config-dir /etc/corbel.d", "not checked")
	case len(f.config) > 0:
		add("configuration", Refused, "mend it before the upgrade", "%s", strings.Join(f.config, "; "))
	case len(f.warnings) > 0:
		add("configuration", Warn, "see docs/configuration.md", "%s", strings.Join(f.warnings, "; "))
	default:
		add("configuration", Good, "", "this release takes it")
	}
	return list
}

type adder func(name string, g Grade, remedy, format string, args ...any)

// judgeReleases compares this release with those that run: servers go from a release to the next one and back.
func judgeReleases(f *facts, add adder) {
	by := map[string][]string{}
	unknown := []string{}
	for i := range f.members {
		m := &f.members[i]
		if m.StatusText() != "alive" {
			continue
		}
		if v := releaseOf(m); v != "" {
			by[v] = append(by[v], m.Name)
		} else {
			unknown = append(unknown, m.Name)
		}
	}
	if len(unknown) > 0 {
		add("releases", Warn, "only Corbel's own members can be judged", "not told by %s", names(unknown))
	}
	versions := make([]string, 0, len(by))
	for v := range by {
		versions = append(versions, v)
	}
	slices.SortFunc(versions, compareVersions)
	for _, v := range versions {
		switch apart := distance(v, f.own); {
		case apart > 1:
			add("release "+v, Refused, "go one minor release at a time", "%s run it; %s is %d minor releases later",
				names(by[v]), f.own, apart)
		case apart < -1:
			add("release "+v, Refused, "go back one minor release at a time", "%s run it; %s is %d minor releases earlier",
				names(by[v]), f.own, -apart)
		case apart < 0 || compareVersions(v, f.own) > 0:
			add("release "+v, Warn, "this is a way back: agents first, then servers", "%s run it, which is later than %s",
				names(by[v]), f.own)
		default:
			add("release "+v, Good, "", "%s run it; this one is %s", names(by[v]), f.own)
		}
	}
	if len(versions) > 1 {
		add("releases", Warn, "finish the upgrade that is under way first", "the cluster runs %s",
			strings.Join(versions, " and "))
	}
}

func judgeProtocols(f *facts, add adder) {
	var wrong []string
	for i := range f.members {
		m := &f.members[i]
		if cur := int(m.ProtocolCur); m.StatusText() == "alive" && (cur < gossipMin || cur > gossipMax) {
			wrong = append(wrong, fmt.Sprintf("%s speaks gossip %d", m.Name, cur))
		}
		if v := m.Tags["raft_vsn"]; v != "" && v != strconv.Itoa(raftProtocol) {
			wrong = append(wrong, fmt.Sprintf("%s speaks Raft %s", m.Name, v))
		}
	}
	for _, s := range f.raft {
		if s.ProtocolVersion != "" && s.ProtocolVersion != strconv.Itoa(raftProtocol) {
			wrong = append(wrong, fmt.Sprintf("%s is in the Raft group with protocol %s", s.Node, s.ProtocolVersion))
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		add("protocols", Refused, "bring these to a release between", "this release speaks gossip %d to %d and Raft %d: %s",
			gossipMin, gossipMax, raftProtocol, strings.Join(slices.Compact(wrong), ", "))
		return
	}
	add("protocols", Good, "", "all members speak gossip %d to %d, servers Raft %d", gossipMin, gossipMax, raftProtocol)
}

// judgeFeatures compares what the servers have switched on with what this release knows.
func judgeFeatures(f *facts, add adder) {
	lacked := map[string][]string{}
	var silent []string
	on := map[string]bool{}
	for i := range f.members {
		m := &f.members[i]
		told, tells := m.Tags[version.TagFeatures]
		switch {
		case m.StatusText() != "alive" || m.Tags["role"] != "consul":
			continue
		case !tells:
			silent = append(silent, m.Name)
			continue
		}
		for name := range strings.SplitSeq(told, ",") {
			if name != "" {
				on[name] = true
			}
		}
		for _, name := range version.LackedFeatures(told) {
			lacked[name] = append(lacked[name], m.Name)
		}
	}
	if len(lacked) > 0 {
		for _, name := range slices.Sorted(maps.Keys(lacked)) {
			add("feature "+name, Refused, "switch it off on all servers first, or keep a release that has it",
				"%s have it switched on, and this release lacks it", names(lacked[name]))
		}
		return
	}
	text := "none is told"
	if len(on) > 0 {
		text = "this release has all that are switched on: " + strings.Join(slices.Sorted(maps.Keys(on)), ", ")
	}
	if len(silent) > 0 { // releases that do not tell have none that this one lacks
		text += fmt.Sprintf("; %s do not tell, being of an earlier release", names(silent))
	}
	add("features", Good, "", "%s", text)
}

// judgeQuorum tells whether one server may be away.
func judgeQuorum(f *facts, add adder) {
	voters := 0
	for _, s := range f.raft {
		if s.Voter {
			voters++
		}
	}
	switch {
	case f.leader == "":
		add("quorum", Refused, "mend the cluster first: corbel doctor", "no leader is known")
	case voters == 1:
		add("quorum", Warn, "nobody is served while it restarts", "there is one server")
	case !f.healthy || f.spare < 1:
		add("quorum", Refused, "mend the cluster first: corbel operator autopilot state",
			"none of %d servers may be away now (healthy: %t)", voters, f.healthy)
	default:
		add("quorum", Good, "", "%d of %d servers may be away", f.spare, voters)
	}
}

// releaseOf is a member's release: its build is the contract's version and, behind "corbel", its own.
func releaseOf(m *client.Member) string {
	_, own, _ := strings.Cut(m.Tags["build"], "corbel")
	return own
}

// distance is how many minor releases lie from a to b; a major release is a hundred of them.
func distance(a, b string) int { return ordinal(b) - ordinal(a) }

func ordinal(v string) int {
	parts := strings.SplitN(v, ".", 3)
	major, _ := strconv.Atoi(parts[0])
	minor := 0
	if len(parts) > 1 {
		minor, _ = strconv.Atoi(parts[1])
	}
	return 100*major + minor
}

// compareVersions orders releases.
func compareVersions(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		m, err1 := strconv.Atoi(x[i])
		n, err2 := strconv.Atoi(y[i])
		if err1 != nil || err2 != nil {
			return strings.Compare(a, b)
		}
		if m != n {
			return m - n
		}
	}
	return len(x) - len(y)
}

// mostNames is how many members are named.
const mostNames = 5

func names(list []string) string {
	slices.Sort(list)
	if len(list) > mostNames {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:mostNames], ", "), len(list)-mostNames)
	}
	return strings.Join(list, ", ")
}
