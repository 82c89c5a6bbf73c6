package nomadrows

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
)

// Refusal is an answer with a status of its own. The text is the whole body.
type Refusal struct {
	Status int
	Text   string
}

// Error implements error.
func (e *Refusal) Error() string { return e.Text }

// BadRequest refuses what cannot be read.
func BadRequest(format string, args ...any) error {
	return &Refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// NotFound answers reads of what is not there.
func NotFound(text string) error { return &Refusal{http.StatusNotFound, text} }

// Failed is what stock answers where others would say 400 or 404.
func Failed(format string, args ...any) error {
	return &Refusal{http.StatusInternalServerError, fmt.Sprintf(format, args...)}
}

// Missing is err as 404 when its kind is NotFound: for the few writes that answer so.
func Missing(err error) error {
	if errkind.Is(err, errkind.NotFound) {
		return NotFound(errkind.Text(err))
	}
	return err
}

// ErrDenied is what who lacks a right gets.
var ErrDenied = &Refusal{http.StatusForbidden, "Permission denied"}

// refusal finds status and text for an error of the plane. Stock answers 500 to nearly everything, a job that is not
// valid and a node that is not there too; clients print the text.
func refusal(err error) *Refusal {
	var r *Refusal
	var large *httpx.TooLarge
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &large):
		return &Refusal{http.StatusRequestEntityTooLarge, large.Error()}
	}
	switch errkind.Of(err) {
	case errkind.Denied:
		return ErrDenied
	case errkind.TooLarge:
		return &Refusal{http.StatusRequestEntityTooLarge, errkind.Text(err)}
	case errkind.Overloaded:
		return &Refusal{http.StatusTooManyRequests, errkind.Text(err)}
	case errkind.NotLeader:
		return &Refusal{http.StatusInternalServerError, "No cluster leader"}
	}
	return &Refusal{http.StatusInternalServerError, errkind.Text(err)}
}

// fail answers with an error.
func (q *Request) fail(err error) {
	r := refusal(err)
	if r.Status == http.StatusInternalServerError && errkind.Of(err) == errkind.Internal &&
		!errors.As(err, new(*Refusal)) {
		q.Log.Error("a request failed", "method", q.R.Method, "path", q.R.URL.Path, "error", err)
	}
	q.W.Header()["Content-Type"] = httpx.TextType
	httpx.WriteText(q.W, r.Status, r.Text)
}

// Encode is v as JSON, indented when the request says pretty.
func (q *Request) Encode(v any) ([]byte, error) {
	if q.Query.Has("pretty") {
		return json.MarshalIndent(v, "", "    ")
	}
	return json.Marshal(v)
}

// JSON answers with v.
func (q *Request) JSON(v any) error {
	body, err := q.Encode(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	httpx.Write(q.W, q.R, http.StatusOK, httpx.JSONType, body)
	return nil
}

// Wrote answers a write with v, nil for an empty body.
func (q *Request) Wrote(index uint64, v any) error {
	q.setIndex(index)
	if v == nil {
		q.W.Header()["Content-Type"] = httpx.JSONType
		return nil
	}
	return q.JSON(v)
}

// WroteNothing answers a write that has nothing to show: 204.
func (q *Request) WroteNothing(index uint64) {
	q.setIndex(index)
	q.W.WriteHeader(http.StatusNoContent)
}
