package guard

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corbel.dev/corbel/kit/loud"
)

// role is which process of a test this is: see child.
const role = "GUARD_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "guarded", "open":
		guarded(os.Getenv(role) == "guarded")
	case "reader":
		reader(os.Args[1])
	default:
		os.Exit(m.Run())
	}
}

// guarded says where its secret is and waits until its input ends.
func guarded(guard bool) {
	if guard {
		if err := Dumps(); err != nil {
			fmt.Println(err)
			os.Exit(2)
		}
	}
	// what the doctor reads
	for _, path := range []string{"/proc/self/fd", "/proc/self/status", "/proc/self/cgroup", "/proc/self/maps"} {
		if _, err := os.Stat(path); err != nil {
			fmt.Println(err)
			os.Exit(2)
		}
	}
	if _, err := os.ReadDir("/proc/self/fd"); err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	again := exec.Command("/proc/self/exe", "-test.run=^$") // as tenants' programs are started
	again.Env = []string{role + "=none"}
	if out, err := again.CombinedOutput(); err != nil {
		fmt.Printf("a child cannot be started: %v %s\n", err, out)
		os.Exit(2)
	}
	secret := []byte("the key of keys")
	var core unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &core)
	dumpable, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	fmt.Printf("%p core %d dumpable %d\n", secret, core.Cur, dumpable)
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(secret)
	os.Exit(0)
}

// reader reads a byte of another process's memory: args are path:address.
func reader(at string) {
	path, where, _ := strings.Cut(at, ":")
	var offset int64
	_, _ = fmt.Sscanf(where, "0x%x", &offset)
	f, err := os.Open(path)
	if err == nil {
		_, err = f.ReadAt(make([]byte, 15), offset)
	}
	if err != nil {
		fmt.Println("refused:", err)
		os.Exit(0)
	}
	fmt.Println("read")
	os.Exit(0)
}

// child runs this binary in a role, as nobody.
func child(t *testing.T, as string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		loud.Skip(t, "only root starts processes of another user")
	}
	dir, err := os.MkdirTemp("", "guard")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "guard"), self, 0o755)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "guard"), args...)
	cmd.Dir = dir
	cmd.Env = []string{role + "=" + as}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// TestMemoryIsKept: a process of the same user reads the memory of one that is not guarded, and not of one that is;
// that one can be dumped by no limit, and goes on reading what it needs of itself.
func TestMemoryIsKept(t *testing.T) {
	for _, kind := range []string{"open", "guarded"} {
		cmd := child(t, kind)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		address, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		said, err := child(t, "reader", fmt.Sprintf("/proc/%d/mem:%s", cmd.Process.Pid, address)).Output()
		if err != nil {
			t.Fatal(err)
		}
		refused := bytes.HasPrefix(said, []byte("refused"))
		switch {
		case kind == "guarded" && (!refused || rest != "core 0 dumpable 0"):
			t.Errorf("the guarded process: %q; its memory: %s", line, said)
		case kind == "open" && refused:
			t.Logf("this system refuses that anyway: %s", said)
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Lock locks everything, or says what it needs and locks nothing.
func TestLock(t *testing.T) {
	err := Lock()
	status, readErr := os.ReadFile("/proc/self/status")
	if readErr != nil {
		t.Fatal(readErr)
	}
	_, after, _ := strings.Cut(string(status), "VmLck:")
	locked := strings.TrimSpace(after[:strings.IndexByte(after, '\n')])
	if err != nil {
		if !strings.Contains(err.Error(), "LimitMEMLOCK") || locked != "0 kB" {
			t.Errorf("%v, and %s are locked", err, locked)
		}
		loud.Skip(t, "%v", err)
	}
	defer func() { _ = unix.Munlockall() }()
	if locked == "0 kB" {
		t.Error("nothing is locked")
	}
	held := make([][]byte, 0, 64)
	for range 64 { // the runtime gets and returns memory as before
		held = append(held, make([]byte, 1<<20))
	}
	runtime.KeepAlive(held)
	runtime.GC()
}
