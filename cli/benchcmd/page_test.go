package benchcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/bench"
)

func TestPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kv.html")
	r := &bench.Result{Bench: "kv", Target: "one server", Machine: "2 cores", Floors: &bench.Floors{FsyncPerSecond: 900},
		Rows: []bench.Row{{What: "put", Requests: 10, Errors: 1, PerSecond: 500, Millis: map[string]float64{"p99": 2.5},
			Floor: "fsync", FloorRatio: 0.5}}}
	if err := savePage("kv", path, r); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"corbel bench kv", "500/s, 0.50 of the floor (fsync)", "900/s", "2.5 ms",
		"1 of 10 requests failed", "As text"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing", want)
		}
	}
}
