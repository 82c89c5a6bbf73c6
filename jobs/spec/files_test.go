package spec

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/validate"
)

// TestFiles reads the job files of testdata/files, which have what files of fleets have: each is parsed, is valid, and
// is the same after a way over the wire. test/e2e plans them and runs those that run anywhere.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/files/*.nomad.hcl")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			j, err := Parse(text, options())
			if err != nil {
				t.Fatal(err)
			}
			j.Canonicalize()
			if found := validate.Job(j); len(found.Problems) > 0 {
				t.Errorf("not valid: %q", found.Problems)
			}
			wire, err := json.Marshal(j)
			if err != nil {
				t.Fatal(err)
			}
			back, err := jobwire.Decode[jobwire.Job](wire)
			if err != nil {
				t.Fatal(err)
			}
			back.Canonicalize()
			if again, err := json.Marshal(back); err != nil || string(again) != string(wire) {
				t.Errorf("over the wire it is\n%s\nand was\n%s (%v)", again, wire, err)
			}
			if !reflect.DeepEqual(jobwire.ToJob(back), jobwire.ToJob(j)) {
				t.Error("the plane has another job than was read")
			}
		})
	}
}
