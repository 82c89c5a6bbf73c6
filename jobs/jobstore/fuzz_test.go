package jobstore

import (
	"bytes"
	"reflect"
	"testing"

	"corbel.dev/corbel/jobs"
)

// seedView has one of everything.
func seedView(f *testing.F) (*View, *Command) {
	f.Helper()
	j := &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: "j"}, Type: jobs.Service, Priority: 50,
		Groups: []*jobs.TaskGroup{{Name: "g", Count: 1, Tasks: []*jobs.Task{{Name: "t", Driver: "mock_driver",
			Config: `{"run_for":"1s"}`, Resources: jobs.Resources{CPU: 10, MemoryMB: 10}}}}}}
	c := &Command{Head: Head{Now: 1, Seed: 2, Kind: JobRegistered}, Jobs: JobWrites{Put: []JobWrite{{Job: j}}},
		Nodes: NodeWrites{Put: []NodeWrite{{Secret: "s", Detail: "{}", Node: &jobs.Node{ID: jobs.ID{1}, Name: "n",
			Datacenter: "dc1", Capacity: jobs.Capacity{Total: jobs.Vector{CPU: 100, MemoryMB: 100, DiskMB: 100}}}}}},
		Names: NameWrites{Docs: []DocWrite{{Document: Document{Table: Namespaces, Name: "x", Body: "{}"}}}}}
	v, results, _ := Empty().Apply([]*Command{c})
	if results[0].Err != nil {
		f.Fatal(results[0].Err)
	}
	return v, c
}

// FuzzDecode reads commands as they come from a log or from another server: what is read is what was written.
func FuzzDecode(f *testing.F) {
	_, c := seedView(f)
	f.Add(c.Encode())
	f.Add((&Command{}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(c.Encode())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%v\n%+v\n%+v", err, c, again)
		}
	})
}

// FuzzReadView reads snapshots: one that is damaged is told, and one that is read can be written and read again.
func FuzzReadView(f *testing.F) {
	v, _ := seedView(f)
	var whole bytes.Buffer
	if _, err := v.WriteTo(&whole); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	f.Add(whole.Bytes()[:whole.Len()/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ReadView(bytes.NewReader(b))
		if err != nil {
			return
		}
		var text bytes.Buffer
		if _, err := v.WriteTo(&text); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadView(&text); err != nil {
			t.Fatal(err)
		}
	})
}
