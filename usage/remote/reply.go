package remote

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"corbel.dev/corbel/kit/errkind"
)

// Reply is an answer of a host. Kind is the first byte of it in the protocol, with '_' for what is not there.
type Reply struct {
	Kind byte
	Int  int64
	Text []byte // of strings, and of errors
	List []Reply
}

// Bounds of an answer: what a host says is input from outside.
const (
	maxReplyBytes = 64 << 20
	maxReplyDepth = 8
	maxReplyLine  = 64 << 10
	replyChunk    = 64 << 10
)

var errReply = errkind.New(errkind.Corrupt, "usage cache: the host does not speak the Redis protocol")

// Err is the error that a host answered, or nil.
func (r Reply) Err() error {
	if r.Kind == '-' || r.Kind == '!' {
		return errkind.Errorf(errkind.Internal, "usage cache: %s", r.Text)
	}
	return nil
}

// Bytes is the value, nil where there is none.
func (r Reply) Bytes() []byte {
	if r.Kind == '_' {
		return nil
	}
	return r.Text
}

// ReadReply reads an answer.
func ReadReply(in *bufio.Reader) (Reply, error) {
	left := maxReplyBytes
	return readReply(in, &left, 0)
}

func readReply(in *bufio.Reader, left *int, depth int) (r Reply, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		if err == bufio.ErrBufferFull {
			err = errReply
		}
		return r, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' || depth > maxReplyDepth {
		return r, errReply
	}
	r.Kind, line = line[0], line[1:len(line)-2]
	*left -= 64
	switch r.Kind {
	case '+', '-', '(', ',':
		r.Text = append([]byte{}, line...)
		return r, nil
	case '_':
		return r, nil
	case '#':
		if string(line) == "t" {
			r.Int = 1
		}
		return r, nil
	}
	if r.Int, err = strconv.ParseInt(string(line), 10, 64); err != nil {
		return r, errReply
	}
	switch r.Kind {
	case ':':
		return r, nil
	case '$', '=', '!':
		return readBulk(in, r, left)
	case '*', '~', '>', '%', '|':
		if r.Int < 0 {
			return Reply{Kind: '_'}, nil
		}
		if r.Kind == '%' || r.Kind == '|' {
			r.Int *= 2
		}
		if r.Int < 0 || r.Int > int64(*left)/64 {
			return r, errReply
		}
		for range r.Int {
			part, err := readReply(in, left, depth+1)
			if err != nil {
				return r, err
			}
			r.List = append(r.List, part)
		}
		return r, nil
	}
	return r, errReply
}

func readBulk(in *bufio.Reader, r Reply, left *int) (Reply, error) {
	if r.Int < 0 {
		return Reply{Kind: '_'}, nil
	}
	if r.Int > int64(*left) {
		return r, errkind.Errorf(errkind.TooLarge, "usage cache: an answer has %d bytes", r.Int)
	}
	*left -= int(r.Int)
	for n := int(r.Int) + 2; n > 0; { // a length is a promise: memory comes with the bytes
		part := min(n, replyChunk)
		at := len(r.Text)
		r.Text = append(r.Text, make([]byte, part)...)
		if _, err := io.ReadFull(in, r.Text[at:]); err != nil {
			return r, err
		}
		n -= part
	}
	end := len(r.Text) - 2
	if string(r.Text[end:]) != "\r\n" {
		return r, errReply
	}
	r.Text = r.Text[:end:end]
	return r, nil
}

// AppendCommand writes a command as the protocol has it.
func AppendCommand(b []byte, words ...string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(words))
	for _, w := range words {
		b = strconv.AppendInt(append(b, '$'), int64(len(w)), 10)
		b = append(append(append(b, "\r\n"...), w...), "\r\n"...)
	}
	return b
}
