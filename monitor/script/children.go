package script

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

const (
	// patience is how long after a program's time its child may take to say so before it is killed: it ends itself sooner
	// unless the machine is busy.
	patience = time.Second
	// idleAfter is when a child that nobody needed ends.
	idleAfter = 5 * time.Minute
	// retry is how long it is before another child is started after one could not be.
	retry = time.Second
)

// children are the processes that run programs: each is with one caller, or idle.
type children struct {
	command []string
	started atomic.Uint64

	mu     sync.Mutex
	idle   []*child // the one used last at the end
	closed bool
	again  time.Time // no child is started before
	failed error
	all    sync.WaitGroup
}

type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	knows map[[32]byte]bool
	ended chan struct{}
	exit  int         // its exit code, once it ended
	leave *time.Timer // while it is idle
}

func newChildren(command []string, most int) *children {
	return &children{command: command, idle: make([]*child, 0, most)}
}

func (c *children) run(ctx context.Context, t Task) (Result, error) {
	k, err := c.take()
	if err != nil {
		return Result{}, err
	}
	out, err, fit := k.run(ctx, t)
	if !fit {
		k.kill()
		return out, err
	}
	c.giveBack(k)
	return out, err
}

// take returns an idle child or starts one. The caller has a turn, so there are never more than there are turns.
func (c *children) take() (*child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.idle) > 0 {
		k := c.idle[len(c.idle)-1]
		c.idle = c.idle[:len(c.idle)-1]
		if k.leave.Stop() && !k.gone() {
			return k, nil
		}
		k.kill()
	}
	switch {
	case c.closed:
		return nil, errkind.Errorf(errkind.Unavailable, "JavaScript: the process stops")
	case time.Now().Before(c.again):
		return nil, c.failed
	}
	k, err := c.start()
	if err != nil {
		c.failed, c.again = errkind.E(errkind.Unavailable, "start a process for JavaScript", err), time.Now().Add(retry)
		return nil, c.failed
	}
	return k, nil
}

// start starts a child; its end is waited for by a goroutine that close waits for.
func (c *children) start() (*child, error) {
	cmd := exec.Command(c.command[0], c.command[1:]...)
	cmd.Env = []string{} // what a server was started with (tokens, keys) is not a script's business
	cmd.Dir = "/"
	detach(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.started.Add(1)
	k := &child{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 16<<10), knows: map[[32]byte]bool{},
		ended: make(chan struct{})}
	c.all.Go(func() {
		if state, err := cmd.Process.Wait(); err == nil {
			k.exit = state.ExitCode()
		}
		close(k.ended)
		_, _ = in.Close(), out.Close()
	})
	return k, nil
}

func (c *children) giveBack(k *child) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		k.kill()
		return
	}
	k.leave = time.AfterFunc(idleAfter, k.kill)
	c.idle = append(c.idle, k)
}

// close ends all children. A child that is with a caller ends when it is given back, or when the caller's time is over.
func (c *children) close() {
	c.mu.Lock()
	c.closed = true
	for _, k := range c.idle {
		k.leave.Stop()
		k.kill()
	}
	c.idle = nil
	c.mu.Unlock()
	c.all.Wait()
}

func (k *child) kill() { _ = k.cmd.Process.Kill() }

func (k *child) gone() bool {
	select {
	case <-k.ended:
		return true
	default:
		return false
	}
}

// run has the child run a task; fit says whether it can run another one.
func (k *child) run(ctx context.Context, t Task) (out Result, err error, fit bool) {
	var late atomic.Bool
	timer := time.AfterFunc(prepareTime+t.limit()+overtime+patience, func() {
		late.Store(true)
		k.kill()
	})
	defer timer.Stop()
	stop := context.AfterFunc(ctx, k.kill)
	defer stop()
	for {
		if len(k.knows) > maxPrograms {
			clear(k.knows) // at most as much as it may have forgotten
		}
		out, code, err := k.exchange(encodeTask(&t, func(id [32]byte) bool { return k.knows[id] }))
		switch {
		case err != nil && code == 0:
			return out, k.why(ctx, late.Load(), err), false
		case code == unknownText:
			clear(k.knows)
			continue
		}
		k.knows[t.Program.id] = true
		if t.Library != nil {
			k.knows[t.Library.id] = true
		}
		return out, err, stop()
	}
}

func (k *child) exchange(task []byte) (Result, uint64, error) {
	if err := writeFrame(k.in, task); err != nil {
		return Result{}, 0, err
	}
	body, err := readFrame(k.out)
	if err != nil {
		return Result{}, 0, err
	}
	return decodeAnswer(body)
}

// why says what ended a child within a task: its own watch over the time, ours, or the kernel's over its memory.
func (k *child) why(ctx context.Context, late bool, err error) error {
	k.kill()
	<-k.ended
	switch {
	case ctx.Err() != nil:
		return errkind.E(errkind.Unavailable, "JavaScript", ctx.Err())
	case late, k.exit == exitOvertime:
		return ErrTime
	case errkind.Is(err, errkind.TooLarge):
		return err
	}
	return ErrMemory
}
