package workload

import (
	"bytes"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/noderpc"
)

// FuzzParse reads an allocation as a node keeps it: what is read can be kept again.
func FuzzParse(f *testing.F) {
	name := "g"
	job := &jobwire.Job{TaskGroups: []*jobwire.TaskGroup{{Name: &name, Tasks: []*jobwire.Task{{Name: "t",
		Driver: "mock_driver"}}}}}
	w, err := New(noderpc.Alloc{ID: jobs.ID{1}, Group: name}, job)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(w.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := Parse(b)
		if err != nil {
			return
		}
		_, _, _ = w.Name(), w.TaskNames(), w.Task("t")
		again, err := Parse(w.Bytes())
		if err != nil || !bytes.Equal(again.Bytes(), w.Bytes()) {
			t.Fatalf("%v\n%x\n%x", err, w.Bytes(), again.Bytes())
		}
	})
}
