package dockerdriver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/tasklog"
	"corbel.dev/corbel/kit/errkind"
)

// running is a container.
type running struct {
	engine *engine
	state  state
	mhz    int64
	end    context.CancelFunc // of the copy of its output
	copied sync.WaitGroup
}

// follow begins to copy the output of a container, which goes on until it ends or is removed.
func (d *Driver) follow(t *driver.Task, id string, tty bool) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{engine: d.engine, state: state{id, tty}, mhz: t.Resources.TotalCPU, end: cancel}
	if !t.NoLogs {
		r.copied.Go(func() { r.logs(ctx, t) })
	}
	return r
}

// retryLogs is how soon the output is asked for again when the Engine was away.
const retryLogs = 2 * time.Second

// logs copies output until ctx ends, or the container did.
func (r *running) logs(ctx context.Context, t *driver.Task) {
	note := filepath.Join(t.Dirs.Private, "logs-until")
	out, err := tasklog.NewWriter(t.Dirs.Logs, tasklog.Name(t.Name, false), t.Logs)
	if err != nil {
		return
	}
	defer out.Close()
	errs, err := tasklog.NewWriter(t.Dirs.Logs, tasklog.Name(t.Name, true), t.Logs)
	if err != nil {
		return
	}
	defer errs.Close()
	since, _ := os.ReadFile(note)
	s := &stamped{until: string(since), note: note}
	for ctx.Err() == nil {
		query := "/logs?follow=1&stdout=1&stderr=1&timestamps=1"
		if s.until != "" {
			query += "&since=" + url.QueryEscape(s.until)
		}
		res, err := r.engine.open(ctx, http.MethodGet, "/containers/"+r.state.Container+query, nil, nil)
		if err == nil {
			if r.state.TTY {
				_, err = io.Copy(&lines{s: s, to: out}, res.Body)
			} else {
				err = demux(res.Body, &lines{s: s, to: out}, &lines{s: s, to: errs})
			}
			_ = res.Body.Close()
			s.save()
			if err == nil {
				return // it ended
			}
		}
		if errkind.Is(err, errkind.NotFound) {
			return
		}
		timer := time.NewTimer(retryLogs)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// stamped knows up to which moment output was copied.
type stamped struct {
	until, note string
	saved       time.Time
}

// saveEvery is how often the note is written: what came since is copied twice after a crash of the agent.
const saveEvery = time.Second

func (s *stamped) save() {
	if s.until != "" {
		_ = os.WriteFile(s.note, []byte(s.until), 0o600)
	}
}

// maxLine bounds what is held of a line without an end.
const maxLine = 64 << 10

// lines takes the Engine's time off each line.
type lines struct {
	s    *stamped
	to   io.Writer
	part []byte
	mid  bool // the line's beginning was written
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		i := bytes.IndexByte(l.part, '\n')
		if i < 0 && len(l.part) < maxLine {
			break
		}
		line, whole := l.part, i >= 0
		if whole {
			line = l.part[:i+1]
		}
		l.line(line)
		l.mid = !whole
		l.part = l.part[len(line):]
	}
	if now := time.Now(); now.Sub(l.s.saved) > saveEvery {
		l.s.saved = now
		l.s.save()
	}
	return len(p), nil
}

func (l *lines) line(text []byte) {
	if !l.mid {
		stamp, rest, ok := bytes.Cut(text, []byte(" "))
		if at, err := time.Parse(time.RFC3339Nano, string(stamp)); ok && err == nil {
			// The Engine counts a moment in: what was copied is left out by a nanosecond.
			at = at.Add(1)
			l.s.until = strconv.FormatInt(at.Unix(), 10) + "." + pad(at.Nanosecond())
			text = rest
		}
	}
	_, _ = l.to.Write(text)
}

func pad(n int) string {
	text := strconv.Itoa(n)
	return "000000000"[:9-len(text)] + text
}

// State implements driver.Running.
func (r *running) State() []byte {
	text, err := json.Marshal(r.state)
	if err != nil {
		return nil
	}
	return text
}

func (r *running) path(what string) string { return "/containers/" + r.state.Container + what }

// Wait implements driver.Running.
func (r *running) Wait(ctx context.Context) (driver.Exit, error) {
	for {
		err := r.engine.wait(ctx, http.MethodPost, r.path("/wait"), nil, nil)
		var c struct {
			State struct {
				Running, OOMKilled bool
				ExitCode           int
				Error              string
			}
		}
		if err == nil {
			err = r.engine.call(ctx, http.MethodGet, r.path("/json"), nil, &c)
		}
		switch {
		case ctx.Err() != nil:
			return driver.Exit{}, ctx.Err()
		case errkind.Is(err, errkind.NotFound):
			return driver.Exit{Code: -1, Text: "the container was removed"}, nil
		case err == nil && !c.State.Running:
			e := driver.Exit{Code: c.State.ExitCode, OOM: c.State.OOMKilled, Text: c.State.Error}
			if e.Code > 128 && e.Code < 128+65 {
				e.Signal = e.Code - 128
			}
			r.copied.Wait()
			return e, nil
		}
		timer := time.NewTimer(retryLogs) // the Engine restarts: its containers go on
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Stop implements driver.Running.
func (r *running) Stop(ctx context.Context, signal string, timeout time.Duration) error {
	if signal != "" {
		if err := r.Signal(signal); err != nil && !over(err) {
			return err
		}
		soon, cancel := context.WithTimeout(ctx, timeout)
		_, err := r.Wait(soon)
		cancel()
		if err == nil {
			return nil
		}
		timeout = 0
	}
	seconds := int(timeout.Round(time.Second) / time.Second)
	err := r.engine.wait(ctx, http.MethodPost, r.path("/stop?t="+strconv.Itoa(seconds)), nil, nil)
	if over(err) {
		return nil
	}
	return err
}

// over reports whether an error says that the container does not run.
func over(err error) bool {
	return errkind.Is(err, errkind.NotFound) || errkind.Is(err, errkind.Conflict)
}

// Signal implements driver.Running.
func (r *running) Signal(name string) error {
	if _, err := driver.Signal(name); err != nil {
		return err
	}
	return r.engine.call(context.Background(), http.MethodPost, r.path("/kill?signal="+name), nil, nil)
}

// Usage implements driver.Running.
func (r *running) Usage() (driver.Usage, error) {
	type cpu struct {
		Usage struct {
			Total  uint64 `json:"total_usage"`
			User   uint64 `json:"usage_in_usermode"`
			Kernel uint64 `json:"usage_in_kernelmode"`
		} `json:"cpu_usage"`
		System uint64 `json:"system_cpu_usage"`
		Online int    `json:"online_cpus"`
	}
	var s struct {
		CPU    cpu                    `json:"cpu_stats"`
		Before cpu                    `json:"precpu_stats"`
		Memory struct{ Usage uint64 } `json:"memory_stats"`
		PIDs   struct{ Current int }  `json:"pids_stats"`
	}
	if err := r.engine.call(context.Background(), http.MethodGet, r.path("/stats?stream=false"), nil, &s); err != nil {
		return driver.Usage{}, err
	}
	u := driver.Usage{MemoryBytes: s.Memory.Usage, PIDs: s.PIDs.Current, At: time.Now()}
	if span := float64(s.CPU.System) - float64(s.Before.System); span > 0 {
		share := func(a, b uint64) float64 {
			return 100 * (float64(a) - float64(b)) / span * float64(max(s.CPU.Online, 1))
		}
		u.CPUPercent = share(s.CPU.Usage.Total, s.Before.Usage.Total)
		u.UserPercent = share(s.CPU.Usage.User, s.Before.Usage.User)
		u.SysPercent = share(s.CPU.Usage.Kernel, s.Before.Usage.Kernel)
		u.CPUTicks = u.CPUPercent / 100 * float64(r.mhz) / float64(max(s.CPU.Online, 1))
	}
	return u, nil
}

// Exec implements driver.Running.
func (r *running) Exec(ctx context.Context, e driver.Exec) (int, error) {
	if len(e.Command) == 0 {
		return 0, errkind.New(errkind.Invalid, "command: is missing")
	}
	var made struct{ ID string }
	if err := r.engine.call(ctx, http.MethodPost, r.path("/exec"), map[string]any{"AttachStdin": e.Stdin != nil,
		"AttachStdout": true, "AttachStderr": true, "Tty": e.TTY, "Cmd": e.Command}, &made); err != nil {
		return 0, err
	}
	conn, out, err := r.engine.attach(ctx, made.ID, e.TTY)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if e.Stdin != nil {
		go func() { // ends with the session's input, or with conn
			_, _ = io.Copy(conn, e.Stdin)
			if half, ok := conn.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		}()
	}
	done := make(chan struct{})
	defer close(done)
	if e.Resize != nil {
		go func() { // ends with the command
			for {
				select {
				case size := <-e.Resize:
					_ = r.engine.call(ctx, http.MethodPost, "/exec/"+made.ID+"/resize?h="+strconv.Itoa(size[0])+"&w="+
						strconv.Itoa(size[1]), nil, nil)
				case <-done:
					return
				}
			}
		}()
	}
	stdout, stderr := orNone(e.Stdout), orNone(e.Stderr)
	if e.TTY {
		_, err = io.Copy(stdout, out)
	} else {
		err = demux(out, stdout, stderr)
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, err
	}
	var how struct{ ExitCode int }
	err = r.engine.call(ctx, http.MethodGet, "/exec/"+made.ID+"/json", nil, &how)
	return how.ExitCode, err
}

func orNone(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// Remove implements driver.Running.
func (r *running) Remove() error {
	r.end()
	r.copied.Wait()
	err := r.engine.call(context.Background(), http.MethodDelete, r.path("?force=true&v=true"), nil, nil)
	if errkind.Is(err, errkind.NotFound) {
		return nil
	}
	return err
}
