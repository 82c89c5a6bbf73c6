package pipeline

import (
	"bufio"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor/ingest"
)

// DefaultEventLogBuffer is how many events may wait for the event log (the contract's event-log-buffer-size).
const DefaultEventLogBuffer = 100_000

// EventLog writes every stored event to a file, a line of JSON each. Offer never waits: events that find its buffer
// full are dropped and counted. A file that was moved away or removed is made anew within a second, so it may be
// rotated by whoever rotates logs.
type EventLog struct {
	path string
	log  *slog.Logger
	in   chan *ingest.Published

	written, dropped atomic.Uint64
}

// NewEventLog makes an EventLog; buffer 0 is DefaultEventLogBuffer. The file must be writable: an error is of kind
// Invalid.
func NewEventLog(path string, buffer int, log *slog.Logger) (*EventLog, error) {
	if buffer <= 0 {
		buffer = DefaultEventLogBuffer
	}
	f, err := openLog(path)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "event log", err)
	}
	return &EventLog{path: path, log: log, in: make(chan *ingest.Published, buffer)}, f.Close()
}

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// Offer takes an event, or drops it.
func (l *EventLog) Offer(p *ingest.Published) {
	select {
	case l.in <- p:
	default:
		l.dropped.Add(1)
	}
}

// Counts returns how many events were written, and how many were not.
func (l *EventLog) Counts() (written, dropped uint64) { return l.written.Load(), l.dropped.Load() }

// logFlush is how long a line may wait for others.
const logFlush = time.Second

// Run writes until ctx ends, then what waits, and returns. A file that cannot be written is tried again every second.
func (l *EventLog) Run(ctx context.Context) error {
	w := logWriter{l: l}
	defer w.close()
	tick := time.NewTicker(logFlush)
	defer tick.Stop()
	for {
		select {
		case p := <-l.in:
			w.write(p)
		case <-tick.C:
			w.tick()
		case <-ctx.Done():
			for len(l.in) > 0 {
				w.write(<-l.in)
			}
			return nil
		}
	}
}

// logWriter is the file of an EventLog and what was not written to it yet. Run's goroutine owns it.
type logWriter struct {
	l       *EventLog
	file    *os.File
	buffer  *bufio.Writer
	waiting uint64 // lines in buffer
	failed  bool   // said, and not tried again before the next tick
}

func (w *logWriter) write(p *ingest.Published) {
	var text []byte
	e, err := p.Event()
	if err == nil {
		text, err = json.Marshal(e)
	}
	if err == nil && w.file == nil {
		err = w.open()
	}
	if err == nil {
		_, err = w.buffer.Write(append(text, '\n'))
	}
	if err != nil {
		w.l.dropped.Add(1)
		w.fail(err)
		return
	}
	w.waiting++
}

func (w *logWriter) open() error {
	if w.failed {
		return errkind.Errorf(errkind.Unavailable, "event log: it is tried again in a moment")
	}
	f, err := openLog(w.l.path)
	if err == nil {
		w.file, w.buffer = f, bufio.NewWriterSize(f, 64<<10)
	}
	return err
}

// fail gives up the file until the next tick.
func (w *logWriter) fail(err error) {
	if !w.failed {
		w.l.log.Error("the event log cannot be written; events are dropped from it", "file", w.l.path, "error", err)
	}
	w.failed = true
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
		w.l.dropped.Add(w.waiting)
		w.waiting = 0
	}
}

// tick writes what waits, and looks whether the file is still the one of its name.
func (w *logWriter) tick() {
	w.failed = false
	if w.file == nil {
		return
	}
	if !w.flush() {
		return
	}
	here, err := w.file.Stat()
	if err != nil {
		return
	}
	if named, err := os.Stat(w.l.path); err != nil || !os.SameFile(here, named) {
		w.close()
	}
}

func (w *logWriter) flush() bool {
	if err := w.buffer.Flush(); err != nil {
		w.fail(err)
		return false
	}
	w.l.written.Add(w.waiting)
	w.waiting = 0
	return true
}

func (w *logWriter) close() {
	if w.file != nil && w.flush() {
		_ = w.file.Close()
		w.file = nil
	}
}
