package fault

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
)

// envChild makes the test binary act as an armed process.
const envChild = "CORBEL_FAULT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		os.Exit(child())
	}
	leaktest.Main(m)
}

// child does what its standard input says, one line at a time, and answers each with one line.
func child() int {
	in, err := FromEnv()
	if err != nil || !in.Armed() || os.Getenv(EnvFD) != "" {
		fmt.Println("not armed:", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = in.Run(ctx) }()
	begin := in.Clock().Now()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "write":
			fmt.Println(vfs.WriteFileAtomic(in.FS(), rest, []byte("x"), 0o600))
		case "ask":
			op, peer, _ := strings.Cut(rest, " ")
			hold, err := in.Net()(op, peer)
			fmt.Println(hold, err)
		case "clock":
			fmt.Println(in.Clock().Now().Round(0).Sub(begin.Round(0)).Round(time.Minute))
		}
	}
	cancel()
	<-done
	return 0
}

type process struct {
	*Control
	in  io.WriteCloser
	out *bufio.Reader
}

func spawn(t *testing.T, begin ...Command) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envChild+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	control, err := Spawn(cmd, begin...)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{control, in, bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = in.Close()
		_ = p.Kill()
		_ = cmd.Wait()
		_ = control.Close()
	})
	return p
}

func (p *process) send(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		t.Fatal(err)
	}
}

func (p *process) answer(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (p *process) expect(t *testing.T, line, want string) {
	t.Helper()
	p.send(t, line)
	if got := p.answer(t); !strings.Contains(got, want) {
		t.Errorf("%s: %q, want %q", line, got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestProcess(t *testing.T) {
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "state")
	p := spawn(t, Command{Do: DoDisk, Name: "full", Ops: "write", Error: "ENOSPC"})
	p.expect(t, "write "+file, "no space left")
	must(t, p.Lift(ctx, "full"))
	p.expect(t, "write "+file, "<nil>")
	must(t, p.Disk(ctx, Command{Name: "bad", Glob: "**/state.tmp", Ops: "sync", Error: "EIO", Count: 1}))
	p.expect(t, "write "+file, "input/output error")
	p.expect(t, "write "+file, "<nil>")

	must(t, p.Disk(ctx, Command{Name: "stuck", Ops: "sync", Stall: true}))
	p.send(t, "write "+file)
	polltest.NoError(t, polltest.Deadline, func() error {
		s, err := p.Status(ctx)
		if err != nil || len(s.Disk) != 2 || s.Disk[1].Waiting != 1 {
			return fmt.Errorf("%+v, %v", s, err)
		}
		return nil
	}, "the sync to stall")
	must(t, p.Lift(ctx, "stuck"))
	if got := p.answer(t); got != "<nil>" {
		t.Errorf("after the stall: %s", got)
	}

	must(t, p.Net(ctx, Command{Name: "slow", Glob: "10.0.0.2", Delay: time.Second}))
	must(t, p.Net(ctx, Command{Name: "slower", Glob: "10.0.0.2:8300", Ops: "write", Delay: time.Second}))
	must(t, p.Net(ctx, Command{Name: "cut", Glob: "10.0.0.3:*", Ops: "dial", Error: "ECONNREFUSED"}))
	p.expect(t, "ask write 10.0.0.2:8300", "2s <nil>")
	p.expect(t, "ask read 10.0.0.2:8300", "1s <nil>")
	p.expect(t, "ask dial 10.0.0.3:8300", "connection refused")
	p.expect(t, "ask write 10.0.0.3:8300", "0s <nil>")

	must(t, p.SetClock(ctx, -time.Hour, 1))
	p.expect(t, "clock", "-1h0m0s")
	must(t, p.Clear(ctx))
	p.expect(t, "clock", "0s")
	p.expect(t, "ask write 10.0.0.2:8300", "0s <nil>")
	if s, err := p.Status(ctx); err != nil || s.PID != p.PID() || len(s.Disk)+len(s.Net) != 0 || s.Rate != 1 {
		t.Errorf("after clear: %+v, %v", s, err)
	}
}

func TestPartition(t *testing.T) {
	ctx := t.Context()
	var peers []Peer
	var processes []*process
	for _, addr := range []string{"10.0.0.1:8300", "10.0.0.2:8300", "10.0.0.3:8300"} {
		p := spawn(t)
		processes = append(processes, p)
		peers = append(peers, Peer{p.Control, []string{addr}})
	}
	must(t, Partition(ctx, peers[:1], peers[1:]))
	processes[0].expect(t, "ask write 10.0.0.3:8300", "-1ns")
	processes[2].expect(t, "ask dial 10.0.0.1:8300", "-1ns")
	processes[2].expect(t, "ask write 10.0.0.2:8300", "0s <nil>")
	must(t, Heal(ctx, peers...))
	processes[0].expect(t, "ask write 10.0.0.3:8300", "0s <nil>")
}

func TestFreeze(t *testing.T) {
	p := spawn(t)
	must(t, p.Freeze())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Status(ctx); err == nil {
		t.Error("a frozen process answered")
	}
	must(t, p.Thaw())
	p.expect(t, "ask write x:1", "0s <nil>")
}

func TestRefusals(t *testing.T) {
	p := spawn(t)
	for _, c := range []Command{
		{Do: "fly"}, {Do: DoDisk, Error: "EIO"}, {Do: DoDisk, Name: "x"}, {Do: DoDisk, Name: "x", Error: "EWHAT"},
		{Do: DoDisk, Name: "x", Ops: "fly", Stall: true}, {Do: DoNet, Name: "x", Ops: "sync", Stall: true},
		{Do: DoNet, Name: "x"}, {Do: DoLift, Name: "none"},
	} {
		if _, err := p.Do(t.Context(), c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	for i := range MaxRules {
		must(t, p.Disk(t.Context(), Command{Name: fmt.Sprint(i), Glob: "none", Stall: true}))
	}
	if err := p.Disk(t.Context(), Command{Name: "one more", Stall: true}); err == nil {
		t.Error("rules have no bound")
	}
}

func TestOrphanIsHealthy(t *testing.T) {
	p := spawn(t, Command{Do: DoDisk, Name: "full", Ops: "write", Error: "ENOSPC"})
	must(t, p.Control.Close())
	file := filepath.Join(t.TempDir(), "f")
	polltest.Until(t, func() bool {
		p.send(t, "write "+file)
		return p.answer(t) == "<nil>"
	}, "the orphan to write again")
}

// FuzzServe feeds the control line: whatever comes, each line is answered and nothing panics.
func FuzzServe(f *testing.F) {
	for _, c := range []Command{{Do: DoStatus}, {Do: DoDisk, Name: "a", Error: "EIO"}, {Do: DoClock, Offset: 5, Rate: -1},
		{Do: DoLift, Name: "a"}} {
		line, _ := json.Marshal(c)
		f.Add(line)
	}
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if strings.ContainsAny(string(line), "\r\n") {
			return
		}
		ours, theirs := net.Pipe()
		in, err := newInjector(theirs, "")
		must(t, err)
		done := make(chan struct{})
		go func() { defer close(done); in.serve() }()
		_ = ours.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := ours.Write(append(line, '\n')); err != nil && len(line) < maxLineBytes {
			t.Fatal(err)
		}
		var reply Reply
		if err := json.NewDecoder(ours).Decode(&reply); err != nil && len(line) < maxLineBytes && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		_ = ours.Close()
		<-done
		_ = theirs.Close()
	})
}

// TestSink: a sink in line holds its callers up while its reader does not read, and no longer than it is set.
func TestSink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in := &Injector{disk: vfs.NewFaulty(vfs.OS{}), net: &network{}, clk: clock.NewSkewed(nil), sink: &Sink{}}
	in.Sink().Write([]byte("nobody is there\n"))
	if err := in.apply(Command{Do: DoSink, Name: "dogstatsd", Glob: path}); err != nil {
		t.Fatal(err)
	}
	if in.Sink().Name() != "dogstatsd" {
		t.Errorf("it is called %q", in.Sink().Name())
	}
	done := make(chan int)
	go func() {
		n := 0
		for ; in.Sink().Name() != ""; n++ {
			in.Sink().Write(make([]byte, 256))
		}
		done <- n
	}()
	select {
	case n := <-done:
		t.Fatalf("%d lines went to nobody", n)
	case <-time.After(100 * time.Millisecond):
	}
	if err := in.apply(Command{Do: DoLift, Name: "dogstatsd"}); err != nil {
		t.Fatal(err)
	}
	<-done
	if err := in.apply(Command{Do: DoSink, Name: "x", Glob: path + "nowhere"}); err == nil {
		t.Error("a sink without a reader was set")
	}
}
