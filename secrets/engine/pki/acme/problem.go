package acme

import (
	"errors"
	"fmt"
	"net/http"

	"corbel.dev/corbel/kit/errkind"
)

// Problem is an error in the form of the protocol (RFC 7807).
type Problem struct {
	Type   string `json:"type"`
	Detail string `json:"detail"`
	Status int    `json:"status"`
}

// Error implements error.
func (p *Problem) Error() string { return p.Type + ": " + p.Detail }

func problem(status int, kind, format string, args ...any) *Problem {
	return &Problem{Type: "urn:ietf:params:acme:error:" + kind, Detail: fmt.Sprintf(format, args...), Status: status}
}

// problemOf is an error as a client is told it; is is false where the plane says it in its own words.
func problemOf(err error) (p *Problem, is bool) {
	switch {
	case errors.As(err, &p):
		return p, true
	case errkind.Is(err, errkind.Invalid) || errkind.Is(err, errkind.Denied):
		return problem(http.StatusBadRequest, "malformed", "%s", errkind.Text(err)), true
	}
	return nil, false
}
