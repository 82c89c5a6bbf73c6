package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/node/plane"
	jobsplane "corbel.dev/corbel/node/planes/jobs"
)

// jobsOn is a server whose host runs simulated tasks.
const jobsOn = aclOff + `
ports { serf_wan = -1 }
usage { enabled = false }
jobs { enabled = true, port = 0, agent {
  enabled = %v, mock_driver = true, exec = false, java = false, docker = "", podman = ""
} }
`

// nomad asks the API of a member's jobs plane.
func (m *testMember) nomad(method, path, body string) (string, error) {
	addr := plane.Find[*jobsplane.Plane](m.doors.Planes).Addr()
	r, err := http.NewRequestWithContext(m.t.Context(), method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	return string(text), err
}

// mockJob is a service of so many simulated tasks.
func mockJob(id string, count int) string {
	return fmt.Sprintf(`{"Job":{"ID":%q,"Name":%q,"Type":"service","TaskGroups":[{"Name":"g","Count":%d,"Tasks":[
		{"Name":"t","Driver":"mock_driver","Config":{"run_for":"1h"},
		"Resources":{"CPU":10,"MemoryMB":10}}]}]}}`, id, id, count)
}

// awaitRunning waits until a job's allocations run, as the API of a member says.
func (m *testMember) awaitRunning(id string, count int) {
	m.t.Helper()
	polltest.NoError(m.t, polltest.Deadline, func() error {
		text, err := m.nomad("GET", "/v1/job/"+id+"/summary", "")
		if err != nil {
			return err
		}
		var s struct {
			Summary map[string]struct{ Running int }
		}
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return err
		}
		if s.Summary["g"].Running != count {
			return errors.New(text)
		}
		return nil
	}, "%d of %s to run at %s", count, id, m.Cfg.Node.Name)
}

// restoreAt has servers of a cluster, one that leads and two that pass archives on, save and restore: what came after
// the snapshot ends on its node, what was there before runs on untouched, and indexes only grow.
func restoreAt(t *testing.T, leader, saver, restorer, host *testMember) {
	t.Helper()
	ask := func(m *testMember, method, path, body string) string {
		t.Helper()
		text, err := m.nomad(method, path, body)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	get := func(m *testMember, path string, out any) {
		t.Helper()
		if err := json.Unmarshal([]byte(ask(m, "GET", path, "")), out); err != nil {
			t.Fatal(err)
		}
	}
	tasks := func() string { // when the tasks of the first job began, and how often they began anew
		t.Helper()
		var list []struct {
			ID, ClientStatus string
			TaskStates       map[string]struct {
				StartedAt string
				Restarts  int
			}
		}
		get(restorer, "/v1/job/job0/allocations", &list)
		return fmt.Sprint(list)
	}
	index := func() (of struct{ ModifyIndex uint64 }) {
		t.Helper()
		get(leader, "/v1/job/job0", &of)
		return of
	}
	running, whole := tasks(), ask(saver, "GET", "/v1/operator/snapshot", "")
	ask(saver, "PUT", "/v1/jobs", mockJob("later", 2))
	saver.awaitRunning("later", 2)
	before := index().ModifyIndex
	if _, err := restorer.nomad("PUT", "/v1/operator/snapshot", whole[:len(whole)/2]); err == nil ||
		!strings.Contains(err.Error(), "400") {
		t.Errorf("half a snapshot: %v", err)
	}
	woken := make(chan error, 1)
	present := plane.Find[*jobsplane.Plane](leader.doors.Planes).Index()
	go func() { // it waits for a change of what will not be there any more
		_, err := saver.nomad("GET", fmt.Sprintf("/v1/job/later?stale&wait=5m&index=%d", present), "")
		woken <- err
	}()
	ask(restorer, "PUT", "/v1/operator/snapshot", whole)
	if err := <-woken; err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("who waited for a job that is no more: %v", err)
	}
	if after := index().ModifyIndex; after < before+1<<20 {
		t.Errorf("the index went from %d to %d", before, after)
	}
	polltest.NoError(t, time.Minute, func() error {
		text, err := host.nomad("GET", "/v1/metrics?format=prometheus", "")
		if err == nil && !strings.Contains(text, "\nnomad_client_allocations_running 6\n") {
			_, text, _ = strings.Cut(text, "\nnomad_client_allocations_running")
			err = fmt.Errorf("run: %.40s", text)
		}
		return err
	}, "what the snapshot does not have to end, and the rest to run")
	if now := tasks(); now != running {
		t.Errorf("what ran before and after the snapshot was touched:\n%s\n%s", running, now)
	}
}

// TestJobsOfACluster: three servers place a job on the host of one of them; whoever is asked answers; the leader goes
// and the next one has all, scales the job, and marks nobody down.
func TestJobsOfACluster(t *testing.T) {
	on := strings.Replace(jobsOn, "usage { enabled = false }", "usage { own_planes = false }", 1)
	first := startServer(t, "j1", fmt.Sprintf(on, true)+"bootstrap_expect = 3\n")
	members := []*testMember{first}
	for _, name := range []string{"j2", "j3"} {
		members = append(members, startServer(t, name, fmt.Sprintf(on, false)+
			fmt.Sprintf("bootstrap_expect = 3\nretry_join = [%q]\n", first.gossip)))
	}
	polltest.NoError(t, time.Minute, func() error {
		text, err := first.nomad("GET", "/v1/nodes", "")
		if err == nil && !strings.Contains(text, `"Status":"ready"`) {
			err = errors.New(text)
		}
		return err
	}, "a node")
	for i, m := range members {
		polltest.NoError(t, time.Minute, func() error {
			_, err := m.nomad("PUT", "/v1/jobs", mockJob(fmt.Sprint("job", i), 2))
			return err
		}, "a registration at %s", m.Cfg.Node.Name)
	}
	for _, m := range members {
		m.awaitRunning("job0", 2)
		m.awaitRunning("job1", 2)
		m.awaitRunning("job2", 2)
	}
	set := func(m *testMember) string {
		text, err := m.nomad("GET", "/.well-known/jwks.json", "")
		if err != nil || !strings.Contains(text, `"RS256"`) {
			t.Fatalf("the keys of workload identities: %s %v", text, err)
		}
		return text
	}
	keys := set(first)
	polltest.NoError(t, time.Minute, func() error { // who goes before all have votes takes the quorum along
		for _, part := range first.doors.AllGroups() {
			g := part.Raft.Load()
			if g == nil {
				return errors.New("a group that is not open yet")
			}
			list, _, err := g.Configuration()
			if err != nil {
				return err
			}
			if len(list) != len(members) || slices.ContainsFunc(list, func(s group.Server) bool { return !s.Voter }) {
				return fmt.Errorf("%v", list)
			}
		}
		return nil
	}, "three voters in all groups")
	var sources []string
	t.Run("usage", func(t *testing.T) { sources = usageOfACluster(t, members) })
	leading := slices.IndexFunc(members, func(m *testMember) bool {
		return plane.Find[*jobsplane.Plane](m.doors.Planes).Leads()
	})
	if leading < 0 {
		t.Fatal("nobody leads")
	}
	restoreAt(t, members[leading], members[(leading+1)%3], members[(leading+2)%3], first)
	rest := members
	if leading > 0 { // the node is on the first; and one alone may go: the next leader keeps its quorum
		if err := members[leading].stop(); err != nil {
			t.Fatal(err)
		}
		rest = slices.Delete(slices.Clone(members), leading, leading+1)
	}
	polltest.NoError(t, time.Minute, func() error {
		_, err := rest[len(rest)-1].nomad("PUT", "/v1/jobs", mockJob("job1", 3))
		return err
	}, "a registration with the next leader")
	for _, m := range rest {
		m.awaitRunning("job1", 3)
		m.awaitRunning("job0", 2)
		if now := set(m); now != keys {
			t.Errorf("%s has other keys of workload identities: %s", m.Cfg.Node.Name, now)
		}
	}
	if text, err := first.nomad("GET", "/v1/nodes", ""); err != nil || !strings.Contains(text, `"Status":"ready"`) {
		t.Errorf("the node is marked: %s %v", text, err)
	}
	t.Run("usage without one", func(t *testing.T) { usageIsThere(t, rest, sources, len(rest) == len(members)) })
}
