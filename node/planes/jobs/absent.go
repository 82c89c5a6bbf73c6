package jobsplane

import (
	"context"
	"io"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/errkind"
)

// absent are nodes that nobody can call.
type absent struct{}

var errAbsent = errkind.New(errkind.Unavailable, "Unknown node: this server cannot call it")

// Ask implements nomadrows.Clients.
func (absent) Ask(context.Context, jobs.ID, string, any, any) error { return errAbsent }

// Read implements nomadrows.Clients.
func (absent) Read(context.Context, jobs.ID, string, any) (io.ReadCloser, error) {
	return nil, errAbsent
}

// Talk implements nomadrows.Clients.
func (absent) Talk(context.Context, jobs.ID, string, any) (io.ReadWriteCloser, error) {
	return nil, errAbsent
}
