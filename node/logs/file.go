package logs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/node/config"
)

// Writer is where log lines go: stderr, and the file and syslog where they are configured.
func Writer(l *config.Logging, clk clock.Clock) (io.Writer, error) {
	out := []io.Writer{os.Stderr}
	if l.File != "" {
		f, err := openLogFile(l, clk)
		if err != nil {
			return nil, fmt.Errorf("log_file: %w", err)
		}
		out = append(out, f)
	}
	if l.Syslog {
		s, err := openSyslog(l.SyslogFacility)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	if len(out) == 1 {
		return out[0], nil
	}
	return teeAll(out), nil
}

// teeAll writes to each, also when one fails: a full disk must not silence the console.
type teeAll []io.Writer

// Write implements io.Writer.
func (t teeAll) Write(p []byte) (int, error) {
	var failed error
	for _, w := range t {
		if _, err := w.Write(p); err != nil {
			failed = err
		}
	}
	return len(p), failed
}

// WithFile is out and the file that l names.
func WithFile(out io.Writer, l *config.Logging, clk clock.Clock) (io.Writer, error) {
	f, err := openLogFile(l, clk)
	if err != nil {
		return nil, fmt.Errorf("log_file: %w", err)
	}
	return teeAll{out, f}, nil
}

// logFile is a file that makes room: past a size or an age it is renamed with the time in its
// name and begun anew, and the oldest of those renamed are removed. Not safe for concurrent use: one
// goroutine writes the log.
type logFile struct {
	path     string
	maxBytes int64         // 0: any size
	maxAge   time.Duration // 0: any age
	keep     int           // renamed files kept; 0: all, below 0: none
	clock    clock.Clock

	file  *os.File
	bytes int64
	begun time.Time
}

func openLogFile(l *config.Logging, clk clock.Clock) (*logFile, error) {
	path := l.File
	if info, err := os.Stat(path); err == nil && info.IsDir() || strings.HasSuffix(path, "/") {
		path = filepath.Join(path, "corbel.log")
	}
	f := &logFile{path: path, maxBytes: int64(l.RotateBytes), maxAge: l.RotateInterval, keep: l.RotateMaxFiles, clock: clk}
	return f, f.open()
}

// open continues the file of the path.
func (f *logFile) open() error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.bytes, f.begun = file, info.Size(), f.clock.Now()
	return nil
}

// Write implements io.Writer.
func (f *logFile) Write(p []byte) (int, error) {
	full := f.maxBytes > 0 && f.bytes > 0 && f.bytes+int64(len(p)) > f.maxBytes
	old := f.maxAge > 0 && f.bytes > 0 && f.clock.Since(f.begun) >= f.maxAge
	if f.file == nil || full || old {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Write(p)
	f.bytes += int64(n)
	return n, err
}

// rotate sets the file aside and begins another. A file that cannot be renamed is continued.
func (f *logFile) rotate() error {
	if f.file != nil {
		_ = f.file.Close() // appended to without buffers: nothing is lost
		f.file = nil
		_ = os.Rename(f.path, f.aside(strconv.FormatInt(f.clock.Now().UnixNano(), 10)))
	}
	f.prune()
	return f.open()
}

// aside is the name of a file set aside.
func (f *logFile) aside(stamp string) string {
	ext := filepath.Ext(f.path)
	return strings.TrimSuffix(f.path, ext) + "-" + stamp + ext
}

// prune removes the oldest files set aside.
func (f *logFile) prune() {
	if f.keep == 0 {
		return
	}
	found, err := filepath.Glob(f.aside("[0-9]*"))
	if err != nil {
		return // a name that is a broken pattern: keep all
	}
	slices.Sort(found) // nanoseconds have equally many digits: by age
	for len(found) > max(f.keep, 0) {
		_ = os.Remove(found[0])
		found = found[1:]
	}
}
