// Package nomadapi lets the peer's own Go client write what package jobs/jobwire is compared with: the names
// of all fields, and what jobs are after the client has filled in its defaults.
package nomadapi

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

var update = flag.Bool("update", false, "write the files anew, for another version of the client")

const folder = "../../../jobs/jobwire/testdata/api"

// TestGolden: the files are what this version of the client gives.
func TestGolden(t *testing.T) {
	var names strings.Builder
	fields(&names, "", reflect.TypeFor[api.Job]())
	golden(t, "fields.txt", names.String())
	inputs, err := filepath.Glob(filepath.Join(folder, "*.in.json"))
	if err != nil || len(inputs) < 5 {
		t.Fatalf("%d inputs, %v", len(inputs), err)
	}
	for _, path := range inputs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		j := &api.Job{}
		if err := json.Unmarshal(text, j); err != nil {
			t.Fatal(err)
		}
		j.Canonicalize()
		out, err := json.MarshalIndent(j, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, strings.Replace(filepath.Base(path), ".in.", ".want.", 1), string(out)+"\n")
	}
}

// fields writes each field with the name that it has in a job file.
func fields(b *strings.Builder, path string, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		hcl, option, _ := strings.Cut(f.Tag.Get("hcl"), ",")
		if option == "label" {
			hcl = "(label)"
		}
		fmt.Fprintf(b, "%s%s %s\n", path, name, hcl)
		fields(b, path+name+".", f.Type)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join(folder, name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s is not what the client gives (%v): run with -update, and look at the difference", name, err)
	}
}
