//go:build !unix

package fault

import (
	"errors"
	"os"
)

var errNotHere = errors.New("faults are injected on Unix systems only")

func linePair() (ours, theirs *os.File, err error) { return nil, nil, errNotHere }

func signalStop(*os.Process) error { return errNotHere }

func signalGoOn(*os.Process) error { return errNotHere }
