package respapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Bounds of the protocol itself; those of bytes are in Config. What passes them ends the connection.
const (
	maxArgs      = 1 << 20
	maxLineBytes = 64 << 10
	// What a client may send before it has shown who it is.
	strangerArgs, strangerBytes = 10, 16 << 10
	// chunkBytes is how much memory a bulk gets before its bytes have come, whatever its length says.
	chunkBytes = 64 << 10
	// keptBytes of memory stay with a connection between commands.
	keptBytes = 64 << 10
)

// protocolError ends a connection; its text is told before.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// reader reads commands.
type reader struct {
	in *bufio.Reader
	// mostBulk bounds an argument, mostBytes a command.
	mostBulk, mostBytes int
	// gather asks for memory for a command of so many bytes; it may be refused.
	gather func(bytes int) error
	// hurry says that the command has begun: what is missing has to come soon, and each part of it.
	hurry func() error
	args  [][]byte
	ends  []int
	buf   []byte // all arguments, one behind the other
}

// command reads the next command. Its arguments are the caller's until it calls again; an empty line has none.
func (r *reader) command(stranger bool) ([][]byte, error) {
	if cap(r.buf) > keptBytes {
		r.buf = nil
	}
	r.buf, r.ends, r.args = r.buf[:0], r.ends[:0], r.args[:0]
	line, err := r.line()
	if err != nil || len(line) == 0 {
		return nil, err
	}
	if line[0] != '*' {
		return r.inline(line)
	}
	n, ok := number(line[1:])
	if !ok || n > maxArgs {
		return nil, protocolError("invalid multibulk length")
	}
	if stranger && n > strangerArgs {
		return nil, protocolError("unauthenticated multibulk length")
	}
	for range n {
		if err := r.bulk(stranger); err != nil {
			return nil, err
		}
	}
	from := 0
	for _, end := range r.ends {
		r.args = append(r.args, r.buf[from:end:end])
		from = end
	}
	return r.args, nil
}

func (r *reader) bulk(stranger bool) error {
	if r.in.Buffered() < len("$0\r\n") {
		if err := r.hurry(); err != nil {
			return err
		}
	}
	line, err := r.line()
	if err != nil {
		return err
	}
	if len(line) == 0 || line[0] != '$' {
		return protocolError(fmt.Sprintf("expected '$', got %q", string(line[:min(1, len(line))])))
	}
	n, ok := number(line[1:])
	switch {
	case !ok || n < 0 || n > r.mostBulk:
		return protocolError("invalid bulk length")
	case stranger && n > strangerBytes:
		return protocolError("unauthenticated bulk length")
	case n > r.mostBytes-len(r.buf):
		return protocolError("the command is too large")
	}
	for n > 0 {
		part := min(n, chunkBytes)
		at := len(r.buf)
		if err := r.gather(at + part); err != nil {
			return err
		}
		if r.in.Buffered() < part {
			if err := r.hurry(); err != nil {
				return err
			}
		}
		r.buf = slices.Grow(r.buf, part)[:at+part]
		if _, err := io.ReadFull(r.in, r.buf[at:]); err != nil {
			return err
		}
		n -= part
	}
	r.ends = append(r.ends, len(r.buf))
	if line, err = r.line(); err == nil && len(line) > 0 {
		err = protocolError("a bulk does not end where it says")
	}
	return err
}

// line reads a line; it is the caller's until the next read.
func (r *reader) line() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, protocolError("too big a line")
	}
	if err != nil {
		return nil, err
	}
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, nil
}

// inline reads a command that somebody types: words, with quotes around those that have spaces.
func (r *reader) inline(line []byte) ([][]byte, error) {
	words, ok := split(string(line))
	if !ok {
		return nil, protocolError("unbalanced quotes in request")
	}
	for _, w := range words {
		r.args = append(r.args, []byte(w))
	}
	return r.args, nil
}

func split(line string) (words []string, ok bool) {
	for {
		line = strings.TrimLeft(line, " \t\x00")
		if line == "" {
			return words, true
		}
		end := strings.IndexAny(line, " \t")
		if quote := line[0]; quote == '"' || quote == '\'' {
			end = strings.IndexByte(line[1:], quote) + 2
			if end == 1 || end < len(line) && line[end] != ' ' && line[end] != '\t' {
				return nil, false
			}
			words, line = append(words, line[1:end-1]), line[end:]
			continue
		}
		if end < 0 {
			end = len(line)
		}
		words, line = append(words, line[:end]), line[end:]
	}
}

// number reads a length: an integer as the protocol writes it, within 32 bits.
func number(b []byte) (int, bool) {
	negative := len(b) > 1 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 10 {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	if n > 1<<31-1 {
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}
