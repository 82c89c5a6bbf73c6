package noderpc

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"corbel.dev/corbel/jobs"
)

var (
	one = jobs.ID{1, 2}
	two = jobs.ID{3}
	key = Key{one, two}
)

// cases has a message of each kind, and how it is read.
func cases() []struct {
	m    message
	read func([]byte) (any, error)
} {
	any1 := func(f any) func([]byte) (any, error) {
		v := reflect.ValueOf(f)
		return func(b []byte) (any, error) {
			out := v.Call([]reflect.Value{reflect.ValueOf(b)})
			err, _ := out[1].Interface().(error)
			return out[0].Interface(), err
		}
	}
	grant := jobs.Grant{Vector: jobs.Vector{CPU: 1, MemoryMB: 2, DiskMB: 3}, MemoryMaxMB: 4,
		Ports:   []jobs.PortGrant{{Label: "http", Value: 20001, To: 80, Network: 1}},
		Cores:   []jobs.CoreGrant{{Task: "t", Cores: []uint16{1, 3}}},
		Devices: []jobs.DeviceGrant{{Task: "t", Group: 1, Instances: []string{"a"}}}}
	node := &jobs.Node{ID: one, Name: "n", Datacenter: "dc1", Class: "c",
		Attributes: map[string]string{"kernel.name": "linux"},
		Capacity:   jobs.Capacity{Total: jobs.Vector{CPU: 100}, Cores: []uint16{0, 1}}, Drivers: map[string]jobs.Driver{
			"mock_driver": {Detected: true, Healthy: true}}}
	return []struct {
		m    message
		read func([]byte) (any, error)
	}{
		{&Register{Key: key, Spec: node, RPCAddr: "a:1", HTTPAddr: "b:2", TLS: true,
			DriverTexts: map[string]string{"raw_exec": "Healthy"}}, any1(Read[Register])},
		{&Registered{7, time.Second}, any1(Read[Registered])},
		{&Heartbeat{[]Key{key, key}, []Held{{two, 1 << 63}}}, any1(Read[Heartbeat])},
		{&Beaten{time.Minute, []jobs.ID{one}, []Known{{one, []KnownAlloc{{two, jobs.ClientRunning}}}, {Node: two}}},
			any1(Read[Beaten])},
		{&Watch{key, 9, 64}, any1(Read[Watch])},
		{&Allocs{Index: 3, Full: true, Present: []jobs.ID{one, two}, Jobs: [][]byte{[]byte("{}")},
			Allocs: []Alloc{{ID: one, ModifyIndex: 3, Group: "g", Index: 1, Desired: jobs.Desired{Status: jobs.Run,
				Description: "d", Migrate: true}, Client: "pending", Rollout: jobs.Rollout{Deployment: two, Canary: true,
				Health: jobs.Healthy, At: 5}, Previous: two, EvalID: one, CreateTime: 8, Grant: grant}, {ID: two, Job: 1}},
			Bases: []Base{{Slot: 63, Job: []byte("{}")}},
			Children: []Child{{Slot: 63, ID: "p/dispatch-1", Name: "p", Priority: 70,
				Origin: jobs.Origin{ParentID: "p", Dispatched: true, Payload: []byte("x"), Token: "t"},
				Meta:   map[string]string{"a": "b"}, Revision: jobs.Revision{Version: 1, Stop: true, Stable: true,
					SubmitTime: 2, CreateIndex: 3, ModifyIndex: 4, JobModifyIndex: 5}}}},
			any1(Read[Allocs])},
		{&Updates{key, []Update{{Alloc: one, Status: "running", Description: "x", StartedAt: 1, FinishedAt: 2,
			Health: jobs.Unhealthy, HealthAt: 3, TaskStates: []byte("{}"), Network: []byte("n"),
			Order: jobs.Order{Life: 7, Seq: 1 << 40}}}}, any1(Read[Updates])},
		{&Updated{4}, any1(Read[Updated])},
		{&Services{key, true, []string{"x"}, []Registration{{ID: "i", Name: "n", Namespace: "d", Job: "j", Alloc: one,
			Address: "1.2.3.4", Port: 5, Tags: []string{"a", "b"}}}}, any1(Read[Services])},
		{&SignAsk{key, one, "t", "s", "default"}, any1(Read[SignAsk])},
		{&Signed{"jwt", 4}, any1(Read[Signed])},
		{&VariableAsk{key, one, "t", "nomad/jobs/x"}, any1(Read[VariableAsk])},
		{&Variable{4, map[string]string{"a": "b"}}, any1(Read[Variable])},
		{&InstancesAsk{key, one, "api"}, any1(Read[InstancesAsk])},
		{&Instances{4, []Registration{{ID: "i", Name: "n", Namespace: "d", Job: "j", Alloc: one, Address: "1.2.3.4", Port: 5,
			Tags: []string{"a"}}}}, any1(Read[Instances])},
		{&LogAsk{one, "t", true, true, true, 9}, any1(Read[LogAsk])},
		{&FileAsk{one, "alloc/x", true, 1, 2, true}, any1(Read[FileAsk])},
		{&Chunk{"f", 3, []byte("abc"), "file deleted"}, any1(Read[Chunk])},
		{&ExecAsk{one, "t", two, []string{"sh", "-c"}, true, 24, 80}, any1(Read[ExecAsk])},
		{&ExecInput{two, []byte("ls"), true, 24, 80}, any1(Read[ExecInput])},
		{&ExecOutput{[]byte("o"), []byte("e"), true, true, true, 3}, any1(Read[ExecOutput])},
		{&TaskAsk{one, "t", "SIGHUP", true}, any1(Read[TaskAsk])},
	}
}

func TestRoundTrip(t *testing.T) {
	for _, c := range cases() {
		got, err := c.read(Bytes(c.m))
		if err != nil || !reflect.DeepEqual(got, c.m) {
			t.Errorf("%T: %+v, %v\nwant %+v", c.m, got, err, c.m)
		}
		if b := Bytes(c.m); len(b) > 8 {
			if _, err := c.read(b[:len(b)-1]); err == nil {
				t.Errorf("%T: a truncated message is read", c.m)
			}
		}
	}
}

// TestRefuses: an allocation without a job and an id of another length are damage.
func TestRefuses(t *testing.T) {
	m := &Allocs{Allocs: []Alloc{{ID: one}}}
	if _, err := Read[Allocs](Bytes(m)); err == nil {
		t.Error("an allocation refers to a job that is not there")
	}
	if _, err := Read[Register](Bytes(&Register{Key: key, Spec: &jobs.Node{Meta: big()}})); err == nil {
		t.Error("a node has any number of attributes")
	}
	if _, err := Read[Watch](make([]byte, MaxMessageBytes+1)); err == nil {
		t.Error("a message has any size")
	}
}

func big() map[string]string {
	m := map[string]string{}
	for i := range MaxAttributes + 1 {
		m[string(rune(i+1000))] = ""
	}
	return m
}

// FuzzMessages: whatever comes, each reader answers, and what it takes is the same when it is written again.
func FuzzMessages(f *testing.F) {
	all := cases()
	for i, c := range all {
		f.Add(byte(i), Bytes(c.m))
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		c := all[int(kind)%len(all)]
		got, err := c.read(b)
		if err != nil {
			return
		}
		text := Bytes(got.(message))
		again, err := c.read(text)
		if err != nil || !bytes.Equal(Bytes(again.(message)), text) {
			t.Errorf("%T: %+v, %v", c.m, again, err)
		}
	})
}
