package errwire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// TestErrorsArrive: kind, text and operation come over, and sentinels are found again.
func TestErrorsArrive(t *testing.T) {
	sentinel := errkind.New(errkind.Overloaded, "full")
	for _, tt := range []struct {
		err  error
		kind errkind.Kind
		text string
	}{
		{errkind.New(errkind.Denied, "no"), errkind.Denied, "no"},
		{errkind.E(errkind.Unavailable, "ask", errors.New("gone")), errkind.Unavailable, "ask: gone"},
		{fmt.Errorf("while: %w", errkind.New(errkind.Invalid, "bad")), errkind.Invalid, "while: bad"},
		{context.DeadlineExceeded, errkind.Unknown, "context deadline exceeded"},
		{errkind.E(errkind.Overloaded, "take", sentinel), errkind.Overloaded, "take: full"},
		{errors.New(""), errkind.Internal, ""},
	} {
		r := pack.Read(Append(nil, tt.err, 0))
		got := Read(r, sentinel, context.DeadlineExceeded)
		if r.Err() != nil || errkind.Of(got) != tt.kind || got.Error() != tt.text {
			t.Errorf("%v came as %v of kind %v, damage %v", tt.err, got, errkind.Of(got), r.Err())
		}
		if errors.Is(tt.err, sentinel) != errors.Is(got, sentinel) {
			t.Errorf("%v: the sentinel was lost", tt.err)
		}
	}
}

// TestBounds: a limit cuts, a kind that is not known is Internal, and a text that was cut on the way is damage.
func TestBounds(t *testing.T) {
	b := Append(nil, errkind.New(errkind.Invalid, strings.Repeat("x", 100)), 10)
	if got := Read(pack.Read(b)); got.Error() != strings.Repeat("x", 10) {
		t.Error(got)
	}
	newer := append([]byte{99}, b[1:]...)
	if got := Read(pack.Read(newer)); errkind.Of(got) != errkind.Internal {
		t.Error(got)
	}
	for n := 3; n < len(b); n++ { // behind the length of the text
		r := pack.Read(b[:n])
		if got := Read(r); got != nil || r.Err() == nil {
			t.Errorf("%d bytes of %d: %v, damage %v", n, len(b), got, r.Err())
		}
	}
}
