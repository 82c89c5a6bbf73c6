package rows

import (
	"errors"
)

// ErrAnswered ends a handler whose answer has been written (by a forward or a stream).
var ErrAnswered = errors.New("answered")

// Shared header values.
var (
	ValueTrue  = []string{"true"}
	valueFalse = []string{"false"}
	ValueZero  = []string{"0"}
	BodyTrue   = []byte("true")
	BodyFalse  = []byte("false")
)

// RawType is the type of answers that are plain text.
var RawType = []string{"text/plain"}
