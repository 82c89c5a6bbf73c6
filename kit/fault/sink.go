package fault

import (
	"fmt"
	"net"
	"sync/atomic"
)

// Sink stands for a metrics sink that is called in line, as libraries do it that write to a socket where they
// observe: while the parent has set one (DoSink), every line is written to its unix socket before the caller goes on,
// however long its reader takes.
type Sink struct {
	line atomic.Pointer[sinkLine]
}

type sinkLine struct {
	name string
	conn *net.UnixConn
}

// Write writes a line; nothing when no sink is set.
func (s *Sink) Write(line []byte) {
	if l := s.line.Load(); l != nil {
		_, _ = l.conn.Write(line) // closed when the rule is lifted
	}
}

// Name is the sink's name, "" when none is set.
func (s *Sink) Name() string {
	if l := s.line.Load(); l != nil {
		return l.name
	}
	return ""
}

// sinkBuffer is how much the kernel keeps for a reader that is late.
const sinkBuffer = 4096

func (s *Sink) set(name, path string) error {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return fmt.Errorf("sink %s: %w", name, err)
	}
	unix := conn.(*net.UnixConn)
	if err := unix.SetWriteBuffer(sinkBuffer); err != nil {
		_ = conn.Close()
		return fmt.Errorf("sink %s: %w", name, err)
	}
	s.replace(&sinkLine{name, unix})
	return nil
}

func (s *Sink) replace(l *sinkLine) (was bool) {
	old := s.line.Swap(l)
	if old != nil {
		_ = old.conn.Close()
	}
	return old != nil
}

func (s *Sink) lift(name string) bool {
	if l := s.line.Load(); l == nil || l.name != name {
		return false
	}
	return s.replace(nil)
}
