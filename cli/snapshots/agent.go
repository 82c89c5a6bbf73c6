package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"corbel.dev/corbel/client/snapstore"
	"corbel.dev/corbel/kit/backoff"
	"github.com/spf13/cobra"
)

// Hold runs do while a lock on a key is held, waiting for it as long as ctx lasts.
// The context of do ends with the lock.
type Hold func(ctx context.Context, cl *client.Client, key, name string, say io.Writer,
	do func(held context.Context) error) error

// keeper takes snapshots and keeps them. It is used by one goroutine.
type keeper struct {
	o       *agentOptions
	d       *command.Dial
	cl      *client.Client
	targets []snapstore.Target
	log     *log.Logger
	hold    Hold
}

func agent(e *command.Env, hold Hold) *cobra.Command {
	var o agentOptions
	var d command.Dial
	c := &cobra.Command{Use: "agent", Short: "Take snapshots on a schedule and delete old ones",
		Args: command.Between(0, 0, "no arguments")}
	c.Long = `Take a snapshot every --interval, verify it, store it in a folder or a bucket, and
delete all but the --retain newest. If several agents share a --lock-key, one is active
and another takes over when it stops or fails. With --interval 0, take one snapshot
and exit, without the lock.

  corbel snapshot agent --local-path /var/backups/corbel --interval 1h --retain 30
  corbel snapshot agent --aws-s3-bucket backups --aws-s3-region eu-central-1`
	d.Flags(e, c)
	o.flags(e, c)
	read := configFlags(e, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := read(); err != nil {
			return err
		}
		if err := o.complete(e, c); err != nil {
			return err
		}
		if o.interval > 0 && d.Q.Datacenter != "" {
			return command.Usagef("-datacenter works with -interval 0 only: run an agent in each datacenter")
		}
		targets, err := o.targets(e)
		if err != nil {
			return command.AsUsage(err)
		}
		cl, err := d.Client()
		if err != nil {
			return err
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		k := &keeper{o: &o, d: &d, cl: cl, targets: targets, log: log.New(e.Err, "", log.LstdFlags), hold: hold}
		if o.interval == 0 {
			return k.once(ctx)
		}
		k.run(ctx)
		return nil
	}
	return c
}

// run holds the lock and takes snapshots until ctx ends; whatever fails is told and tried again.
func (k *keeper) run(ctx context.Context) {
	host, _ := os.Hostname() // for the session's name alone
	retry := backoff.Backoff{Min: time.Second, Max: time.Minute}
	k.log.Printf("[INFO] Snapshot agent running: every %s, keeping %d", k.o.interval, k.o.retain)
	for ctx.Err() == nil {
		k.log.Printf("[INFO] Waiting to obtain leadership: the lock %s", k.o.lockKey)
		err := k.hold(ctx, k.cl, k.o.lockKey, "Consul Snapshot Agent at "+host, steps{k.log},
			func(held context.Context) error {
				k.log.Printf("[INFO] Obtained leadership")
				return k.lead(held, &retry)
			})
		if ctx.Err() != nil {
			break
		}
		delay := retry.Next()
		k.log.Printf("[ERR] %v; next try in %s", err, delay.Round(time.Millisecond))
		command.Wait(ctx, delay)
	}
	k.log.Printf("[INFO] Snapshot agent ends")
}

// steps is a writer that tells the steps of the lock in the log.
type steps struct{ log *log.Logger }

// Write implements io.Writer.
func (s steps) Write(line []byte) (int, error) {
	s.log.Printf("[INFO] lock: %s", line)
	return len(line), nil
}

// lead takes snapshots until held ends or too many failed in a row. A success resets retry.
func (k *keeper) lead(held context.Context, retry *backoff.Backoff) error {
	between := backoff.Backoff{Min: time.Second, Max: min(max(k.o.interval, time.Second), time.Minute)}
	for {
		begin := time.Now()
		err := k.once(held)
		switch {
		case held.Err() != nil:
			return held.Err()
		case err == nil:
			between.Reset()
			retry.Reset()
			command.Wait(held, k.o.interval-time.Since(begin))
			continue
		case between.Tries()+1 >= k.o.maxFailures:
			return fmt.Errorf("%w; this was failure %d in a row, so another agent may try", err, between.Tries()+1)
		}
		delay := between.Next()
		k.log.Printf("[ERR] %v; next try in %s", err, delay.Round(time.Millisecond))
		command.Wait(held, delay)
	}
}

// once takes a snapshot, keeps it in every target and deletes what is too old there.
// A target that fails does not keep the others from theirs.
func (k *keeper) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	f, err := os.CreateTemp(k.o.scratch, "corbel-snapshot-*")
	if err != nil {
		return fmt.Errorf("make a file for the snapshot: %w; see -local-scratch-path", err)
	}
	defer f.Close()
	// Where the system allows, the file has no name from here on, and no crash leaves it behind.
	if os.Remove(f.Name()) != nil {
		defer os.Remove(f.Name())
	}
	name, id := snapstore.Name(k.o.namePrefix, time.Now())
	meta, size, err := fetch(ctx, k.d, k.cl, f)
	if err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	var failed []error
	for _, t := range k.targets {
		if err := t.Put(ctx, name, f, size); err != nil {
			failed = append(failed, fmt.Errorf("keep snapshot %s in %s: %w", id, t, err))
			continue
		}
		k.log.Printf("[INFO] Saved snapshot %s: index %d, %d bytes, %s in %s", id, meta.Index, size, name, t)
		gone, err := snapstore.Prune(ctx, t, k.o.namePrefix, k.o.retain)
		for _, old := range gone {
			k.log.Printf("[INFO] Deleted old snapshot %s in %s", old, t)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
