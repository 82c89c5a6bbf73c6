package taskenv

import (
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/jobwire"
)

func TestEnvironment(t *testing.T) {
	id, group := "web", "g"
	s := &Source{Alloc: "0123456789-abc", Name: "web.g[1]", Index: 1, Region: "global",
		Node: &jobs.Node{Name: "n1", Datacenter: "dc1", Attributes: map[string]string{"kernel.name": "linux"},
			Meta: map[string]string{"rack": "r1"}},
		Job: &jobwire.Job{JobIdentity: jobwire.JobIdentity{ID: &id, Name: &id},
			Meta: map[string]string{"a-b": "job", "c": "job"}},
		Group: &jobwire.TaskGroup{Name: &group, Services: []*jobwire.Service{{Connect: &jobwire.Connect{
			SidecarService: &jobwire.SidecarService{Proxy: &jobwire.Proxy{Upstreams: []*jobwire.Upstream{
				{DestinationName: "db-1", LocalBindPort: 5432}}}}}}}},
		Task: &jobwire.Task{Name: "t", Meta: map[string]string{"c": "task"}, Env: map[string]string{
			"ADDR": "http://${NOMAD_ADDR_http}/", "SHELL_VAR": "${HOME}", "RACK": "${meta.rack}-${attr.kernel.name}"}},
		Ports:     []driver.Port{{Label: "http", HostIP: "10.0.0.1", Value: 20001, To: 8080}},
		Inside:    Inside{Address: "172.26.64.2", Interface: "eth0"},
		Dirs:      driver.Dirs{Task: "/a/t", Shared: "/a/alloc"},
		Resources: driver.Resources{CPU: 100, MemoryMB: 50, Cores: []uint16{1, 2}}}
	e := New(s)
	for name, want := range map[string]string{
		"NOMAD_ALLOC_ID": "0123456789-abc", "NOMAD_SHORT_ALLOC_ID": "01234567", "NOMAD_ALLOC_INDEX": "1", "NOMAD_DC": "dc1",
		"NOMAD_TASK_DIR": "/a/t/local", "NOMAD_SECRETS_DIR": "/a/t/secrets", "NOMAD_ALLOC_DIR": "/a/alloc",
		"NOMAD_PORT_http": "8080", "NOMAD_HOST_PORT_http": "20001", "NOMAD_ADDR_http": "10.0.0.1:20001",
		"NOMAD_IP_http": "10.0.0.1", "NOMAD_ALLOC_IP_http": "172.26.64.2", "NOMAD_ALLOC_INTERFACE_http": "eth0",
		"NOMAD_ALLOC_ADDR_http": "172.26.64.2:8080", "NOMAD_ALLOC_PORT_http": "8080",
		"NOMAD_META_a_b": "job", "NOMAD_META_A_B": "job", "NOMAD_META_c": "task", "NOMAD_CPU_CORES": "1,2",
		"NOMAD_UPSTREAM_ADDR_db_1": "127.0.0.1:5432", "ADDR": "http://10.0.0.1:20001/", "SHELL_VAR": "${HOME}",
		"RACK": "r1-linux",
	} {
		if got := e.Vars[name]; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	got := e.ReplaceAny(map[string]any{"args": []any{"-n", "${node.unique.name}", true}})
	if args := got.(map[string]any)["args"].([]any); args[1] != "n1" || args[2] != true {
		t.Error(got)
	}
}
