package pgtest

import "errors"

var errNoSignals = errors.New("pgtest: this system has no signals that stop a process")

// Freeze needs signals.
func (s *Server) Freeze() error { return errNoSignals }

// Thaw needs signals.
func (s *Server) Thaw() error { return errNoSignals }
