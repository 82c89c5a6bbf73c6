package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/errkind/errwire"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/pack"
	"google.golang.org/grpc/mem"
)

// Frames, in both directions:
//
//	request: length of method (1 byte), method, payload
//	reply:   kind (1 byte); data: payload; error: as in kit/errkind/errwire
//
// What does not fit into one piece of a request follows in messages of its own: see large.go.
// The reply form serves calls and streams alike. Errors of handlers are ordinary
// replies: a grpc status would cost a second encoding and knows other kinds.
const (
	frameData      = 0
	frameError     = 1
	frameHeartbeat = 2
)

// frameOverheadBytes is added to size limits, which speak of payloads.
const frameOverheadBytes = 1 + math.MaxUint8

var errFrame = errors.New("rpc: malformed frame")

type request struct {
	method  string
	payload []byte
}

type reply struct {
	payload   []byte
	err       error
	heartbeat bool
}

// The heads that every reply shares; sent by reference, never written to.
var (
	headData      mem.Buffer = mem.SliceBuffer([]byte{frameData})
	headHeartbeat mem.Buffer = mem.SliceBuffer([]byte{frameHeartbeat})
)

func (r *request) marshal() (mem.BufferSlice, error) {
	if r.method == "" || len(r.method) > math.MaxUint8 {
		return nil, errkind.New(errkind.Invalid, "rpc: a method's name has 1 to 255 bytes")
	}
	head := make([]byte, 0, 1+len(r.method))
	head = append(append(head, byte(len(r.method))), r.method...)
	if len(r.payload) == 0 {
		return mem.BufferSlice{mem.SliceBuffer(head)}, nil
	}
	return mem.BufferSlice{mem.SliceBuffer(head), mem.SliceBuffer(r.payload)}, nil
}

// unmarshal takes over b.
func (r *request) unmarshal(b []byte) error {
	if len(b) == 0 || b[0] == 0 || len(b) < 1+int(b[0]) {
		return errFrame
	}
	n := 1 + int(b[0])
	r.method, r.payload = string(b[1:n]), b[n:]
	return nil
}

func (r *reply) marshal() (mem.BufferSlice, error) {
	switch {
	case r.heartbeat:
		return mem.BufferSlice{headHeartbeat}, nil
	case r.err != nil:
		return mem.BufferSlice{mem.SliceBuffer(encodeError(r.err))}, nil
	case len(r.payload) == 0:
		return mem.BufferSlice{headData}, nil
	}
	return mem.BufferSlice{headData, mem.SliceBuffer(r.payload)}, nil
}

// flat is what marshal gives, in one piece.
func (r *reply) flat() []byte {
	if r.err != nil {
		return encodeError(r.err)
	}
	return append(append(make([]byte, 0, 1+len(r.payload)), frameData), r.payload...)
}

// unmarshal takes over b.
func (r *reply) unmarshal(b []byte) error {
	*r = reply{}
	if len(b) == 0 {
		return errFrame
	}
	switch b[0] {
	case frameData:
		r.payload = b[1:]
	case frameHeartbeat:
		r.heartbeat = true
	case frameError:
		r.err = decodeError(b[1:])
	default:
		return errFrame
	}
	return nil
}

func encodeError(err error) []byte {
	return errwire.Append([]byte{frameError}, err, 0)
}

func decodeError(b []byte) error {
	if len(b) == 0 {
		return errFrame
	}
	r := pack.Read(b)
	// Callers ask with errors.Is, whoever's clock was faster and whoever's memory is full.
	if err := errwire.Read(r, context.DeadlineExceeded, context.Canceled, limit.ErrBytes); r.Err() == nil {
		return err
	}
	return errFrame
}

// codec passes request and reply through grpc without another encoding.
type codec struct{}

// Name is the content subtype on the wire.
func (codec) Name() string { return "corbel" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *request:
		return v.marshal()
	case *reply:
		return v.marshal()
	case *muxMessage:
		return mem.BufferSlice{mem.SliceBuffer(v.b)}, nil
	}
	return nil, fmt.Errorf("rpc: cannot marshal %T", v)
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	// One copy out of grpc's pooled buffers: the receiver owns what it gets.
	b := data.Materialize()
	switch v := v.(type) {
	case *request:
		return v.unmarshal(b)
	case *reply:
		return v.unmarshal(b)
	case *muxMessage:
		v.b = b
		return nil
	}
	return fmt.Errorf("rpc: cannot unmarshal %T", v)
}
