// Package errwire is the form in which errors travel between processes: kind (one byte), operation and innermost text
// as in kit/pack. A kind of a newer version arrives as Internal. Reading never panics; damage is the reader's error.
package errwire

import (
	"context"
	"errors"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// Append appends err, with at most limit bytes of its operation and as many of its text; 0 is no limit. Who ran out of
// time may have done its work: that arrives as Unknown.
func Append(b []byte, err error, limit int) []byte {
	whole, text := err.Error(), errkind.Text(err)
	op, cut := strings.CutSuffix(whole, ": "+text)
	if !cut {
		op, text = "", whole
	}
	kind := errkind.Of(err)
	if kind == errkind.Internal && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		kind = errkind.Unknown
	}
	if limit > 0 {
		op, text = op[:min(len(op), limit)], text[:min(len(text), limit)]
	}
	return pack.String(pack.String(append(b, byte(kind)), op), text)
}

// Read reads what Append wrote. The result is nil only where r is damaged, which r.Err tells. A cause among known that
// has the text is returned as itself, so that callers can ask with errors.Is.
func Read(r *pack.Reader, known ...error) error {
	kind := errkind.Kind(min(r.Uint(), uint64(errkind.Unknown)+1))
	if kind > errkind.Unknown {
		kind = errkind.Internal
	}
	op, text := r.String(), r.String()
	if r.Err() != nil {
		return nil
	}
	cause := errors.New(text)
	for _, k := range known {
		if text == errkind.Text(k) {
			cause = k
		}
	}
	return errkind.E(kind, op, cause)
}
