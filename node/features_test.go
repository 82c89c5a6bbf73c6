package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/raftgroup"
)

// TestFeaturesAreKnown: what a server with all planes tells of itself is what its release knows, else it would be told
// to stay away from its own cluster.
func TestFeaturesAreKnown(t *testing.T) {
	s := startServer(t, "told", "")
	told := ""
	polltest.Until(t, func() bool {
		m, ok := s.sees("told")
		told = m.Tags[version.TagFeatures]
		return ok
	}, "the server to see itself")
	if lacked := version.LackedFeatures(told); len(lacked) > 0 || !slices.Contains(strings.Split(told, ","), "mesh") {
		t.Errorf("it tells %q, of which its release lacks %q", told, lacked)
	}
}

// TestJobsOrderIsCommon: a server with the jobs plane tells that it keeps the order of updates, and finds that all
// servers do; one without the plane does not.
func TestJobsOrderIsCommon(t *testing.T) {
	with := startServer(t, "with", fmt.Sprintf(jobsOn, false)+"bootstrap = true")
	without := startServer(t, "without", aclOff+"bootstrap = true")
	polltest.Until(t, raftgroup.Common(with.doors.Catalog, version.JobsOrder), "the server to see that all tell it")
	polltest.Until(t, raftgroup.Common(without.doors.Catalog, "mesh"), "the other one to see what it tells")
	if raftgroup.Common(without.doors.Catalog, version.JobsOrder)() {
		t.Error("a server without the jobs plane tells the order of its updates")
	}
}
