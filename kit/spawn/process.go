package spawn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/vfs"
)

// Process is a child that may be killed, frozen, and started again. One goroutine drives it; Ended, Running, Log and
// the counters may be asked by others while it runs.
type Process struct {
	Name string
	// Command makes what Start runs.
	Command func() *exec.Cmd
	// Plain starts it without the door for faults, as what is measured and programs that are not ours.
	Plain bool
	// Powered is the folder whose disk can lose its power (Crash); "" is none.
	Powered string
	// Control is the door for faults, of the last start.
	Control *fault.Control

	output Tail
	cmd    *exec.Cmd
	ended  chan struct{}
	err    error // of Wait, valid once ended is closed
	frozen bool
}

// Run starts a program that is not ours, or is only measured.
func Run(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: filepath.Base(cmd.Path), Plain: true, Command: func() *exec.Cmd { return cmd }}
	return p, p.Start()
}

// errRunning says that a process was started twice.
var errRunning = errors.New("it runs already")

// Start starts the process, with faults in force from its first instruction on.
func (p *Process) Start(begin ...fault.Command) error {
	if p.Running() {
		return fmt.Errorf("%s: %w", p.Name, errRunning)
	}
	cmd := p.Command()
	if cmd.Stdout == nil {
		cmd.Stdout = &p.output
	}
	cmd.Stderr = &p.output
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = DieWithParent()
	}
	p.Control = nil
	if p.Powered != "" {
		begin = append([]fault.Command{{Do: fault.DoPower, Name: p.Powered + ".power", Glob: p.Powered}}, begin...)
	}
	ended, started := make(chan struct{}), make(chan error)
	go func() { // ends with the process
		defer close(ended)
		// To the kernel the parent is the thread that starts the child: this one lives as long as that does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var control *fault.Control
		var err error
		if p.Plain {
			err = cmd.Start()
		} else {
			control, err = fault.Spawn(cmd, begin...)
		}
		if err == nil {
			p.Control = control
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		if control != nil {
			_ = control.Close()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", strings.Join(cmd.Args, " "), err)
	}
	p.cmd, p.ended, p.frozen = cmd, ended, false
	return nil
}

// Ended is closed when the process has ended; nil before the first start.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running reports whether the process lives.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return p.ended != nil
	}
}

// Err says how the process ended; it must have.
func (p *Process) Err() error { return p.err }

// PID is the number of the last start.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process.
func (p *Process) Signal(how os.Signal) error { return p.cmd.Process.Signal(how) }

// Kill ends the process as a crash does and waits for its end.
func (p *Process) Kill() {
	if p.Running() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// Crash kills the process, and for one with a disk that can lose its power lets that happen in two of three cases: at
// once, or after the next process has read what the machine's memory had, counted it, told it to others, and was
// killed too. It counts the power losses.
func (p *Process) Crash(rng *rand.Rand, count *int) error {
	p.Kill()
	if p.Powered == "" {
		return nil
	}
	switch rng.IntN(3) {
	case 0:
		return nil // the next one finds all of it
	case 1:
		if err := p.Start(); err != nil {
			return err
		}
		_ = Sleep(context.Background(), time.Duration(rng.IntN(600))*time.Millisecond)
		p.Kill()
	}
	*count++
	return vfs.LosePower(p.Powered+".power", rng)
}

// stopLimit is how long an orderly end may take before it is a kill.
const stopLimit = 20 * time.Second

// Stop asks the process to end, and kills it when it does not; the error tells.
func (p *Process) Stop() error { return p.End(syscall.SIGTERM, stopLimit) }

// End is Stop with a signal, nil for none, and the time that the process has.
func (p *Process) End(how os.Signal, limit time.Duration) error {
	if !p.Running() {
		return nil
	}
	if p.frozen {
		_ = p.Thaw()
	}
	if how != nil {
		_ = p.cmd.Process.Signal(how)
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.ended:
		return nil
	case <-t.C:
		p.Kill()
		return fmt.Errorf("%s did not end within %s of %v\n%s", p.Name, limit, how, &p.output)
	}
}

// Freeze stops the process in its tracks; Thaw lets it go on.
func (p *Process) Freeze() error {
	p.frozen = true
	return p.Control.Freeze()
}

// Thaw lets a frozen process go on.
func (p *Process) Thaw() error {
	p.frozen = false
	return p.Control.Thaw()
}

// Frozen reports whether it was frozen and not thawed.
func (p *Process) Frozen() bool { return p.frozen }

// Log is the end of what was printed, by all starts in order.
func (p *Process) Log() string { return p.output.String() }

// Damage returns an error when the log shows what no fault excuses.
func (p *Process) Damage() error {
	log := p.Log()
	for _, sign := range []string{"panic:", "DATA RACE", "fatal error:"} {
		if at := strings.Index(log, sign); at >= 0 {
			return fmt.Errorf("%s printed %q:\n%s", p.Name, sign, log[max(0, at-500):min(len(log), at+4000)])
		}
	}
	return nil
}

// RSS is the resident size in bytes; zero where the system does not tell. Peak is the largest that it ever was.
func (p *Process) RSS() int64 { return MemoryOf(strconv.Itoa(p.PID()), "VmRSS") }

// Peak is the largest resident size in bytes.
func (p *Process) Peak() int64 { return MemoryOf(strconv.Itoa(p.PID()), "VmHWM") }

// MemoryOf reads one of the sizes in /proc/PID/status.
func MemoryOf(pid, field string) int64 {
	data, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		var kib int64
		if _, err := fmt.Sscanf(line, field+": %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}

// CPU is the processor time in seconds that the process took, in user mode and in the kernel.
func (p *Process) CPU() float64 {
	if !p.Running() {
		s := p.cmd.ProcessState
		return (s.UserTime() + s.SystemTime()).Seconds()
	}
	return CPUOf(p.PID())
}

// CPUOf is the processor time of a process that lives; zero where the system does not tell.
func CPUOf(pid int) float64 {
	if t, ok := processTime(pid); ok {
		return t.Seconds()
	}
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ") // behind the command's name
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	const ticksPerSecond = 100 // USER_HZ: the same on every Linux that Go runs on
	return (user + system) / ticksPerSecond
}
