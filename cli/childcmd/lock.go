package childcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// lockOptions are the flags of lock.
type lockOptions struct {
	command.Dial
	limit        int
	name         string
	monitorRetry int
	try, timeout time.Duration
	shell        bool
	passStdin    bool
	verbose      bool
	ttl          time.Duration
	childCode    bool
}

// Lock builds lock.
func Lock(e *command.Env, c *cobra.Command) {
	var o lockOptions
	c.Use = "lock [flags] PREFIX COMMAND [ARGUMENT...]"
	c.Long = `Run a command while holding a lock in the key-value store under PREFIX, or one of
-n slots of a semaphore. If the lock is lost, the command is terminated and the exit
code is 1; otherwise it is the command's own. The command has CORBEL_LOCK_HELD in
its environment.

  corbel lock service/backup/leader ./backup.sh
  corbel lock -n 3 rollout 'systemctl restart web'`
	c.Args = command.Between(2, -1, "a prefix and a command")
	c.Annotations = map[string]string{ChildArgs: "yes"}
	c.Flags().SetInterspersed(false)
	o.Dial.Flags(e, c)
	f := c.Flags()
	f.IntVarP(&o.limit, "n", "n", 1, "how many may hold the lock at once")
	f.StringVar(&o.name, "name", "", "name of the session; default made of the command and the prefix")
	f.IntVar(&o.monitorRetry, "monitor-retry", 3, "how many failed lock checks to tolerate, one second apart")
	f.DurationVar(&o.try, "try", 0, "give up if the lock is not acquired in this time; 0 waits for ever")
	f.DurationVar(&o.timeout, "timeout", 0, "old name of --try")
	f.DurationVar(&o.ttl, "ttl", 15*time.Second, "the session ends when it was not renewed for up to twice this time")
	f.BoolVar(&o.shell, "shell", true, "run the command with the shell")
	f.BoolVar(&o.passStdin, "pass-stdin", false, "pass this process's stdin to the command")
	f.BoolVar(&o.verbose, "verbose", false, "print each step")
	f.BoolVar(&o.childCode, "child-exit-code", !e.Consul,
		e.Words("end with the command's exit code; false: with 1 when it is not 0", "end with 2 when the command fails"))
	c.RunE = func(c *cobra.Command, args []string) error {
		if o.limit < 1 {
			return command.Usagef("-n %d must be at least 1", o.limit)
		}
		if o.try == 0 {
			o.try = o.timeout
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		cl, err := o.Client()
		if err != nil {
			return err
		}
		l := &locker{o: &o, cl: cl, prefix: strings.Trim(args[0], "/"), say: io.Discard}
		if l.prefix == "" {
			return command.Usagef("the prefix of a lock must not be empty")
		}
		if o.name == "" {
			o.name = fmt.Sprintf("corbel lock: %s at %s", strings.Join(args[1:], " "), l.prefix)
		}
		if o.verbose {
			l.say = e.Err
		}
		return runLocked(ctx, e, l, args[1:])
	}
}

// runLocked runs the child while the lock is held.
func runLocked(ctx context.Context, e *command.Env, l *locker, args []string) error {
	var code int
	err := l.during(ctx, func(held context.Context) (err error) {
		p := childProcess{args: args, shell: l.o.shell, env: []string{"CORBEL_LOCK_HELD=true", "CONSUL_LOCK_HELD=true"},
			out: e.Out, err: e.Err}
		if l.o.passStdin {
			p.in = e.In
		}
		fmt.Fprintf(l.say, "starting %s\n", strings.Join(args, " "))
		code, err = p.run(held)
		return err
	})
	switch {
	case errors.Is(err, errLost):
		return fmt.Errorf("%w; the command was ended", err)
	case err != nil:
		return err
	case code != 0 && e.Consul && l.o.childCode:
		return command.ExitCode(2)
	case code != 0 && e.Consul:
		return nil
	case code != 0 && !l.o.childCode:
		return command.ExitCode(1)
	case code != 0:
		return command.ExitCode(code)
	}
	return nil
}

// during wins the lock, runs do beside a monitor, and gives the lock back. The
// context of do ends when the lock is lost, which is then the error.
func (l *locker) during(ctx context.Context, do func(held context.Context) error) error {
	acquired, err := l.acquire(ctx)
	defer l.release()
	if err != nil {
		return err
	}
	if !acquired {
		return fmt.Errorf("did not win the lock %s within %s", l.prefix, l.o.try)
	}
	held, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	monitor := make(chan struct{})
	go func() {
		defer close(monitor)
		lost(l.monitor(held))
	}()
	err = do(held)
	reason := context.Cause(held)
	lost(nil)
	<-monitor
	if errors.Is(reason, errLost) {
		return fmt.Errorf("%w: %s", reason, l.prefix)
	}
	return err
}

// WhileHolding runs do while the lock on the key itself is held, waiting for it as
// long as ctx lasts.
func WhileHolding(ctx context.Context, cl *client.Client, key, name string, say io.Writer,
	do func(held context.Context) error) error {
	l := &locker{o: &lockOptions{limit: 1, name: name, monitorRetry: 3, ttl: 15 * time.Second}, cl: cl, prefix: key,
		key: key, say: say}
	return l.during(ctx, do)
}

var errLost = errors.New("the lock was lost")

// renewEvery keeps a session of this TTL alive with two tries to spare.
func renewEvery(ttl time.Duration) time.Duration { return max(ttl/3, time.Second) }

// locker holds one lock or semaphore slot. Its methods are called by one goroutine
// at a time, but for renew, which has its own.
type locker struct {
	o       *lockOptions
	cl      *client.Client
	prefix  string
	key     string // the lock's key where it is not one below prefix
	session string
	say     io.Writer
	stop    context.CancelFunc // ends renewal
	renewed chan struct{}      // closed when renewal has ended
}

// acquire makes the session, keeps it alive and waits for the lock. false means
// that --try ran out.
func (l *locker) acquire(ctx context.Context) (bool, error) {
	var err error
	l.session, err = l.cl.CreateSession(ctx, client.Session{Name: l.o.name, TTL: l.o.ttl.String()})
	if err != nil {
		return false, fmt.Errorf("create a session: %w", err)
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop, l.renewed = stop, make(chan struct{})
	go l.renew(renewing)
	if l.o.try > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.o.try)
		defer cancel()
	}
	fmt.Fprintf(l.say, "waiting for the lock %s with session %s\n", l.prefix, l.session)
	if l.o.limit > 1 {
		err = l.takeSlot(ctx)
	} else {
		err = l.takeLock(ctx)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

// renew restarts the session's TTL until ctx ends. A session that has ended shows
// in the lock itself, which monitor watches.
func (l *locker) renew(ctx context.Context) {
	defer close(l.renewed)
	for {
		command.Wait(ctx, renewEvery(l.o.ttl))
		if ctx.Err() != nil {
			return
		}
		if err := l.cl.RenewSession(ctx, l.session); err != nil && ctx.Err() == nil {
			fmt.Fprintf(l.say, "renew the session: %v\n", err)
		}
	}
}

// release gives everything back, within ten seconds, also after an interrupt.
func (l *locker) release() {
	if l.session == "" {
		return
	}
	l.stop()
	<-l.renewed
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var err error
	if l.o.limit > 1 {
		err = l.giveSlot(ctx)
	} else {
		err = l.giveLock(ctx)
	}
	// Destroying the session frees whatever is left of it.
	if err = errors.Join(err, l.cl.DestroySession(ctx, l.session)); err != nil {
		fmt.Fprintf(l.say, "release: %v\n", err)
	}
}

// monitor returns errLost when the lock is no longer ours, nil when ctx ended.
func (l *locker) monitor(ctx context.Context) error {
	var index uint64
	for failures := 0; ctx.Err() == nil; {
		p, meta, err := l.cl.KV().Get(ctx, l.lockKey(), client.Query{Index: index, Wait: time.Minute, Consistent: true})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if failures++; failures > l.o.monitorRetry {
				return fmt.Errorf("%w: %w", errLost, err)
			}
			fmt.Fprintf(l.say, "look at the lock: %v\n", err)
			command.Wait(ctx, time.Second)
			index = 0
			continue
		case !l.holds(p):
			return errLost
		}
		failures = 0
		if index = meta.Index; index == 0 {
			index = 1
		}
	}
	return nil
}
