package tools

import (
	"log/slog"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/system"
)

// Level is what of a server's log is written. It may be used from any goroutine.
type Level interface {
	Level() slog.Level
	SetLevel(slog.Level)
}

// coreLogger is the name of the only logger that there is: Vault has one for each of its parts.
const coreLogger = "core"

// logLevels are the levels by the names that Vault has for them. "notice" is info there too.
var logLevels = []struct {
	name  string
	level slog.Level
}{{"trace", slog.LevelDebug - 4}, {"debug", slog.LevelDebug}, {"info", slog.LevelInfo}, {"notice", slog.LevelInfo},
	{"warn", slog.LevelWarn}, {"warning", slog.LevelWarn}, {"error", slog.LevelError}, {"err", slog.LevelError}}

// logger is the level, where this process may change it and the path names a logger that is here.
func (o *Tools) logger(c *system.Call) (Level, error) {
	switch name := strings.Trim(c.Name, "/"); {
	case o.Local.Level == nil:
		return nil, system.ErrNotHere
	case name != "" && name != coreLogger:
		return nil, errkind.Errorf(errkind.Invalid, "logger %q not found: there is one, %s", name, coreLogger)
	}
	return o.Local.Level, nil
}

func (o *Tools) readLogger(c *system.Call) (any, error) {
	l, err := o.logger(c)
	if err != nil {
		return nil, err
	}
	now := l.Level()
	for _, one := range logLevels {
		if now <= one.level {
			return map[string]any{coreLogger: one.name}, nil
		}
	}
	return map[string]any{coreLogger: "error"}, nil
}

// writeLogger changes the level until the server ends or reads its configuration.
func (o *Tools) writeLogger(c *system.Call) (any, error) {
	l, err := o.logger(c)
	if err != nil {
		return nil, err
	}
	name := strings.ToLower(c.F.String("level"))
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	for _, one := range logLevels {
		if one.name == name {
			l.SetLevel(one.level)
			return nil, nil
		}
	}
	return nil, errkind.Errorf(errkind.Invalid, "invalid level provided: %q must be trace, debug, info, warn or "+
		"error", name)
}

// resetLogger gives back the level of the configuration.
func (o *Tools) resetLogger(c *system.Call) (any, error) {
	l, err := o.logger(c)
	if err == nil {
		l.SetLevel(o.Local.LevelAtStart)
	}
	return nil, err
}
