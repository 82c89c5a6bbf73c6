package labcmd

import (
	"bytes"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/lab"
)

// TestSummary: of several runs the diagnosed are counted and timed, and what came instead is said.
func TestSummary(t *testing.T) {
	s := summary{Name: "slow-disk", Runs: 3}
	for _, out := range []lab.Outcome{{Diagnosed: true, Seconds: 4}, {Diagnosed: true, Seconds: 8}, {Lacks: "the first finding is cpu-throttled"}} {
		s.add(&out)
	}
	if s.Diagnosed != 2 || s.MeanSeconds != 6 || s.MaxSeconds != 8 {
		t.Errorf("%+v", s)
	}
	var out bytes.Buffer
	if err := summarize(&command.Env{Out: &out}, []summary{s}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "2 of 3") || !strings.Contains(text, "cpu-throttled") {
		t.Errorf("it says %s", text)
	}
}
