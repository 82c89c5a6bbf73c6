package operatecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd"
	"corbel.dev/corbel/kit/archive"
	"corbel.dev/corbel/node/planes/jobs/jobsnaps"
	"github.com/spf13/cobra"
)

const (
	snapshotPath = "operator/snapshot"
	// maxStateBytes bounds the state of an archive that is looked into.
	maxStateBytes = 1 << 40
	// transferTime bounds a transfer: what takes longer has stalled.
	transferTime = time.Hour
)

// snapshots builds `nomad operator snapshot`.
func snapshots(e *command.Env) *cobra.Command {
	return command.Named("snapshot", "Save, restore and look into the state of the jobs plane",
		jobscmd.Leaf(e, "save [FILE]", "Save jobs, nodes, allocations and variables to a file", 0, 1, saveCommand),
		jobscmd.Plain(e, "restore FILE", "Replace the state of the jobs plane with a snapshot", 1, 1, restore),
		jobscmd.Plain(e, "inspect FILE", "Verify a snapshot file and count its contents", 1, 1, inspect),
		jobscmd.Plain(e, "state FILE", "Print the contents of a snapshot file as JSON", 1, 1, state))
}

func saveCommand(cmd *cobra.Command) func(*jobscmd.Call, []string) error {
	stale := cmd.Flags().Bool("stale", false, "of the server that is asked, also while nobody leads")
	return func(c *jobscmd.Call, args []string) error {
		path := "nomad-state-" + time.Now().UTC().Format("20060102-150405") + ".snap"
		if len(args) == 1 {
			path = args[0]
		}
		query := url.Values{}
		if *stale {
			query.Set("stale", "")
		}
		if err := save(c, query, path); err != nil {
			return err
		}
		return c.Printf("State file written to %s\n", path)
	}
}

// save writes beside the file and renames, so that no half of an archive is left under its name.
func save(c *jobscmd.Call, query url.Values, path string) (err error) {
	ctx, cancel := context.WithTimeout(c.Ctx(), transferTime)
	defer cancel()
	partial := path + ".unverified"
	f, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(partial, path)
		}
		if err != nil {
			_ = os.Remove(partial) // a part of an archive is of no use
		}
	}()
	body, err := c.Client.Stream(ctx, snapshotPath, query)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err = io.Copy(f, body); err != nil {
		return fmt.Errorf("the snapshot broke off: %w; save it again", err)
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if _, err = f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err = archive.Read(f, io.Discard, maxStateBytes); err != nil {
		return fmt.Errorf("what the server sent does not verify: %w", err)
	}
	return nil
}

func restore(c *jobscmd.Call, args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = archive.Read(f, io.Discard, maxStateBytes); err != nil {
		return fmt.Errorf("%s: nothing was sent: it does not verify: %w; it must be a file of `nomad operator snapshot "+
			"save`", args[0], err)
	}
	if _, err = f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Ctx(), transferTime)
	defer cancel()
	if err := c.Client.Upload(ctx, snapshotPath, nil, io.NopCloser(f)); err != nil {
		return err
	}
	return c.Printf("Snapshot Restored\n")
}

// opened checks the archive to its last byte, and hands its state to f.
func opened(path string, f func(meta *archive.Meta, state io.Reader) error) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	spooled, err := os.CreateTemp("", "corbel-inspect-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = spooled.Close()
		_ = os.Remove(spooled.Name()) // a spool: of no use to anybody
	}()
	meta, err := archive.Read(in, spooled, maxStateBytes)
	if err == nil {
		_, err = spooled.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = f(meta, spooled)
	}
	if err != nil {
		return fmt.Errorf("%s does not verify as a snapshot of the jobs plane: %w", path, err)
	}
	return nil
}

// inspected is what inspect shows with -json.
type inspected struct {
	Meta  *archive.Meta
	Stats []jobsnaps.Tally
}

func inspect(c *jobscmd.Call, args []string) error {
	var r inspected
	if err := opened(args[0], func(meta *archive.Meta, state io.Reader) (err error) {
		r.Meta = meta
		r.Stats, err = jobsnaps.Inspect(state)
		return err
	}); err != nil {
		return err
	}
	if c.JSON {
		return command.WriteJSON(c.Out, r, false)
	}
	c.Fields("Created", created(r.Meta.ID), "ID", r.Meta.ID, "Size", bytesText(r.Meta.Size), "Index",
		strconv.FormatUint(r.Meta.Index, 10), "Term", strconv.FormatUint(r.Meta.Term, 10), "Version",
		strconv.Itoa(r.Meta.Version))
	all := jobsnaps.Tally{Name: "Total"}
	rows := [][]string{}
	for _, t := range r.Stats {
		all.Count, all.Size = all.Count+t.Count, all.Size+t.Size
		rows = append(rows, row(t))
	}
	if err := c.Printf("\n"); err != nil {
		return err
	}
	return c.Table([]string{"Type", "Count", "Size"}, append(rows, row(all)), "")
}

func row(t jobsnaps.Tally) []string {
	return []string{t.Name, strconv.Itoa(t.Count), bytesText(int64(t.Size))}
}

// created is when a snapshot was taken, which the end of its ID says in milliseconds.
func created(id string) string {
	ms, err := strconv.ParseInt(id[strings.LastIndexByte(id, '-')+1:], 10, 64)
	if err != nil {
		return "unknown"
	}
	return time.UnixMilli(ms).Format(time.RFC3339)
}

// bytesText is a size as people read it: 512 B, 1.5 KiB.
func bytesText(n int64) string {
	size, unit := float64(n), 0
	for size >= 1024 && unit < 4 {
		size, unit = size/1024, unit+1
	}
	return strings.TrimSuffix(strconv.FormatFloat(size, 'f', 1, 64), ".0") + []string{" B", " KiB", " MiB", " GiB",
		" TiB"}[unit]
}

func state(c *jobscmd.Call, args []string) error {
	return opened(args[0], func(_ *archive.Meta, state io.Reader) error { return jobsnaps.WriteContents(c.Out, state) })
}
