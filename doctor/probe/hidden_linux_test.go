package probe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/telemetry"
)

// With the control groups hidden nothing says that no quota throttles this process, and the gap is told in each look,
// not in every fifth.
func TestHiddenControlGroups(t *testing.T) {
	proc, sys := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "self"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "self", "cgroup"), []byte("0::/system.slice/corbel.service\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	r := telemetry.New(telemetry.Config{})
	h := &Host{Proc: proc, Sys: sys, Ports: func() []int { return nil }, Peer: func(string, int) string { return "" }}
	seen := func() (value bool) {
		for _, s := range r.Series() {
			if s.Name == "host.cgroup.throttled" {
				value = true
			}
		}
		return value
	}
	now := time.Now()
	for i := range 3 {
		gaps := h.Sample(r, now.Add(time.Duration(i)*2*time.Second))
		if !strings.Contains(strings.Join(gaps, "\n"), "whether a CPU quota stops this process cannot be seen") {
			t.Errorf("look %d: gaps are %q", i, gaps)
		}
	}
	if seen() {
		t.Error("a throttling that cannot be seen is told")
	}
	folder := filepath.Join(sys, "fs/cgroup/system.slice/corbel.service")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "cpu.stat"), []byte("usage_usec 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = h.Sample(r, now.Add(time.Minute))
	if !seen() {
		t.Error("without a quota nothing throttles, and that is seen")
	}
}
