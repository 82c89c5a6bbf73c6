package meshtask

import (
	"reflect"
	"testing"

	"corbel.dev/corbel/jobs/jobwire"
)

// job has a group with tasks of these drivers and one service that wants a sidecar.
func job(change *jobwire.SidecarTask, drivers ...string) *jobwire.Job {
	g := &jobwire.TaskGroup{Name: new("g"), Services: []*jobwire.Service{{Name: "api", Connect: &jobwire.Connect{
		SidecarService: &jobwire.SidecarService{}, SidecarTask: change}}, {Name: "plain"}}}
	for i, d := range drivers {
		g.Tasks = append(g.Tasks, &jobwire.Task{Name: string(rune('a' + i)), Driver: d})
	}
	j := &jobwire.Job{JobIdentity: jobwire.JobIdentity{ID: new("j")}, TaskGroups: []*jobwire.TaskGroup{g}}
	j.Canonicalize()
	return j
}

// TestInject: the task, its driver, its port and what sidecar_task changes; twice is once.
func TestInject(t *testing.T) {
	for _, test := range []struct {
		drivers []string
		want    string
	}{{[]string{"raw_exec"}, "raw_exec"}, {[]string{"raw_exec", "docker"}, "docker"}, {[]string{"podman"}, "podman"},
		{[]string{"java"}, "exec"}, {[]string{"mock_driver"}, "mock_driver"}, {[]string{"qemu"}, "docker"}} {
		j := job(nil, test.drivers...)
		Inject(j)
		j.Canonicalize()
		g := j.TaskGroups[0]
		made := g.Tasks[len(g.Tasks)-1]
		if len(g.Tasks) != len(test.drivers)+1 || made.Name != "connect-proxy-api" || made.Kind != "connect-proxy:api" ||
			made.Driver != test.want || *made.Resources.CPU != 250 || *made.Resources.MemoryMB != 128 ||
			made.Lifecycle.Hook != "prestart" || !made.Lifecycle.Sidecar {
			t.Errorf("%q: %+v", test.drivers, made)
		}
		if p := g.Networks[0].DynamicPorts; len(p) != 1 || p[0].Label != "connect-proxy-api" || p[0].To != -1 {
			t.Errorf("ports: %+v", p)
		}
		if ServiceOf(g, made) != g.Services[0] || ServiceOf(g, g.Tasks[0]) != nil {
			t.Error("the task does not lead to its service")
		}
		text := jobwire.ToJob(j)
		Inject(j)
		j.Canonicalize()
		if again := jobwire.ToJob(j); !reflect.DeepEqual(again, text) {
			t.Errorf("a second time:\n%+v\n%+v", again, text)
		}
	}
}

// TestSidecarTask: what a job says of its proxy counts.
func TestSidecarTask(t *testing.T) {
	j := job(&jobwire.SidecarTask{Name: "mine", Driver: "exec", User: "u", Config: map[string]any{"command": "/opt/envoy"},
		Env: map[string]string{"A": "b"}, Meta: map[string]string{"k": "v"}, KillSignal: "SIGTERM",
		Resources: &jobwire.Resources{CPU: new(500), MemoryMB: new(64)}}, "raw_exec")
	j.TaskGroups[0].Services[0].Connect.SidecarService.Port = "own"
	Inject(j)
	g := j.TaskGroups[0]
	made := g.Tasks[1]
	if made.Name != "mine" || made.Driver != "exec" || made.User != "u" || made.Config["command"] != "/opt/envoy" ||
		made.Env["A"] != "b" || made.Meta["k"] != "v" || made.KillSignal != "SIGTERM" || *made.Resources.CPU != 500 {
		t.Errorf("%+v", made)
	}
	if len(g.Networks) != 0 || PortLabel(g.Services[0]) != "own" {
		t.Error("a port was added beside the job's own")
	}
}
