package answer

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
)

var (
	ErrNoLeader  = errkind.New(errkind.Unavailable, "No cluster leader")
	ErrNoServers = errkind.New(errkind.Unavailable, "No known Consul servers")
)

// Error is an error with a status of its own, where the contract departs from the kinds.
type Error struct {
	Status int
	Text   string
	Retry  bool // the client shall try again in a second
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// Fail is an error with a status of its own.
func Fail(status int, text string) error { return &Error{Status: status, Text: text} }

// FailAs passes on the failure that another server answered.
func FailAs(status int, header http.Header, body []byte) error {
	return &Error{Status: status, Text: string(bytes.TrimSpace(body)), Retry: header.Get("Retry-After") != ""}
}

// Refused turns a command's refusal into the contract's 500, keeping the
// kinds that have a status of their own.
func Refused(err error) error {
	switch errkind.Of(err) {
	case errkind.Denied, errkind.TooLarge, errkind.Overloaded, errkind.NotLeader, errkind.Unavailable:
		return err
	}
	return Fail(http.StatusInternalServerError, errkind.Text(err))
}

// StatusOf maps an error to its code and text, and tells whether the client shall try again in a second.
func StatusOf(err error, writes bool) (code int, text string, retry bool) {
	var s *Error
	if errors.As(err, &s) {
		return s.Status, s.Text, s.Retry
	}
	text = errkind.Text(err)
	if errors.Is(err, limit.ErrBytes) { // of this process, or of the one that was asked
		return http.StatusServiceUnavailable, text, true
	}
	switch errkind.Of(err) {
	case errkind.Invalid:
		return http.StatusBadRequest, text, false
	case errkind.Denied:
		return http.StatusForbidden, text, false
	case errkind.NotFound:
		return http.StatusNotFound, text, false
	case errkind.TooLarge:
		return http.StatusRequestEntityTooLarge, text, false
	case errkind.NotLeader:
		return http.StatusInternalServerError, errkind.Text(ErrNoLeader), false
	case errkind.Overloaded:
		code = http.StatusTooManyRequests
		if writes {
			code = http.StatusServiceUnavailable
		}
		return code, "rate limit exceeded, try again later or against a different server", true
	}
	return http.StatusInternalServerError, text, false
}

// Invalidf is an error of kind Invalid: status 400.
func Invalidf(format string, args ...any) error {
	return errkind.New(errkind.Invalid, fmt.Sprintf(format, args...))
}

// ErrCut says that an answer broke after its beginning was written: whoever serves the client calls Cut.
var ErrCut = errkind.New(errkind.Unknown, "the answer was cut before its end")

// Cut ends an answer whose beginning was written, so that nobody takes the part for the whole.
func Cut() { panic(http.ErrAbortHandler) }
