package tools

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/hostinfo"
	"corbel.dev/corbel/kit/standing"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/system"
)

// Local is what a keeper cannot know of the process that it runs in. What is nil is answered with 404.
type Local struct {
	// Metrics renders the metrics: as Prometheus reads them, or as JSON.
	Metrics func(prometheus bool) (contentType string, body []byte, err error)
	// Follow writes log lines of level and above to w until ctx ends or a write fails.
	Follow func(ctx context.Context, level slog.Level, json bool, w io.Writer, flush func()) error
	// Settings are those of the server without its secrets.
	Settings func() map[string]any
	// Level is that of the log; LevelAtStart is the configuration's.
	Level        Level
	LevelAtStart slog.Level
	// Version is what the server calls itself.
	Version string
}

func (o *Tools) metrics(c *system.Call) (any, error) {
	if o.Local.Metrics == nil {
		return nil, system.ErrNotHere
	}
	format := c.F.String("format")
	if format != "" && format != "prometheus" {
		return nil, errkind.Errorf(errkind.Invalid, "field \"format\": %q is not known; it may be prometheus", format)
	}
	kind, body, err := o.Local.Metrics(format == "prometheus")
	return &secrets.Response{Raw: &secrets.Raw{ContentType: kind, Body: body}}, err
}

func (o *Tools) settings(*system.Call) (any, error) {
	if o.Local.Settings == nil {
		return nil, system.ErrNotHere
	}
	return o.Local.Settings(), nil
}

// hostInfo tells of the machine. What the system does not say is null.
func (o *Tools) hostInfo(c *system.Call) (any, error) {
	out := map[string]any{"timestamp": c.Now.UTC().Format(time.RFC3339Nano), "cpu_times": nil}
	or := func(name string, v any, err error) {
		if out[name] = v; err != nil {
			out[name] = nil
		}
	}
	memory, err := hostinfo.Memory()
	or("memory", memory, err)
	cpus, err := hostinfo.CPUs()
	or("cpu", cpus, err)
	disk, err := hostinfo.Disk("/")
	or("disk", []any{disk}, err)
	host, err := hostinfo.Host(c.Now)
	or("host", host, err)
	return out, nil
}

// levels are the names of log levels.
var levels = map[string]slog.Level{"trace": slog.LevelDebug - 4, "debug": slog.LevelDebug, "": slog.LevelInfo,
	"info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// monitor streams the log until the client leaves, or may not read it any more.
func (o *Tools) monitor(c *system.Call) (any, error) {
	follow := o.Local.Follow
	if follow == nil {
		return nil, system.ErrNotHere
	}
	level, ok := levels[strings.ToLower(c.F.String("log_level"))]
	if !ok {
		return nil, errkind.Errorf(errkind.Invalid, "field \"log_level\": %q must be trace, debug, info, warn or error",
			c.F.String("log_level"))
	}
	format := c.F.String("log_format")
	if format != "" && format != "standard" && format != "json" {
		return nil, errkind.Errorf(errkind.Invalid, "field \"log_format\": %q must be standard or json", format)
	}
	return &secrets.Response{Raw: &secrets.Raw{ContentType: "text/plain", Stream: func(w io.Writer, flush func()) error {
		protected := c.Engine.Special().Protected
		held, release := standing.New(nil, func() error { return o.Holds(c, c.Task, protected...) }).Hold(c)
		defer release()
		return follow(held, level, format == "json", w, flush)
	}}}, nil
}

// mostProfile is how long a profile may take.
const mostProfile = 60 * time.Second

// profile answers sys/pprof/NAME.
func (o *Tools) profile(c *system.Call) (any, error) {
	raw, err := Profile(c, strings.Trim(c.Name, "/"), *c.F)
	return &secrets.Response{Raw: raw}, err
}

// Profile takes one of this process; "" is their list. Profiles name functions and hold no values. One that takes its
// time ends with ctx.
func Profile(ctx context.Context, name string, f secrets.Fields) (*secrets.Raw, error) {
	raw := func(kind string, b []byte, err error) (*secrets.Raw, error) {
		return &secrets.Raw{ContentType: kind, Body: b}, err
	}
	debug, length := f.Int("debug", 0), f.Duration("seconds", 0)
	if err := f.Err(); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	switch name {
	case "":
		for _, p := range pprof.Profiles() {
			out.WriteString(p.Name() + "\n")
		}
		return raw("text/plain; charset=utf-8", out.Bytes(), nil)
	case "cmdline": // flags may hold secrets: the name alone
		return raw("text/plain; charset=utf-8", []byte(os.Args[0]), nil)
	case "symbol":
		return raw("text/plain; charset=utf-8", []byte("num_symbols: 1\n"), nil)
	case "profile", "trace":
		start, stop := pprof.StartCPUProfile, pprof.StopCPUProfile
		if length == 0 {
			length = 30 * time.Second
		}
		if name == "trace" {
			start, stop = trace.Start, trace.Stop
			if !f.Has("seconds") {
				length = time.Second
			}
		}
		if length < 0 || length > mostProfile {
			return nil, errkind.Errorf(errkind.Invalid, "field \"seconds\": must be from 1 to %d", int(mostProfile.Seconds()))
		}
		if err := start(&out); err != nil {
			return nil, errkind.E(errkind.Unavailable, "", err)
		}
		timer := time.NewTimer(length)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		stop()
		return raw("application/octet-stream", out.Bytes(), nil)
	}
	p := pprof.Lookup(name)
	if p == nil {
		return nil, errkind.New(errkind.NotFound, "unknown profile")
	}
	if name == "heap" && f.Bool("gc", false) {
		runtime.GC()
	}
	kind := "application/octet-stream"
	if debug > 0 {
		kind = "text/plain; charset=utf-8"
	}
	err := p.WriteTo(&out, debug)
	return raw(kind, out.Bytes(), err)
}
