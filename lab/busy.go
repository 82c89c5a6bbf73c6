package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
)

// length says in a bench's own words that it is to last so long.
type length func(d time.Duration) []string

// slack is what a bench lasts beyond the watching: it begins when its servers do, and they are asked somewhat later.
const slack = 15 * time.Second

// whole is for benches of one row, half for those of two.
func whole(d time.Duration) []string { return []string{"-d", d.String()} }

func half(d time.Duration) []string { return []string{"-d", (d / 2).String()} }

// rounds is for those that count: ten a second are more than there can be.
func rounds(d time.Duration) []string {
	return []string{"--rounds", strconv.Itoa(min(1000, 10*int(d.Seconds())))}
}

// busy makes a healthy scenario of a bench that starts its own servers: they are asked while it runs.
func busy(lasts length, args ...string) func(context.Context, *environment) error {
	return func(ctx context.Context, b *environment) error {
		most := b.options.Learn + watched(b.options.Runs) + slack
		return b.bench(ctx, slices.Concat(args, lasts(most), []string{"--no-floors"}))
	}
}

// busySecrets makes one of a bench of the secrets plane, which runs against a server of the lab's, again and again.
func busySecrets(args ...string) func(context.Context, *environment) error {
	return func(ctx context.Context, b *environment) error {
		if err := b.withSecrets(ctx, `storage "raft" { path = "secrets" }`); err != nil {
			return err
		}
		return b.bench(ctx, slices.Concat(args, []string{"--no-floors", "--target", b.vault.addr, "--token", b.vault.token}))
	}
}

// noLoad is for scenarios whose load is a bench.
func noLoad(*environment) []stream { return nil }

// bench starts one and waits for its servers, where the environment has none. Where it has, the bench is started again
// whenever it has ended.
func (b *environment) bench(ctx context.Context, args []string) error {
	printed := &spawn.Tail{}
	again := len(b.servers) > 0
	begin := func() (*exec.Cmd, error) {
		cmd := exec.Command(b.options.Binary, append([]string{"bench"}, args...)...)
		cmd.Dir, cmd.Env, cmd.SysProcAttr = b.dir, harness.Environ(), spawn.DieWithParent()
		cmd.Stdout, cmd.Stderr = printed, printed
		return cmd, cmd.Start()
	}
	cmd, err := begin()
	if err != nil {
		return err
	}
	pid := cmd.Process.Pid
	ended, enough := make(chan struct{}), make(chan struct{})
	var result error
	go func() { // ends with the process, which later ends
		defer close(ended)
		for {
			over := make(chan error, 1)
			go func() { over <- cmd.Wait() }()
			select {
			case result = <-over:
			case <-enough:
				stop(cmd.Process, over)
				return
			}
			if !again || result != nil {
				return
			}
			if cmd, result = begin(); result != nil {
				return
			}
		}
	}()
	b.later(func() { close(enough); <-ended })
	b.load.failed = func() error {
		select {
		case <-ended:
			if result != nil {
				return fmt.Errorf("the bench failed: %w\n%s", result, printed)
			}
			return fmt.Errorf("the bench ended too early:\n%s", printed)
		default:
		}
		return nil
	}
	within, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for len(b.servers) == 0 || b.ready(within, b.servers[0]) != nil {
		select {
		case <-ended:
			return fmt.Errorf("the bench ended before its servers were asked: %w\n%s", result, printed)
		default:
		}
		if err := spawn.Sleep(within, 200*time.Millisecond); err != nil {
			return fmt.Errorf("the servers of the bench do not serve: %w\n%s", err, printed)
		}
		if len(b.servers) == 0 {
			if err := b.adopt(pid); err != nil {
				return err
			}
		}
	}
	return nil
}

// stop interrupts a process so that it ends its servers, and kills it where it does not.
func stop(p *os.Process, over <-chan error) {
	_ = p.Signal(syscall.SIGINT)
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		_ = p.Kill()
		<-over
	}
}

// adopt takes the servers that a process started as those to be asked.
func (b *environment) adopt(parent int) error {
	all, err := childrenOf(parent)
	for _, args := range all {
		s := &harness.Server{Process: &spawn.Process{}}
		for i := 0; i+1 < len(args); i++ {
			switch args[i] {
			case "-node":
				s.Name = args[i+1]
			case "-http-port":
				s.HTTP = "127.0.0.1:" + args[i+1]
			}
		}
		if s.HTTP == "" || s.Name == "" || !strings.HasPrefix(s.Name, "server-") {
			continue
		}
		c, oneErr := known(s)
		if oneErr != nil {
			return oneErr
		}
		b.servers = append(b.servers, c)
	}
	return errors.Join(err)
}
