package faultrun

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/vfs"
)

// Server is one member: its folder, its addresses and, while it runs, its process.
type Server struct {
	Name, Dir string
	// HTTP, RPC, Serf, GRPC, and the monitor plane's Monitor (API) and Agents are host:port.
	HTTP, RPC, Serf, GRPC, Monitor, Agents string
	// Control is the door for faults; of the last process that ran.
	Control *fault.Control

	// powered is the folder whose disk can lose its power; "" is none.
	powered string

	command func() *exec.Cmd
	output  *spawn.Tail
	proc    *exec.Cmd
	ended   chan struct{}
	frozen  bool
}

// errRunning says that a server was started twice.
var errRunning = errors.New("it runs already")

// Start runs the server armed, with faults in force from its first instruction on.
func (s *Server) Start(begin ...fault.Command) error {
	if s.Running() {
		return fmt.Errorf("%s: %w", s.Name, errRunning)
	}
	cmd := s.command()
	cmd.Stdout, cmd.Stderr = s.output, s.output
	cmd.SysProcAttr = spawn.DieWithParent()
	if s.powered != "" {
		begin = append([]fault.Command{{Do: fault.DoPower, Name: s.powered + ".power", Glob: s.powered}}, begin...)
	}
	control, err := fault.Spawn(cmd, begin...)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	ended := make(chan struct{})
	s.Control, s.proc, s.ended, s.frozen = control, cmd, ended, false
	go func() {
		defer close(ended)
		_ = cmd.Wait()
		_ = control.Close()
	}()
	return nil
}

// Running reports whether the process lives.
func (s *Server) Running() bool {
	if s.ended == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// Kill ends the process as a crash does and waits for its end.
func (s *Server) Kill() {
	if s.Running() {
		_ = s.Control.Kill()
		<-s.ended
	}
}

// Crash kills the process, and for a server with a disk that can lose its power lets that happen in two of three
// cases: at once, or after the next process has read what the machine's memory had, counted it, told it to others,
// and was killed too.
func (s *Server) Crash(rng *rand.Rand, count *int) error {
	s.Kill()
	if s.powered == "" {
		return nil
	}
	switch rng.IntN(3) {
	case 0:
		return nil // the next one finds all of it
	case 1:
		if err := s.Start(); err != nil {
			return err
		}
		_ = wait(context.Background(), time.Duration(rng.IntN(600))*time.Millisecond)
		s.Kill()
	}
	*count++
	return vfs.LosePower(s.powered+".power", rng)
}

// stopLimit is how long an orderly end may take before it is a kill.
const stopLimit = 20 * time.Second

// Stop asks the process to end, and kills it when it does not; the error tells.
func (s *Server) Stop() error {
	if !s.Running() {
		return nil
	}
	if s.frozen {
		_ = s.Thaw()
	}
	_ = s.proc.Process.Signal(syscall.SIGTERM)
	t := time.NewTimer(stopLimit)
	defer t.Stop()
	select {
	case <-s.ended:
		return nil
	case <-t.C:
		s.Kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM\n%s", s.Name, stopLimit, s.output)
	}
}

// Freeze stops the process in its tracks; Thaw lets it go on.
func (s *Server) Freeze() error {
	s.frozen = true
	return s.Control.Freeze()
}

// Thaw lets a frozen process go on.
func (s *Server) Thaw() error {
	s.frozen = false
	return s.Control.Thaw()
}

// Log is the end of what the server printed, all its processes in order.
func (s *Server) Log() string { return s.output.String() }

// damage returns an error when the log shows what no fault excuses.
func (s *Server) damage() error {
	log := s.Log()
	for _, sign := range []string{"panic:", "DATA RACE", "fatal error:"} {
		if at := strings.Index(log, sign); at >= 0 {
			return fmt.Errorf("%s printed %q:\n%s", s.Name, sign, log[max(0, at-500):min(len(log), at+4000)])
		}
	}
	return nil
}

// RSS is the resident size of the process in bytes; zero where the system does not tell.
func (s *Server) RSS() int64 { return rssOf(fmt.Sprint(s.Control.PID())) }

func rssOf(pid string) int64 {
	data, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}

// hopeless is an error that waiting does not mend: until gives up at once.
type hopeless struct{ error }

// until asks cond every few milliseconds until it returns nil, ctx ends, or limit is over.
func until(ctx context.Context, limit time.Duration, what string, cond func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pause := time.Millisecond
	begin := time.Now()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		_, over := err.(hopeless)
		if over || wait(ctx, pause) != nil {
			return fmt.Errorf("waited %s for: %s; last: %w", time.Since(begin).Round(time.Millisecond), what, err)
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// wait lets d pass, or returns ctx's error when that ends first.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
