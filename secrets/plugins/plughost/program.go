package plughost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/kit/procgroup"
	"corbel.dev/corbel/kit/spawn"
)

// program is a process, in the words of go-plugin (runner.Runner). A goroutine starts it and waits for its end, on a
// thread of its own: with the thread that started it, it would be killed.
type program struct {
	name string
	file *os.File // what is run; closed once it was started
	cmd  *exec.Cmd

	stdout, stderr *os.File // read ends
	ended          chan struct{}
	err            error // of its end; once ended is closed
	group          sync.WaitGroup

	mu     sync.Mutex // guards what follows
	pid    int        // 0: it does not run yet, or no more
	ran    bool
	killed bool
}

// drainWithin is how long what a killed program wrote is waited for: a child of it may hold its output open.
const drainWithin = time.Second

// Start implements runner.Runner.
func (p *program) Start(context.Context) error {
	defer p.file.Close()
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		return errors.Join(err, outRead.Close(), outWrite.Close())
	}
	p.stdout, p.stderr, p.cmd.Stdin = outRead, errRead, nil
	p.cmd.Stdout, p.cmd.Stderr = outWrite, errWrite
	p.cmd.Path, p.cmd.SysProcAttr = pathOf(p.file), spawn.DieWithParent()
	procgroup.Alone(p.cmd)
	started := make(chan error)
	p.group.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := p.cmd.Start(); err != nil {
			started <- err
			return
		}
		settle(p.cmd.Process.Pid)
		p.runs(p.cmd.Process.Pid)
		started <- nil
		p.reap()
	})
	err = <-started
	_ = outWrite.Close()
	_ = errWrite.Close()
	return err
}

// runs says that the process runs.
func (p *program) runs(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid, p.ran = pid, true; p.killed {
		_ = procgroup.Kill(pid)
	}
}

// reap waits for the process. While nobody has taken note of its end its number is nobody else's: what it left behind
// is killed by it until then.
func (p *program) reap() {
	pid := p.cmd.Process.Pid
	lingers := linger(pid)
	if !lingers {
		p.err = p.cmd.Wait()
	}
	p.mu.Lock()
	if p.pid = 0; lingers {
		_ = procgroup.Kill(pid)
	}
	p.mu.Unlock()
	if lingers {
		p.err = p.cmd.Wait()
	}
	late := time.Now().Add(drainWithin)
	_ = p.stdout.SetReadDeadline(late)
	_ = p.stderr.SetReadDeadline(late)
	close(p.ended)
}

// Wait implements runner.AttachedRunner.
func (p *program) Wait(context.Context) error {
	<-p.ended
	return p.err
}

// Kill implements runner.AttachedRunner: the process, and those that it started.
func (p *program) Kill(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed = true; p.pid != 0 {
		return procgroup.Kill(p.pid)
	}
	return nil
}

// end waits for all that was kept for the process, which was killed.
func (p *program) end() {
	p.group.Wait()
	if p.stdout != nil {
		_ = p.stdout.Close()
		_ = p.stderr.Close()
	}
}

// Stdout implements runner.Runner.
func (p *program) Stdout() io.ReadCloser { return p.stdout }

// Stderr implements runner.Runner.
func (p *program) Stderr() io.ReadCloser { return p.stderr }

// Name implements runner.Runner.
func (p *program) Name() string { return p.name }

// ID implements runner.AttachedRunner; "" says that it never ran: go-plugin closes nothing then.
func (p *program) ID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.ran:
		return ""
	case p.pid == 0:
		return p.name
	}
	return strconv.Itoa(p.pid)
}

// Diagnose implements runner.Runner.
func (p *program) Diagnose(context.Context) string {
	return fmt.Sprintf("%s did not answer in the protocol of plug-ins: is it one, built for this system?", p.name)
}

// PluginToHost implements runner.AddrTranslator.
func (p *program) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin implements runner.AddrTranslator.
func (p *program) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}
