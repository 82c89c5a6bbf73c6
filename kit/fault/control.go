package fault

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"
)

// CallTimeout bounds one command when the context has no earlier deadline.
const CallTimeout = 30 * time.Second

// Control is the parent's handle on an armed process. Safe for concurrent use;
// commands go one after the other. Close it when the process has ended.
type Control struct {
	process *os.Process

	mu     sync.Mutex // guards the line, so one command at a time
	conn   net.Conn
	lines  *bufio.Reader
	lastID uint64
	broken error
}

// Spawn starts cmd armed, with the given faults in force from its first
// instruction on. Waiting for cmd stays with the caller.
func Spawn(cmd *exec.Cmd, begin ...Command) (*Control, error) {
	ours, theirs, err := linePair()
	if err != nil {
		return nil, fmt.Errorf("fault: %w", err)
	}
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		return nil, fmt.Errorf("fault: %w", err)
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", EnvFD, 2+len(cmd.ExtraFiles)))
	if len(begin) > 0 {
		script, err := json.Marshal(begin)
		if err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("fault: %w", err)
		}
		cmd.Env = append(cmd.Env, EnvBegin+"="+string(script))
	}
	if err := cmd.Start(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &Control{process: cmd.Process, conn: conn, lines: bufio.NewReader(conn)}, nil
}

// Do sends one command and returns the state after it. An error that is no
// refusal of the process breaks the line for good.
func (c *Control) Do(ctx context.Context, command Command) (Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return Status{}, c.broken
	}
	c.lastID++
	command.ID = c.lastID
	reply, err := c.exchange(ctx, command)
	if err != nil {
		c.broken = fmt.Errorf("fault: process %d: %w", c.process.Pid, err)
		_ = c.conn.Close()
		return Status{}, c.broken
	}
	if reply.Error != "" {
		return reply.Status, fmt.Errorf("fault: process %d refuses %s: %s", c.process.Pid, command.Do, reply.Error)
	}
	return reply.Status, nil
}

func (c *Control) exchange(ctx context.Context, command Command) (Reply, error) {
	deadline := time.Now().Add(CallTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = c.conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := json.NewEncoder(c.conn).Encode(command); err != nil {
		return Reply{}, err
	}
	line, err := c.lines.ReadBytes('\n')
	if err != nil {
		return Reply{}, err
	}
	var reply Reply
	if err := json.Unmarshal(line, &reply); err != nil {
		return Reply{}, err
	}
	if reply.ID != command.ID {
		return Reply{}, errors.New("the answer belongs to another command")
	}
	return reply, nil
}

// Disk injects a disk rule; c.Do is set for the caller.
func (c *Control) Disk(ctx context.Context, rule Command) error {
	rule.Do = DoDisk
	_, err := c.Do(ctx, rule)
	return err
}

// Net injects a network rule; c.Do is set for the caller.
func (c *Control) Net(ctx context.Context, rule Command) error {
	rule.Do = DoNet
	_, err := c.Do(ctx, rule)
	return err
}

// SetClock moves the wall clock by offset from the truth and sets its rate (1 is right).
func (c *Control) SetClock(ctx context.Context, offset time.Duration, rate float64) error {
	_, err := c.Do(ctx, Command{Do: DoClock, Offset: offset, Rate: rate})
	return err
}

// Lift ends one rule.
func (c *Control) Lift(ctx context.Context, name string) error {
	_, err := c.Do(ctx, Command{Do: DoLift, Name: name})
	return err
}

// Clear ends all rules and sets the clock right.
func (c *Control) Clear(ctx context.Context) error {
	_, err := c.Do(ctx, Command{Do: DoClear})
	return err
}

// Status reads what is in force.
func (c *Control) Status(ctx context.Context) (Status, error) {
	return c.Do(ctx, Command{Do: DoStatus})
}

// Freeze stops the whole process with SIGSTOP; commands then time out.
func (c *Control) Freeze() error { return signalStop(c.process) }

// Thaw lets a frozen process go on.
func (c *Control) Thaw() error { return signalGoOn(c.process) }

// Kill ends the process as a crash does, frozen or not.
func (c *Control) Kill() error { return c.process.Kill() }

// PID is the process's id.
func (c *Control) PID() int { return c.process.Pid }

// Close hangs up; the process lifts all its faults. It ends no process.
func (c *Control) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = net.ErrClosed
		return c.conn.Close()
	}
	return nil
}

// Peer is one process of a cluster: its control and the addresses at which the others dial it.
type Peer struct {
	Control *Control
	Addrs   []string
}

// PartitionRule is the prefix of the names of the rules that Partition injects.
const PartitionRule = "partition "

// Partition stops all traffic between the two sides, both ways, by stalling it
// at whoever dialled; packets are lost as far as either can tell. Traffic that
// does not pass core/wire (gossip over UDP) goes on: for that use kit/fault/netns.
func Partition(ctx context.Context, left, right []Peer) error {
	return errors.Join(cut(ctx, left, right), cut(ctx, right, left))
}

func cut(ctx context.Context, from, to []Peer) error {
	var errs []error
	for _, p := range from {
		for _, target := range to {
			for _, addr := range target.Addrs {
				errs = append(errs, p.Control.Net(ctx, Command{Name: PartitionRule + addr, Glob: addr, Stall: true}))
			}
		}
	}
	return errors.Join(errs...)
}

// Heal lifts what Partition injected in all peers.
func Heal(ctx context.Context, peers ...Peer) error {
	var errs []error
	for _, p := range peers {
		status, err := p.Control.Status(ctx)
		errs = append(errs, err)
		for _, rule := range status.Net {
			if len(rule.Name) > len(PartitionRule) && rule.Name[:len(PartitionRule)] == PartitionRule {
				errs = append(errs, p.Control.Lift(ctx, rule.Name))
			}
		}
	}
	return errors.Join(errs...)
}
