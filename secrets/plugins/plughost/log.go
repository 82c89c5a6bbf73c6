package plughost

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/secrets/plugins"
)

// Bounds of what a plug-in may log.
const (
	linesPerSecond = 20
	linesAtOnce    = 200
	lineBytes      = 2000
)

// output writes what a plug-in says on its standard error to the log, a line at a time. It is written to by one
// goroutine of go-plugin, in pieces that may end anywhere.
type output struct {
	log   *slog.Logger
	begin time.Time
	rate  *limit.Bucket
	lost  int
	line  []byte
	cut   bool
}

func newLog(log *slog.Logger, l *plugins.Launch) *output {
	return &output{log: log.With("plugin", l.Name, "mount", l.Mount), begin: time.Now(),
		rate: limit.NewBucket(linesPerSecond, linesAtOnce)}
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		piece, rest, whole := bytes.Cut(b, []byte("\n"))
		room := lineBytes - len(o.line)
		o.cut = o.cut || len(piece) > room
		o.line = append(o.line, piece[:min(len(piece), room)]...)
		if b = rest; whole {
			o.end()
		}
	}
	return n, nil
}

// end logs the line.
func (o *output) end() {
	line, cut := string(bytes.TrimSpace(o.line)), o.cut
	o.line, o.cut = o.line[:0], false
	if line == "" {
		return
	}
	level, text := parsed(line)
	if !o.log.Enabled(context.Background(), level) {
		return
	}
	if !o.rate.Take(time.Since(o.begin)) {
		o.lost++
		return
	}
	args := []any{}
	if cut {
		args = append(args, "cut", true)
	}
	if o.lost > 0 {
		args = append(args, "lines_lost", o.lost)
		o.lost = 0
	}
	o.log.Log(context.Background(), level, "plug-in: "+text, args...)
}

// parsed reads a line that the library of plug-ins wrote as JSON; others are as they are.
func parsed(line string) (slog.Level, string) {
	var all map[string]any
	if json.Unmarshal([]byte(line), &all) != nil || all["@message"] == nil {
		return slog.LevelInfo, line
	}
	level := map[string]slog.Level{"trace": slog.LevelDebug - 4, "debug": slog.LevelDebug, "warn": slog.LevelWarn,
		"error": slog.LevelError}[fmt.Sprint(all["@level"])]
	text := fmt.Sprint(all["@message"])
	if err, ok := all["error"]; ok {
		text += ": " + fmt.Sprint(err)
	}
	return level, text
}
