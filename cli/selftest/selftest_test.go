package selftest

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/cli/command"
)

// Each finding that is not good has a remedy, and what is unknown is never good.
func TestJudge(t *testing.T) {
	well := facts{synced: 1, fsync: []time.Duration{time.Millisecond}, files: 1 << 20, locked: maxLocked,
		swap: 1, queue: 4096, buffer: 4 << 20, freePercent: 50}
	with := func(change func(*facts)) *facts {
		f := well
		change(&f)
		return &f
	}
	for _, test := range []struct {
		name  string
		f     *facts
		grade Grade
	}{
		{"clock", with(func(f *facts) { f.synced = 0 }), Weak},
		{"clock", with(func(f *facts) { f.synced = -1 }), Unknown},
		{"fsync", with(func(f *facts) { f.fsync = []time.Duration{time.Second, 20 * time.Millisecond, 0} }), Weak},
		{"fsync", with(func(f *facts) { f.fsync = []time.Duration{time.Second} }), Bad},
		{"fsync", with(func(f *facts) { f.fsync = nil }), Unknown},
		{"fsync", with(func(f *facts) { f.fsyncErr = errors.New("read-only file system") }), Bad},
		{"open files", with(func(f *facts) { f.files = 1024 }), Weak},
		{"swap", with(func(f *facts) { f.locked = 8 << 20 }), Weak},
		{"swap", with(func(f *facts) { f.swap, f.locked = 0, 0 }), Good},
		{"accept queue", with(func(f *facts) { f.queue = 128 }), Weak},
		{"socket buffers", with(func(f *facts) { f.buffer = 212992 }), Weak},
		{"free disk in per cent", with(func(f *facts) { f.freePercent = 3 }), Weak},
		{"free disk in per cent", with(func(f *facts) { f.freePercent = -1 }), Unknown},
		{"port 8500/tcp (http)", with(func(f *facts) { f.taken = []taken{{"8500/tcp (http)", "process 7"}} }), Bad},
	} {
		for _, found := range judge(test.f) {
			switch {
			case found.Name == test.name && found.Grade != test.grade:
				t.Errorf("%s is %s, want %s", test.name, found.Grade, test.grade)
			case found.Name != test.name && found.Grade != Good:
				t.Errorf("%s: %s is %s, too", test.name, found.Name, found.Grade)
			case (found.Grade == Weak || found.Grade == Bad) == (found.Remedy == ""):
				t.Errorf("%s is %s and its remedy is %q", found.Name, found.Grade, found.Remedy)
			}
		}
	}
}

// A folder is measured and left as it was; a taken port names this process.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	if list, err := measureFsync(dir); err != nil || len(list) != syncs {
		t.Errorf("%d, %v", len(list), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	for _, found := range takenPorts(port - 8500) {
		if strings.Contains(found.name, "(http)") {
			return
		}
	}
	t.Errorf("port %d is not said to be taken", port)
}

// A host without a data folder is measured where the folder will be, and nothing is left there.
func TestFolderToCome(t *testing.T) {
	dir := t.TempDir()
	toCome := filepath.Join(dir, "var", "lib", "corbel")
	if f := gather(toCome); runtime.GOOS == "linux" && f.freePercent < 0 {
		t.Error("how much of its disk is free is not told")
	}
	list, err := measureFsync(toCome)
	if left, _ := os.ReadDir(dir); err != nil || len(list) != syncs || len(left) != 0 {
		t.Errorf("%d syncs, %v, left %v", len(list), err, left)
	}
}

// An offset that leads past the last port is refused, as a start refuses it.
func TestOffset(t *testing.T) {
	for _, offset := range []string{"-1", "40001"} {
		c := &cobra.Command{}
		Command(&command.Env{Out: io.Discard}, c)
		c.SilenceUsage, c.SilenceErrors = true, true
		c.SetArgs([]string{"--port-offset=" + offset})
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), "--port-offset: "+offset) {
			t.Errorf("%s: %v", offset, err)
		}
	}
}
