package frame

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
)

// Frame is an event as an agent sent it, cut into what is new in each run and what hardly
// ever changes, without decoding the latter: whoever holds the former event of the same
// check compares Stable with what it has, byte for byte, and has understood the event when they are
// equal. Cut may be called again and again on one Frame; slices alias the message, or
// the Frame's own buffer, and hold until the next call.
type Frame struct {
	monitor.Result
	HasCheck    bool
	Check       []byte // the check's name
	Proxy       []byte // the entity that the result is of, where that is not the agent's own; Stable holds it too
	Output      []byte
	Stable      []byte // the fields of the check beside the others here, as they came
	Hooks       []byte // results of hooks: fields of the check with their tags
	ProcessedBy []byte
	Entity      []byte // the entity's message
	Parts       EntityParts
	Metrics     []byte // the metrics' message; nil is none
	Rest        []byte // the other fields of the event, with their tags
	stable      []byte
	hooks       []byte
	rest        []byte
}

// Field numbers of the messages that are cut; the others are in the types' tags.
const (
	eventTimestamp, eventEntity, eventCheck, eventMetrics, eventID, eventSequence = 1, 2, 3, 4, 6, 7

	checkProxy                                                                                    = 13
	checkDuration, checkExecuted, checkHistory, checkIssued, checkOutput, checkState, checkStatus = 22, 23, 24,
		25, 26, 27, 28
	checkChange, checkLastOK, checkOccurrences, checkWatermark, checkSilenced, checkHooks = 29, 30, 31, 32, 33, 34
	checkMeta, checkIsSilenced, checkProcessedBy                                          = 38, 42, 45

	metaName = 1
)

// ErrFrame is a message that is no event.
var ErrFrame = errors.New("not an event")

// Cut reads a protobuf event. Nothing is allocated once the Frame's buffers have grown.
func (f *Frame) Cut(b []byte) error {
	f.Reset()
	err := fields(b, func(n protowire.Number, v value, whole []byte) error {
		switch {
		case n == eventTimestamp && v.number:
			f.Timestamp = int64(v.uint)
		case n == eventSequence && v.number:
			f.Sequence = int64(v.uint)
		case n == eventEntity && v.text:
			return f.SetEntity(v.bytes)
		case n == eventMetrics && v.text:
			f.Metrics = v.bytes
		case n == eventID && v.text:
			if len(v.bytes) != 0 && len(v.bytes) != len(f.ID) {
				return fmt.Errorf("%w: an id of %d bytes", ErrFrame, len(v.bytes))
			}
			copy(f.ID[:], v.bytes)
		case n == eventCheck && v.text:
			if f.HasCheck { // protobuf would merge the two; nobody sends that
				return fmt.Errorf("%w: two checks", ErrFrame)
			}
			f.HasCheck = true
			return f.cutCheck(v.bytes)
		default:
			f.rest = append(f.rest, whole...)
		}
		return nil
	})
	f.Stable, f.Hooks, f.Rest = f.stable, f.hooks, f.rest
	return err
}

// Reset empties the frame for use again.
func (f *Frame) Reset() { *f = Frame{stable: f.stable[:0], hooks: f.hooks[:0], rest: f.rest[:0]} }

// SetEntity puts an entity's message in the place of the one that came.
func (f *Frame) SetEntity(message []byte) (err error) {
	f.Entity = message
	f.Parts, err = CutEntity(message)
	return err
}

func (f *Frame) cutCheck(b []byte) error {
	return fields(b, func(n protowire.Number, v value, whole []byte) error {
		switch {
		case n == checkDuration && v.fixed:
			f.Duration = math.Float64frombits(v.uint)
		case n == checkExecuted && v.number:
			f.Executed = int64(v.uint)
		case n == checkIssued && v.number:
			f.Issued = int64(v.uint)
		case n == checkStatus && v.number:
			f.Status = uint32(v.uint)
		case n == checkOutput && v.text:
			f.Output = v.bytes
		case n == checkProcessedBy && v.text:
			f.ProcessedBy = v.bytes
		case n == checkHooks:
			f.hooks = append(f.hooks, whole...)
		case n == checkHistory, n == checkState, n == checkChange, n == checkLastOK, n == checkOccurrences,
			n == checkWatermark,
			n == checkSilenced, n == checkIsSilenced: // what the server says, not the sender
		case n == checkMeta && v.text:
			f.stable = append(f.stable, whole...)
			name, err := metaNameOf(v.bytes)
			if name != nil {
				f.Check = name
			}
			return err
		default:
			if n == checkProxy && v.text {
				f.Proxy = v.bytes
			}
			f.stable = append(f.stable, whole...)
		}
		return nil
	})
}

// value is one field's value: bytes of a text, or uint.
type value struct {
	text, number, fixed bool
	bytes               []byte
	uint                uint64
}

// fields calls do with each field of a message; whole is the field with its tag.
func fields(b []byte, do func(n protowire.Number, v value, whole []byte) error) error {
	for len(b) > 0 {
		n, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return fmt.Errorf("%w: damaged", ErrFrame)
		}
		var v value
		size := -1
		switch typ {
		case protowire.VarintType:
			v.number = true
			v.uint, size = protowire.ConsumeVarint(b[tag:])
		case protowire.Fixed64Type:
			v.fixed = true
			v.uint, size = protowire.ConsumeFixed64(b[tag:])
		case protowire.BytesType:
			v.text = true
			v.bytes, size = protowire.ConsumeBytes(b[tag:])
		default:
			size = protowire.ConsumeFieldValue(n, typ, b[tag:])
		}
		if size < 0 {
			return fmt.Errorf("%w: field %d is damaged", ErrFrame, n)
		}
		if err := do(n, v, b[:tag+size]); err != nil {
			return err
		}
		b = b[tag+size:]
	}
	return nil
}

// Event decodes the whole of what was cut, but what the server says of the check.
func (f *Frame) Event() (*monitor.Event, error) {
	e := new(monitor.Event)
	if err := tagproto.Unmarshal(f.Rest, e); err != nil {
		return nil, err
	}
	e.Timestamp, e.Sequence = f.Timestamp, f.Sequence
	if f.ID != [16]byte{} {
		e.ID = append(monitor.ID(nil), f.ID[:]...)
	}
	if f.Entity != nil {
		e.Entity = new(monitor.Entity)
		if err := tagproto.Unmarshal(f.Entity, e.Entity); err != nil {
			return nil, err
		}
	}
	if f.Metrics != nil {
		e.Metrics = new(monitor.Metrics)
		if err := tagproto.Unmarshal(f.Metrics, e.Metrics); err != nil {
			return nil, err
		}
	}
	if !f.HasCheck {
		return e, nil
	}
	e.Check = new(monitor.Check)
	for _, part := range [][]byte{f.Stable, f.Hooks} {
		if err := tagproto.Unmarshal(part, e.Check); err != nil {
			return nil, err
		}
	}
	c := e.Check
	c.Issued, c.Executed, c.Duration, c.Status = f.Issued, f.Executed, f.Duration, f.Status
	c.Output, c.ProcessedBy = string(f.Output), string(f.ProcessedBy)
	return e, nil
}

// entityLastSeen is the field of an entity that changes though nothing happened.
const entityLastSeen = 5

// EntityParts is an entity's message, cut; the parts alias it.
type EntityParts struct {
	Name []byte
	// Head and Tail are the message without the time at which the entity was seen last, which is LastSeen (Unix seconds).
	Head, Tail []byte
	LastSeen   int64
}

// CutEntity cuts an entity's message, without decoding it.
func CutEntity(message []byte) (p EntityParts, err error) {
	at := 0
	p.Head = message
	err = fields(message, func(n protowire.Number, v value, whole []byte) error {
		switch {
		case n == entityLastSeen && v.number:
			p.Head, p.Tail, p.LastSeen = message[:at], message[at+len(whole):], int64(v.uint)
		case n == entityMeta && v.text:
			if name, err := metaNameOf(v.bytes); err != nil {
				return err
			} else if name != nil {
				p.Name = name
			}
		}
		at += len(whole)
		return nil
	})
	return p, err
}

// metaNameOf returns the name in an object's metadata; nil is none.
func metaNameOf(meta []byte) (name []byte, err error) {
	err = fields(meta, func(n protowire.Number, v value, _ []byte) error {
		if n == metaName && v.text {
			name = v.bytes
		}
		return nil
	})
	return name, err
}

const entitySubscriptions, entityMeta = 4, 14

// EntitySubscriptions returns the subscriptions in an entity's message.
func EntitySubscriptions(message []byte) (out []string) {
	_ = fields(message, func(n protowire.Number, v value, _ []byte) error { // it was read before
		if n == entitySubscriptions && v.text {
			out = append(out, string(v.bytes))
		}
		return nil
	})
	return out
}
