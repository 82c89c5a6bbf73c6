package jobwire

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The files in testdata/api are written by the peer's own client: see test/compat/nomadapi.

// otherNames are fields whose name in a job file is not the client's, each for a reason.
var otherNames = map[string]string{
	"ReservedPorts": "a port with a number is written as any port",
	"Name":          "a version's tag is not written in job files",
	"Description":   "the same",
	"TaggedTime":    "the same",
}

// TestFields: each field that the client knows is known, by the same names.
func TestFields(t *testing.T) {
	have := map[string]string{}
	var walk func(string, reflect.Type)
	walk = func(path string, of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for _, f := range Fields(of) {
			have[path+f.Name] = f.HCL
			if f.Label {
				have[path+f.Name] = "(label)"
			}
			walk(path+f.Name+".", f.Type)
		}
	}
	walk("", reflect.TypeFor[Job]())
	text, err := os.ReadFile("testdata/api/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(text)) {
		count++
		path, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		got, ok := have[path]
		last := path[strings.LastIndexByte(path, '.')+1:]
		if !ok || got != want && otherNames[last] == "" {
			t.Errorf("%s is %q in a job file (there: %t), the client has %q", path, got, ok, want)
		}
	}
	if count < 800 {
		t.Errorf("only %d fields", count)
	}
}

// differs are defaults that are not the client's, by the end of their path, each for a reason.
var differs = map[string]string{
	"ConsulToken":             "the newest client has no such field, 1.6.5 gives an empty one",
	"VaultToken":              "the same",
	"CheckRestart.Grace":      "that of a service is only what its checks start from",
	"Lifecycle":               "an empty block says nothing",
	"ScalingPolicies.Enabled": "a policy is on unless it is switched off, a task's too",
}

// TestDefaultsAsTheClient: what a job is after Canonicalize.
func TestDefaultsAsTheClient(t *testing.T) {
	inputs, err := filepath.Glob("testdata/api/*.in.json")
	if err != nil || len(inputs) < 5 {
		t.Fatalf("%d inputs, %v", len(inputs), err)
	}
	for _, path := range inputs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		j, err := Decode[Job](text)
		if err != nil {
			t.Fatal(err)
		}
		j.Canonicalize()
		expected, err := os.ReadFile(strings.Replace(path, ".in.", ".want.", 1))
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if json.Unmarshal([]byte(asJSON(t, j)), &got) != nil || json.Unmarshal(expected, &want) != nil {
			t.Fatal(path)
		}
		same(t, filepath.Base(path), "", got, want)
	}
}

// same compares JSON. A field that is left out is as its zero value.
func same(t *testing.T, file, path string, got, want any) {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		if g == nil {
			break
		}
		keys := slices.AppendSeq(slices.Collect(maps.Keys(g)), maps.Keys(w))
		for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
			if e, there := g[key]; there || !empty(w[key]) {
				same(t, file, strings.TrimPrefix(path+"."+key, "."), e, w[key])
			}
		}
		return
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) || (g == nil) != (got == nil) {
			break
		}
		for i := range w {
			same(t, file, path, g[i], w[i])
		}
		return
	}
	if fmt.Sprint(got) == fmt.Sprint(want) && (got == nil) == (want == nil) {
		return
	}
	for end := range differs {
		if path == end || strings.HasSuffix(path, "."+end) {
			return
		}
	}
	t.Errorf("%s: %s is %v, the client has %v", file, path, got, want)
}

func empty(v any) bool { return v == nil || v == "" || v == false || v == 0.0 }
