package respapi

import (
	"math"
	"strconv"
)

// reply is what was answered and not sent yet, in the version of the protocol that the client has chosen.
type reply struct {
	buf   []byte
	third bool // RESP3
}

func (w *reply) line(kind byte, n int64) {
	w.buf = append(strconv.AppendInt(append(w.buf, kind), n, 10), '\r', '\n')
}

func (w *reply) int(n int64)   { w.line(':', n) }
func (w *reply) array(n int)   { w.line('*', int64(n)) }
func (w *reply) raw(s string)  { w.buf = append(w.buf, s...) }
func (w *reply) ok()           { w.raw("+OK\r\n") }
func (w *reply) queued()       { w.raw("+QUEUED\r\n") }
func (w *reply) text(s string) { w.bulk([]byte(s)) }

func (w *reply) simple(s string) { w.buf = append(append(append(w.buf, '+'), s...), '\r', '\n') }

// fail says an error: a code, and a text. No byte of the client's can end the line.
func (w *reply) fail(text string) {
	w.buf = append(w.buf, '-')
	for _, c := range []byte(text) {
		if c < ' ' {
			c = ' '
		}
		w.buf = append(w.buf, c)
	}
	w.buf = append(w.buf, '\r', '\n')
}

func (w *reply) bulk(b []byte) {
	w.line('$', int64(len(b)))
	w.buf = append(append(w.buf, b...), '\r', '\n')
}

func (w *reply) null() {
	if w.third {
		w.raw("_\r\n")
	} else {
		w.raw("$-1\r\n")
	}
}

// nullArray is no array: an EXEC that did nothing.
func (w *reply) nullArray() {
	if w.third {
		w.raw("_\r\n")
	} else {
		w.raw("*-1\r\n")
	}
}

// table begins n pairs.
func (w *reply) table(n int) {
	if w.third {
		w.line('%', int64(n))
	} else {
		w.array(2 * n)
	}
}

// set begins n members.
func (w *reply) set(n int) {
	if w.third {
		w.line('~', int64(n))
	} else {
		w.array(n)
	}
}

// integer reads an argument that must be one, as Redis does: no sign but minus, no zeros before it.
func integer(b []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || len(b) == 0 || b[0] == '+' || strconv.FormatInt(n, 10) != string(b) {
		return 0, false
	}
	return n, true
}

// times multiplies, and says whether it fits.
func times(n, by int64) (int64, bool) {
	if n > math.MaxInt64/by || n < math.MinInt64/by {
		return 0, false
	}
	return n * by, true
}

// plus adds, and says whether it fits.
func plus(a, b int64) (int64, bool) {
	sum := a + b
	return sum, (sum > a) == (b > 0)
}
