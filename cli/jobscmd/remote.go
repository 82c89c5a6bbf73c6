package jobscmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// frame is a piece of a log or file.
type frame struct {
	Data      []byte
	FileEvent string
}

// copyFrames writes what a stream of frames carries.
func copyFrames(c *Call, path string, query url.Values, to io.Writer) error {
	body, err := c.Client.Stream(c.Ctx(), path, query)
	if err != nil {
		return err
	}
	defer body.Close()
	decode := json.NewDecoder(body)
	for {
		var f frame
		if err := decode.Decode(&f); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("the stream broke off: %w", err)
		}
		if f.FileEvent != "" {
			fmt.Fprintf(c.Err, "%s\n", f.FileEvent)
		}
		if _, err := to.Write(f.Data); err != nil {
			return err
		}
	}
}

// lastBytes is what -n lines are looked for in: as much as they have at 120 columns.
func lastBytes(lines int) int64 { return int64(lines) * 120 }

// lastLines keeps the last lines of what is written, and passes the rest on as it comes.
type lastLines struct {
	to    io.Writer
	lines int
	held  []byte
	pass  bool
}

// Write implements io.Writer.
func (l *lastLines) Write(b []byte) (int, error) {
	if l.pass {
		return l.to.Write(b)
	}
	l.held = append(l.held, b...)
	return len(b), nil
}

// flush writes the lines that are held; what comes later passes.
func (l *lastLines) flush() error {
	lines := strings.SplitAfter(strings.TrimSuffix(string(l.held), "\n"), "\n")
	_, err := io.WriteString(l.to, strings.Join(lines[max(0, len(lines)-l.lines):], ""))
	if err == nil && strings.HasSuffix(string(l.held), "\n") {
		_, err = io.WriteString(l.to, "\n")
	}
	l.held, l.pass = nil, true
	return err
}

// allocLogs builds `alloc logs`.
func allocLogs(e *command.Env) *cobra.Command {
	return Leaf(e, "logs ALLOCATION [TASK]", "Print or follow a task's log", 1, 2,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			stderr := f.Bool("stderr", false, "standard error")
			f.Bool("stdout", false, "standard output (the default)")
			followIt := f.BoolP("f", "f", false, "go on as more is written")
			tail := f.Bool("tail", false, "only the end")
			lines := f.IntP("n", "n", 0, "only the last lines")
			size := f.Int64P("c", "c", 0, "only the last bytes")
			ofJob := f.Bool("job", false, "the first argument is a job: of one of its allocations")
			group := f.String("group", "", "with -job: of this group")
			name := f.String("task", "", "the task")
			return func(c *Call, args []string) error {
				a, err := anyAlloc(c, args[0], *ofJob, *group)
				if err != nil {
					return err
				}
				if len(args) == 2 {
					*name = args[1]
				}
				one, err := task(a, *name)
				if err != nil {
					return err
				}
				kind := "stdout"
				if *stderr {
					kind = "stderr"
				}
				query := url.Values{"task": {one}, "type": {kind}, "namespace": {a.Namespace}}
				if *tail && *lines == 0 && *size == 0 {
					*lines = 10
				}
				return printFrom(c, "client/fs/logs/"+a.ID, query, *lines, *size, *followIt)
			}
		})
}

// printFrom prints a log or file from its beginning, or its end, and follows it.
func printFrom(c *Call, path string, query url.Values, lines int, size int64, follow bool) error {
	query.Set("origin", "start")
	query.Set("offset", "0")
	if lines > 0 {
		size = lastBytes(lines)
	}
	if size > 0 {
		query.Set("origin", "end")
		query.Set("offset", strconv.FormatInt(size, 10))
	}
	if lines > 0 { // what is there first, so that its lines can be counted
		query.Set("follow", "false")
		last := &lastLines{to: c.Out, lines: lines}
		if err := copyFrames(c, path, query, last); err != nil {
			return err
		}
		if err := last.flush(); err != nil || !follow {
			return err
		}
		query.Set("offset", "0")
	}
	query.Set("follow", strconv.FormatBool(follow))
	return copyFrames(c, path, query, c.Out)
}

// fileInfo is a file of an allocation.
type fileInfo struct {
	Name, FileMode string
	IsDir          bool
	Size           int64
	ModTime        time.Time
}

func (i *fileInfo) row() []string {
	name := i.Name
	if i.IsDir {
		name += "/"
	}
	return []string{i.FileMode, strconv.FormatInt(i.Size, 10), i.ModTime.Format(time.RFC3339), name}
}

// allocFS builds `alloc fs`.
func allocFS(e *command.Env) *cobra.Command {
	return Leaf(e, "fs ALLOCATION [PATH]", "List the folders of an allocation, or print a file", 1, 2,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			stat := f.Bool("stat", false, "show what it is, not what is in it")
			followIt := f.BoolP("f", "f", false, "go on as more is written")
			tail := f.Bool("tail", false, "only the end")
			lines := f.IntP("n", "n", 0, "only the last lines")
			size := f.Int64P("c", "c", 0, "only the last bytes")
			ofJob := f.Bool("job", false, "the first argument is a job: of one of its allocations")
			f.BoolP("H", "H", false, "")
			_ = f.MarkHidden("H") // kept for scripts
			return func(c *Call, args []string) error {
				a, err := anyAlloc(c, args[0], *ofJob, "")
				if err != nil {
					return err
				}
				path := "/"
				if len(args) == 2 {
					path = args[1]
				}
				query := url.Values{"path": {path}, "namespace": {a.Namespace}}
				var info fileInfo
				if err := c.Get("client/fs/stat/"+a.ID, query, &info); err != nil {
					return err
				}
				switch {
				case *stat:
					return c.Table([]string{"Mode", "Size", "Modified Time", "Name"}, [][]string{info.row()}, "")
				case info.IsDir:
					return listFolder(c, a.ID, query)
				}
				if *tail && *lines == 0 && *size == 0 {
					*lines = 10
				}
				return printFrom(c, "client/fs/stream/"+a.ID, query, *lines, *size, *followIt)
			}
		})
}

func listFolder(c *Call, id string, query url.Values) error {
	var list []*fileInfo
	if err := c.Get("client/fs/ls/"+id, query, &list); err != nil {
		return err
	}
	if c.JSON {
		return command.WriteJSON(c.Out, list, false)
	}
	rows := [][]string{}
	for _, i := range list {
		rows = append(rows, i.row())
	}
	return c.Table([]string{"Mode", "Size", "Modified Time", "Name"}, rows, "The folder is empty")
}
