package sensurest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor/objects"
)

// The contract's codes of errors.
const (
	codeInternal = iota
	codeInvalid
	codeNotFound
	codeExists
	codeDenied
	codeUnauthenticated
	codePayment
	codePrecondition
	codeDeadline
	codeThreshold // of silences that last longer than is allowed
)

// apiError is an error as the contract has it.
type apiError struct {
	status int
	code   int
	text   string
}

// Error implements error.
func (e *apiError) Error() string { return e.text }

var (
	errNotFound     = &apiError{http.StatusNotFound, codeNotFound, "not found"}
	errExists       = &apiError{http.StatusConflict, codeExists, "resource already exists"}
	errDenied       = &apiError{http.StatusForbidden, codeDenied, "unauthorized to perform action"}
	errPrecondition = &apiError{http.StatusPreconditionFailed, codePrecondition, "precondition failed"}
)

func invalid(err error) error { return &apiError{http.StatusBadRequest, codeInvalid, err.Error()} }

// statuses maps kinds of errors to what clients of the contract know.
var statuses = map[errkind.Kind]struct{ status, code int }{
	errkind.Invalid:     {http.StatusBadRequest, codeInvalid},
	errkind.Denied:      {http.StatusForbidden, codeDenied},
	errkind.NotFound:    {http.StatusNotFound, codeNotFound},
	errkind.Conflict:    {http.StatusConflict, codeExists},
	errkind.TooLarge:    {http.StatusRequestEntityTooLarge, codeInvalid},
	errkind.Overloaded:  {http.StatusServiceUnavailable, codeInternal},
	errkind.NotLeader:   {http.StatusServiceUnavailable, codeInternal},
	errkind.Unavailable: {http.StatusServiceUnavailable, codeInternal},
	errkind.Unknown:     {http.StatusGatewayTimeout, codeDeadline},
}

// fail answers with an error. Such of refused access have capital letters in their names, as those of the reference.
func (q *request) fail(err error) {
	var e *apiError
	var large *httpx.TooLarge
	switch {
	case errors.As(err, &e):
	case errors.As(err, &large):
		e = &apiError{http.StatusRequestEntityTooLarge, codeInvalid, large.Error()}
	case errors.Is(err, objects.ErrPrecondition):
		e = errPrecondition
	default:
		s, ok := statuses[errkind.Of(err)]
		if !ok {
			q.cfg.Log.Error("a request failed", "method", q.r.Method, "path", q.r.URL.Path, "error", err)
			s.status = http.StatusInternalServerError
		}
		e = &apiError{s.status, s.code, err.Error()}
	}
	if e.status == http.StatusServiceUnavailable {
		q.w.Header().Set("Retry-After", "1")
	}
	if e.code == codeDenied || e.code == codeUnauthenticated {
		writeText(q.w, e.status, struct {
			Message string
			Code    int
		}{e.text, e.code})
		return
	}
	writeText(q.w, e.status, struct {
		Message string `json:"message"`
		Code    int    `json:"code"`
	}{e.text, e.code})
}

// unauthenticated answers who is not known.
func (q *request) unauthenticated(err error) {
	if errkind.Is(err, errkind.Denied) {
		err = &apiError{http.StatusUnauthorized, codeUnauthenticated, err.Error()}
	}
	q.fail(err)
}

// notAllowed answers a method that the path does not know.
func (q *request) notAllowed(allow string) error {
	q.w.Header().Set("Allow", allow)
	return &apiError{http.StatusMethodNotAllowed, codeInvalid, q.r.Method + " is not one of " + allow}
}

// writeText answers with JSON under the name of plain text, as the reference does.
func writeText(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		b, status = []byte(`{"message":"the answer cannot be written","code":0}`), http.StatusInternalServerError
	}
	httpx.WriteText(w, status, string(b)+"\n")
}

// answer answers with JSON.
func (q *request) answer(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	hold, err := httpx.HoldAnswer(q.r, len(b))
	if err != nil {
		return err
	}
	defer hold.End()
	httpx.WriteHeld(q.w, q.r, status, httpx.JSONType, append(b, '\n'))
	return nil
}

// done answers without a body: created or replaced, deleted.
func (q *request) done() error {
	if q.r.Method == http.MethodDelete {
		q.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	q.w.WriteHeader(http.StatusCreated)
	return nil
}

// text answers with a line.
func text(w http.ResponseWriter, line string) {
	w.Header()["Content-Type"] = httpx.TextType
	_, _ = io.WriteString(w, line+"\n") // a client that left is noticed by the server
}
