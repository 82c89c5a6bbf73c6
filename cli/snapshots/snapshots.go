// Package snapshots holds the commands that save, restore and look into snapshots,
// and the agent that takes them on a schedule.
//
// An archive is checked against its own sums after it was saved and before it is
// sent: a file that snapshot save made is one that snapshot restore takes.
package snapshots

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/migrate/snapfile"
	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/archive"
	"github.com/spf13/cobra"
)

// maxStateBytes bounds the state of an archive that is looked into: more than any
// set of servers holds in memory.
const maxStateBytes = 1 << 40

// transferTime bounds a transfer: what takes longer has stalled.
const transferTime = time.Hour

// Command builds `snapshot`. The agent is one of several by the lock of hold.
func Command(e *command.Env, c *cobra.Command, hold Hold) {
	command.Group(c, save(e), restore(e), inspect(e), agent(e, hold))
}

func save(e *command.Env) *cobra.Command {
	var aws string
	c := command.Act(e, "save FILE", "Save the whole state of the servers to a file",
		command.Between(1, 1, "the name of a file"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, args []string) error {
			meta, err := saveTo(ctx, d, cl, args[0])
			if err != nil {
				return err
			}
			return e.Printf("Saved and verified snapshot to index %d\n", meta.Index)
		})
	c.Flags().StringVar(&aws, "append-filename", "", "no effect: give the whole name")
	_ = c.Flags().MarkHidden("append-filename") // fails for an unknown flag only
	return c
}

// saveTo writes beside the file and renames, so that no half of an archive is left under its name.
func saveTo(ctx context.Context, d *command.Dial, cl *client.Client, path string) (meta *archive.Meta, err error) {
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	partial := path + ".unverified"
	f, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		f.Close()
		if err != nil {
			_ = os.Remove(partial) // a part of an archive is of no use
		}
	}()
	if meta, _, err = fetch(ctx, d, cl, f); err != nil {
		return nil, err
	}
	return meta, os.Rename(partial, path)
}

// fetch writes a snapshot to f, which is empty, and returns when it is on disk and
// its sums were compared.
func fetch(ctx context.Context, d *command.Dial, cl *client.Client, f *os.File) (meta *archive.Meta, size int64,
	err error) {
	resp, err := cl.Do(ctx, http.MethodGet, "/v1/snapshot", d.Q.Values(), nil)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	if size, err = io.Copy(f, resp.Body); err != nil {
		return nil, 0, fmt.Errorf("the snapshot broke off: %w; save it again", err)
	}
	if err = f.Sync(); err != nil {
		return nil, 0, err
	}
	if _, err = f.Seek(0, io.SeekStart); err != nil {
		return nil, 0, err
	}
	if meta, err = archive.Read(f, io.Discard, maxStateBytes); err != nil {
		return nil, 0, fmt.Errorf("what the server sent does not verify: %w", err)
	}
	return meta, size, nil
}

// verify reads an archive to its end, compares its sums, and refuses one that Consul's servers made.
func verify(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var head beginning
	if _, err = archive.Read(f, &head, maxStateBytes); err != nil {
		return fmt.Errorf("it does not verify: %w; it must be a file of `snapshot save`", err)
	}
	if snapfile.IsConsul(bytes.NewReader(head)) {
		return fmt.Errorf("it was saved by Consul, whose state has another form; bring it over with `corbel import consul "+
			"--snapshot %s`", path)
	}
	return nil
}

// beginning keeps the first bytes that are written to it.
type beginning []byte

// Write implements io.Writer.
func (b *beginning) Write(p []byte) (int, error) {
	if room := 4096 - len(*b); room > 0 {
		*b = append(*b, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

func restore(e *command.Env) *cobra.Command {
	return command.Act(e, "restore FILE", "Replace the whole state of the servers with a snapshot",
		command.Between(1, 1, "the name of a file"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, args []string) error {
			if err := verify(args[0]); err != nil {
				return fmt.Errorf("%s: nothing was sent: %w", args[0], err)
			}
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			ctx, cancel := context.WithTimeout(ctx, transferTime)
			defer cancel()
			q := client.Query{Datacenter: d.Q.Datacenter}
			resp, err := cl.Do(ctx, http.MethodPut, "/v1/snapshot", q.Values(), io.Reader(f))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			return e.Printf("Restored snapshot\n")
		})
}
