// Package errkind gives errors a kind, so that each adapter maps one small set
// of kinds to its contract's status codes in one table.
//
// An error made here carries a Kind, the operation that failed and a cause.
// Error() reads "op: cause"; Text gives the innermost message alone, which is
// what wire contracts print. Kinds survive wrapping with %w and are found with
// Of. All functions are safe for concurrent use; nothing here allocates
// beyond the error value itself.
package errkind

import (
	"errors"
	"fmt"
)

// Kind classifies an error by what the caller can do about it.
type Kind uint8

// The kinds. Internal is the zero value: an error nobody classified.
const (
	Internal    Kind = iota // a bug or an unclassified failure
	Invalid                 // the request is wrong; repeating it will not help
	Denied                  // the caller may not do this
	NotFound                // the object does not exist
	Conflict                // the object exists or changed meanwhile
	TooLarge                // the request passes a size limit
	Overloaded              // shed by a bounded queue; retry later
	NotLeader               // this server cannot decide; another can
	Unavailable             // no server can decide now; retry later
	Corrupt                 // stored bytes do not match their checksum
	Unknown                 // the outcome is unknown: it may or may not have happened
)

var names = [...]string{"internal", "invalid", "denied", "not found", "conflict", "too large",
	"overloaded", "not leader", "unavailable", "corrupt", "unknown outcome"}

// String returns the kind's name in lower case.
func (k Kind) String() string {
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Error is an error with a kind. Op may be empty.
type Error struct {
	Kind  Kind
	Op    string
	Cause error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Op == "" {
		return e.Cause.Error()
	}
	return e.Op + ": " + e.Cause.Error()
}

// Unwrap gives errors.Is and errors.As the cause.
func (e *Error) Unwrap() error { return e.Cause }

// E wraps err with a kind and the operation that failed. It returns nil when err is nil.
func E(kind Kind, op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: kind, Op: op, Cause: err}
}

// New makes an error of a kind whose text is msg.
func New(kind Kind, msg string) error { return &Error{Kind: kind, Cause: errors.New(msg)} }

// Errorf makes an error of a kind with a formatted text; %w wraps as in fmt.Errorf.
func Errorf(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Cause: fmt.Errorf(format, args...)}
}

// Of returns the kind of the outermost classified error in err's chain, or Internal.
func Of(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// Is reports whether err is of the given kind.
func Is(err error, kind Kind) bool { return err != nil && Of(err) == kind }

// Text returns the message under all the Op wrappers: what a wire contract prints.
func Text(err error) string {
	for {
		e, ok := err.(*Error)
		if !ok {
			return err.Error()
		}
		err = e.Cause
	}
}
