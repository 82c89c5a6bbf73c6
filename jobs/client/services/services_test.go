package services

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/taskenv"
	"corbel.dev/corbel/jobs/client/workload"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/noderpc"
)

func to[T any](v T) *T { return &v }

// TestMake: addresses, targets, tags and identities of services of groups, tasks and canaries.
func TestMake(t *testing.T) {
	second := jobwire.Duration(time.Second)
	s := &jobwire.Service{Name: "web-${NOMAD_ALLOC_INDEX}", Provider: "consul", Tags: []string{"v${NOMAD_ALLOC_INDEX}"},
		CanaryTags: []string{"canary"}, ServiceAddress: jobwire.ServiceAddress{PortLabel: "http"},
		CheckRestart: &jobwire.CheckRestart{Limit: 3, Grace: &second}, Checks: []*jobwire.ServiceCheck{
			{Type: "http", CheckHTTP: jobwire.CheckHTTP{Path: "/health?x=1", Protocol: "https", TLSSkipVerify: true},
				CheckTiming: jobwire.CheckTiming{Interval: second, FailuresBeforeCritical: 2}},
			{Type: "tcp", CheckAddress: jobwire.CheckAddress{PortLabel: "admin"}, OnUpdate: "ignore"},
			{Type: "grpc", CheckHTTP: jobwire.CheckHTTP{GRPCService: "s"}},
			{Type: "script", TaskName: "t", CheckCommand: jobwire.CheckCommand{Command: "ok",
				Args: []string{"${NOMAD_PORT_http}"}}},
		}}
	task := &jobwire.Task{Name: "t", Driver: "mock_driver"}
	job := &jobwire.Job{JobIdentity: jobwire.JobIdentity{ID: to("j")}, TaskGroups: []*jobwire.TaskGroup{{Name: to("g"),
		Tasks: []*jobwire.Task{task}}}}
	load, err := workload.New(noderpc.Alloc{ID: jobs.ID{1}, Group: "g", Index: 2}, job)
	if err != nil {
		t.Fatal(err)
	}
	again, err := workload.Parse(load.Bytes())
	if err != nil || again.Name() != "j.g[2]" || again.Task("t") == nil {
		t.Fatal(again, err)
	}
	ports := []driver.Port{{Label: "http", HostIP: "10.0.0.1", Value: 20001, To: 8080}, {Label: "admin", HostIP: "::1",
		Value: 20002}}
	env := taskenv.New(&taskenv.Source{Alloc: load.ID.String(), Index: 2, Node: &jobs.Node{}, Job: load.Job,
		Group: load.Group, Task: load.Task("t"), Ports: ports})
	got := Make(load, nil, s, env, ports)
	if got.ID != "_nomad-task-"+load.ID.String()+"-group-g-web-2-http" || got.Address != "10.0.0.1" || got.Port != 20001 ||
		got.Native || got.Tags[0] != "v2" {
		t.Errorf("%+v", got)
	}
	var targets []string
	for _, c := range got.Checks {
		targets = append(targets, fmt.Sprint(c.Type, " ", c.Target, c.Command))
	}
	if want := []string{"http https://10.0.0.1:20001/health?x=1[]", "tcp [::1]:20002[]", "grpc 10.0.0.1:20001/s[]",
		"script [ok 8080]"}; !reflect.DeepEqual(targets, want) {
		t.Errorf("%q", targets)
	}
	if c := got.Checks[0]; !c.TLS.Use || !c.TLS.SkipVerify || c.Interval != time.Second || c.FailBefore != 2 ||
		c.Restart.Limit != 3 || c.IgnoreForRollout || !got.Checks[1].IgnoreForRollout {
		t.Errorf("%+v", c)
	}
	load.Rollout.Canary = true
	s.AddressMode, s.Provider = "alloc", Native
	got = Make(load, load.Task("t"), s, env, ports)
	if got.Port != 8080 || got.Tags[0] != "canary" || !got.Native || got.Task != "t" {
		t.Errorf("%+v", got)
	}
}

// TestMesh: what the catalog is told of a sidecar.
func TestMesh(t *testing.T) {
	s := &jobwire.Service{Name: "web", Provider: "consul", ServiceAddress: jobwire.ServiceAddress{PortLabel: "http"},
		Connect: &jobwire.Connect{SidecarService: &jobwire.SidecarService{Tags: []string{"n${NOMAD_ALLOC_INDEX}"},
			DisableDefaultTCPCheck: true, Proxy: &jobwire.Proxy{Config: map[string]any{"protocol": "http"},
				Upstreams: []*jobwire.Upstream{{DestinationName: "api", LocalBindPort: 9090}},
				Expose:    &jobwire.Expose{Paths: []*jobwire.ExposePath{{Path: "/m", LocalPathPort: 1, ListenerPort: "http"}}}}}}}
	task := &jobwire.Task{Name: "t", Driver: "mock_driver"}
	job := &jobwire.Job{JobIdentity: jobwire.JobIdentity{ID: to("j")}, TaskGroups: []*jobwire.TaskGroup{{Name: to("g"),
		Tasks: []*jobwire.Task{task}, Services: []*jobwire.Service{s}}}}
	load, err := workload.New(noderpc.Alloc{ID: jobs.ID{1}, Group: "g", Index: 2}, job)
	if err != nil {
		t.Fatal(err)
	}
	ports := []driver.Port{{Label: "http", HostIP: "10.0.0.1", Value: 20001},
		{Label: "connect-proxy-web", HostIP: "10.0.0.1", Value: 20002}}
	env := taskenv.New(&taskenv.Source{Alloc: load.ID.String(), Index: 2, Node: &jobs.Node{}, Job: load.Job,
		Group: load.Group, Task: task, Ports: ports})
	got := Make(load, nil, s, env, ports)
	want := &Sidecar{Address: "10.0.0.1", Port: 20002, Tags: []string{"n2"}, Unchecked: true,
		Proxy: []byte(`{"LocalServiceAddress":"10.0.0.1","LocalServicePort":20001,"Config":{"protocol":"http"},` +
			`"Upstreams":[{"DestinationName":"api","LocalBindPort":9090}],` +
			`"Expose":{"Paths":[{"Path":"/m","LocalPathPort":1,"ListenerPort":20001}]}}`)}
	if !reflect.DeepEqual(got.Mesh.Sidecar, want) {
		t.Errorf("%+v\n%s", got.Mesh.Sidecar, got.Mesh.Sidecar.Proxy)
	}
	if id := IDOf(load, s, env); id != got.ID {
		t.Errorf("%s, registered as %s", id, got.ID)
	}
	if env.Vars["NOMAD_UPSTREAM_ADDR_api"] != "127.0.0.1:9090" {
		t.Error("the upstream's address is not in the environment")
	}
	s.Connect = &jobwire.Connect{Native: true}
	if got := Make(load, nil, s, env, ports); !got.Mesh.Native || got.Mesh.Sidecar != nil {
		t.Errorf("%+v", got.Mesh)
	}
}
