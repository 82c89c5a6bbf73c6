package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// sink is where a device's lines go. It is used by the device's goroutine alone.
type sink interface {
	// open makes ready to write, again after an error or a close.
	open() error
	// write takes the lines of batch, which end at ends, and tells how many it took whole.
	write(batch []byte, ends []int) (took int, err error)
	close()
}

// writeWithin bounds a write where the system lets it be bounded: not to regular files.
const writeWithin = 2 * time.Second

// fileSink appends to a file, or to the process's standard output.
type fileSink struct {
	folder   string // path is below it, also by way of links; "" is anywhere
	path     string
	mode     uint32
	keepMode bool // of a file that is there
	sync     bool

	f    *os.File
	torn bool // the last line was not written to its end
}

func (s *fileSink) open() error {
	if s.f != nil || s.path == "discard" {
		return nil
	}
	if s.path == "stdout" {
		s.f = os.Stdout
		return nil
	}
	mode := fs.FileMode(s.mode)
	if s.keepMode {
		mode = 0o600
	}
	// Without O_NONBLOCK a named pipe that nobody reads would keep this goroutine for ever.
	f, err := s.openFile(os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, mode)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && !s.keepMode && info.Mode().Perm() != mode {
		err = f.Chmod(mode)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.f = f
	return nil
}

func (s *fileSink) openFile(flags int, mode fs.FileMode) (*os.File, error) {
	if s.folder == "" {
		return os.OpenFile(s.path, flags, mode)
	}
	root, err := os.OpenRoot(s.folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFile(s.path, flags, mode)
}

func (s *fileSink) write(batch []byte, ends []int) (int, error) {
	if s.path == "discard" {
		return len(ends), nil
	}
	_ = s.f.SetWriteDeadline(time.Now().Add(writeWithin)) // regular files have none
	if s.torn {
		if _, err := s.f.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		s.torn = false
	}
	n, err := s.f.Write(batch)
	took := 0
	for took < len(ends) && ends[took] <= n {
		took++
	}
	s.torn = n > 0 && (took == 0 || ends[took-1] < n)
	if err == nil && s.sync {
		if err = s.f.Sync(); err != nil {
			took = 0
		}
	}
	return took, err
}

func (s *fileSink) close() {
	if s.f != nil && s.f != os.Stdout {
		_ = s.f.Close() // what was not synced was not promised
	}
	s.f = nil
}

// socketSink writes lines to a connection.
type socketSink struct {
	network, address string
	timeout          time.Duration
	conn             net.Conn
}

func (s *socketSink) open() (err error) {
	if s.conn == nil {
		s.conn, err = net.DialTimeout(s.network, s.address, s.timeout)
	}
	return err
}

func (s *socketSink) write(batch []byte, ends []int) (int, error) {
	if s.network == "udp" {
		return datagrams(s.conn, s.timeout, batch, ends, nil)
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return 0, err
	}
	if _, err := s.conn.Write(batch); err != nil {
		return 0, err // which lines arrived is not known: none is said to have
	}
	return len(ends), nil
}

func (s *socketSink) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn = nil
}

// datagrams writes each line as a message of its own, made by form.
func datagrams(conn net.Conn, within time.Duration, batch []byte, ends []int, form func(line []byte) []byte) (took int,
	err error) {
	from := 0
	for _, end := range ends {
		line := batch[from:end]
		if form != nil {
			line = form(line)
		}
		if err := conn.SetWriteDeadline(time.Now().Add(within)); err != nil {
			return took, err
		}
		if _, err := conn.Write(line); err != nil {
			return took, err
		}
		from = end
		took++
	}
	return took, nil
}

// syslogSink speaks to the machine's log.
type syslogSink struct {
	paths    []string
	priority int
	tag      string
	conn     net.Conn
}

func (s *syslogSink) open() error {
	if s.conn != nil {
		return nil
	}
	err := error(fs.ErrNotExist)
	for _, path := range s.paths {
		for _, network := range []string{"unixgram", "unix"} {
			if s.conn, err = net.DialTimeout(network, path, writeWithin); err == nil {
				return nil
			}
		}
	}
	s.conn = nil
	return fmt.Errorf("no system log answers: %w", err)
}

func (s *syslogSink) write(batch []byte, ends []int) (int, error) {
	var out []byte
	return datagrams(s.conn, writeWithin, batch, ends, func(line []byte) []byte {
		out = fmt.Appendf(out[:0], "<%d>%s %s[%d]: ", s.priority, time.Now().Format(time.Stamp), s.tag, os.Getpid())
		return append(out, line...)
	})
}

func (s *syslogSink) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn = nil
}
