package script

import (
	"encoding/binary"
	"io"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// A frame is its length (4 bytes, big endian) and a record. A task goes to the child, an answer comes back; nothing
// else.

// maxFrame bounds a task and an answer: an event has at most a few megabytes.
const maxFrame = 64 << 20

func writeFrame(w io.Writer, body []byte) error {
	if len(body) > maxFrame {
		return errkind.Errorf(errkind.TooLarge, "JavaScript: %d bytes for one program; at most %d", len(body), maxFrame)
	}
	_, err := w.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...))
	return err
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, errkind.Errorf(errkind.TooLarge, "JavaScript: a frame of %d bytes", n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}

// encodeTask leaves out the texts of programs and libraries that the child has been sent before.
func encodeTask(t *Task, knows func(id [32]byte) bool) []byte {
	b := pack.Bytes(nil, t.Program.id[:])
	b = pack.Bool(b, t.Program.body)
	if knows(t.Program.id) {
		b = pack.Bool(b, false)
	} else {
		b = pack.String(pack.Bool(b, true), t.Program.source)
	}
	b = pack.Bool(b, t.Library != nil)
	if t.Library != nil {
		b = pack.Bytes(b, t.Library.id[:])
		if knows(t.Library.id) {
			b = pack.Bool(b, false)
		} else {
			b = pack.Strings(pack.Bool(b, true), t.Library.sources)
		}
	}
	b = pack.Int(b, int64(t.limit()))
	b = pack.Bool(pack.Bool(b, t.After), t.check)
	b = pack.Bool(b, t.Fetch != nil)
	b = pack.Uint(b, uint64(len(t.fetched)))
	for name, text := range t.fetched {
		b = pack.String(pack.String(b, name), text)
	}
	b = pack.Uint(b, uint64(len(t.Vars)))
	for _, v := range t.Vars {
		b = pack.Bool(pack.String(b, v.Name), v.JSON != nil)
		if v.JSON != nil {
			b = pack.Bytes(b, v.JSON)
		} else {
			b = pack.String(b, v.Text)
		}
	}
	return b
}

// What an answer says first.
const (
	answered = iota
	threw    // an error: kind and text
	ranLong
	neededMuch
	unknownText // it has forgotten a text that was left out: send it again
)

func encodeAnswer(r Result, code uint64, err error) []byte {
	b := pack.Uint(nil, code)
	if code != answered {
		kind := errkind.Of(err)
		return pack.String(pack.Uint(b, uint64(kind)), errText(err))
	}
	b = pack.Bool(pack.Bool(pack.Bool(b, r.Truth), r.Nil), r.IsText)
	return pack.Strings(pack.Bytes(pack.String(b, r.Text), r.After), r.asks)
}

// maxErrorText bounds what a program can have others log.
const maxErrorText = 4 << 10

func errText(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxErrorText)], "")
}

func decodeAnswer(body []byte) (out Result, code uint64, err error) {
	r := pack.Read(body)
	if code = r.Uint(); code != answered {
		kind := errkind.Kind(r.Uint())
		text := r.String()
		if r.Err() != nil {
			return out, 0, r.Err()
		}
		switch code {
		case ranLong:
			err = ErrTime
		case neededMuch:
			err = ErrMemory
		default:
			err = errkind.New(kind, text)
		}
		return out, code, err
	}
	out = Result{Truth: r.Bool(), Nil: r.Bool(), IsText: r.Bool(), Text: r.String()}
	if after := r.Bytes(); len(after) > 0 {
		out.After = append([]byte(nil), after...)
	}
	out.asks = r.Strings()
	return out, code, r.Err()
}
