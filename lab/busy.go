package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/client"
)

// busy makes a healthy scenario of a bench that starts its own servers: they are asked while it runs.
func busy(args ...string) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error { return b.bench(ctx, args) }
}

// busySecrets makes one of a bench of the secrets plane, which runs against a server of the lab's.
func busySecrets(args ...string) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error {
		if err := b.withSecrets(ctx, `storage "raft" { path = "secrets" }`); err != nil {
			return err
		}
		args := append(args, "--target", b.vault.addr, "--token", b.vault.token)
		return b.bench(ctx, args)
	}
}

// noLoad is for scenarios whose load is a bench.
func noLoad(*bed) []stream { return nil }

// bench starts one and waits for its servers, where the bed has none.
func (b *bed) bench(ctx context.Context, args []string) error {
	printed := &output{}
	cmd := exec.Command(b.options.Binary, append([]string{"bench"}, args...)...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = b.dir, plainEnv(), dieWithParent(), printed, printed
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	var result error
	go func() { // ends with the process, which later ends
		defer close(ended)
		result = cmd.Wait()
	}()
	b.later(func() {
		_ = cmd.Process.Signal(syscall.SIGINT) // so that it ends its servers
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	b.failed = func() error {
		select {
		case <-ended:
			if result != nil {
				return fmt.Errorf("the bench failed: %w\n%s", result, printed)
			}
		default:
		}
		return nil
	}
	within, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for len(b.servers) == 0 || b.ready(within, b.servers[:1]) != nil {
		select {
		case <-ended:
			return fmt.Errorf("the bench ended before its servers were asked: %w\n%s", result, printed)
		default:
		}
		if err := sleep(within, 200*time.Millisecond); err != nil {
			return fmt.Errorf("the servers of the bench do not serve: %w\n%s", err, printed)
		}
		if len(b.servers) == 0 {
			if err := b.adopt(cmd.Process.Pid); err != nil {
				return err
			}
		}
	}
	return nil
}

// adopt takes the servers that a process started as those to be asked.
func (b *bed) adopt(parent int) error {
	all, err := childrenOf(parent)
	for _, args := range all {
		s := &server{output: &output{}}
		for i := 0; i+1 < len(args); i++ {
			switch args[i] {
			case "-node":
				s.name = args[i+1]
			case "-http-port":
				s.http = "127.0.0.1:" + args[i+1]
			}
		}
		if s.http == "" || s.name == "" || !strings.HasPrefix(s.name, "server-") {
			continue
		}
		c, oneErr := client.New(client.Config{Address: "http://" + s.http, Timeout: 10 * time.Second})
		if oneErr != nil {
			return oneErr
		}
		s.client = c
		b.servers = append(b.servers, s)
	}
	return errors.Join(err)
}
