package feed

import (
	"encoding/binary"
	"math"
	"time"

	"corbel.dev/corbel/core/framing"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/errkind/errwire"
	"corbel.dev/corbel/kit/pack"
)

// frameType is the type of a frame as core/framing has them. Body bytes of values are the rest of their frame.
type frameType = byte

// What servers send.
const (
	frameWelcome   frameType = 1 // version, heartbeat interval in ms
	frameValue     frameType = 2 // id, generation, index, at, total length + 1 (0: no body), the body's first part
	frameChunk     frameType = 3 // the next part of the value whose body is not complete
	frameUnchanged frameType = 4 // id: nothing is newer than what the follower has
	frameGone      frameType = 5 // id, error: the subject is followed no more
	frameHeartbeat frameType = 6 // generation, known, sent, lag in ms, server's time
	frameBye       frameType = 7 // error: the server closes the connection
)

// What clients send.
const (
	frameHello    frameType = 65 // version, node, token
	frameFollow   frameType = 66 // id, generation, since, subject, token
	frameUnfollow frameType = 67 // id
)

// protocolVersion is the newest version of the frames that this code speaks. A server
// answers a hello with the version it will speak, at most the one that was asked for. Clients of version 1 are sent
// bodies without their tails.
const (
	protocolVersion = 2
	versionOfTails  = 2
)

const (
	// maxFrameBytes bounds what follows a frame's head, so that a reader knows what it may need.
	maxFrameBytes = 64 << 10
	// chunkBytes is how much of a large body is sent before other frames may pass: one TLS record.
	chunkBytes = 16 << 10
	// valueHeadBytes is the most that a value frame takes besides its part of the body.
	valueHeadBytes = framing.HeadBytes + 5*binary.MaxVarintLen64

	maxSubjectBytes = 4 << 10
	maxTokenBytes   = 16 << 10
	maxNodeBytes    = 4 << 10
	maxTextBytes    = 1 << 10
)

var (
	errFrame   = errkind.E(errkind.Invalid, "feed", framing.ErrMalformed)
	errSubject = errkind.Errorf(errkind.Invalid, "feed: a subject has 1 to %d bytes, a token at most %d", maxSubjectBytes,
		maxTokenBytes)
)

type welcome struct {
	version   uint64
	heartbeat time.Duration
}

func (w welcome) append(b []byte) []byte {
	b, mark := framing.Begin(b, frameWelcome)
	b = pack.Uint(pack.Uint(b, w.version), uint64(w.heartbeat/time.Millisecond))
	return framing.End(b, mark)
}

// valueHead is a value without its body: total is the body's length, -1 for none.
type valueHead struct {
	id         uint32
	generation uint64
	index      uint64
	at         int64 // Unix nanoseconds, 0 unknown
	total      int
}

// append appends a value frame with the first part of its body.
func (v valueHead) append(b, part []byte) []byte {
	b, mark := framing.Begin(b, frameValue)
	b = pack.Uint(pack.Uint(pack.Uint(b, uint64(v.id)), v.generation), v.index)
	b = pack.Uint(pack.Uint(b, uint64(v.at)), uint64(v.total+1))
	return framing.End(append(b, part...), mark)
}

func appendChunk(b, part []byte) []byte {
	b, mark := framing.Begin(b, frameChunk)
	return framing.End(append(b, part...), mark)
}

func appendUnchanged(b []byte, id uint32) []byte {
	b, mark := framing.Begin(b, frameUnchanged)
	return framing.End(pack.Uint(b, uint64(id)), mark)
}

func appendUnfollow(b []byte, id uint32) []byte {
	b, mark := framing.Begin(b, frameUnfollow)
	return framing.End(pack.Uint(b, uint64(id)), mark)
}

func appendGone(b []byte, id uint32, err error) []byte {
	b, mark := framing.Begin(b, frameGone)
	return framing.End(errwire.Append(pack.Uint(b, uint64(id)), err, maxTextBytes), mark)
}

func appendBye(b []byte, err error) []byte {
	b, mark := framing.Begin(b, frameBye)
	return framing.End(errwire.Append(b, err, maxTextBytes), mark)
}

// heartbeat says up to which index everything has been sent on this connection, which
// index the server knows of, and for how long the server has not heard of its cluster.
type heartbeat struct {
	generation  uint64
	known, sent uint64
	lag         time.Duration
	now         int64 // Unix nanoseconds
}

func (h heartbeat) append(b []byte) []byte {
	b, mark := framing.Begin(b, frameHeartbeat)
	b = pack.Uint(pack.Uint(pack.Uint(b, h.generation), h.known), h.sent)
	b = pack.Int(pack.Uint(b, uint64(h.lag/time.Millisecond)), h.now)
	return framing.End(b, mark)
}

type hello struct {
	version     uint64
	node, token string
}

func (h hello) append(b []byte) []byte {
	b, mark := framing.Begin(b, frameHello)
	return framing.End(pack.String(pack.String(pack.Uint(b, h.version), h.node), h.token), mark)
}

// follow asks for a subject's values that are newer than since, an index of generation; 0 is any.
type follow struct {
	id                uint32
	generation, since uint64
	subject, token    string
}

func (f follow) append(b []byte) []byte {
	b, mark := framing.Begin(b, frameFollow)
	b = pack.Uint(pack.Uint(pack.Uint(b, uint64(f.id)), f.generation), f.since)
	return framing.End(pack.String(pack.String(b, f.subject), f.token), mark)
}

// message is a decoded frame: the fields that its type has. Slices point into the frame.
type message struct {
	kind    frameType
	id      uint32
	welcome welcome
	value   valueHead
	body    []byte
	beat    heartbeat
	err     error
	hello   hello
	follow  follow
}

// decode reads a frame's payload. A payload may be longer than what is known here: a
// later version may append fields, except to frames that carry body bytes.
func decode(t frameType, p []byte, m *message) error {
	*m = message{kind: t}
	r := pack.Read(p)
	switch t {
	case frameWelcome:
		m.welcome = welcome{r.Uint(), millis(r.Uint())}
	case frameValue:
		if err := m.decodeValue(r, p); err != nil {
			return err
		}
	case frameChunk:
		m.body = p
		if len(p) == 0 {
			return errFrame
		}
	case frameUnchanged, frameUnfollow:
		m.id = readID(r)
	case frameGone:
		m.id = readID(r)
		m.err = errwire.Read(r)
	case frameBye:
		m.err = errwire.Read(r)
	case frameHeartbeat:
		m.beat = heartbeat{r.Uint(), r.Uint(), r.Uint(), millis(r.Uint()), r.Int()}
	case frameHello:
		m.hello.version = r.Uint()
		m.hello.node, m.hello.token = readText(r, maxNodeBytes), readText(r, maxTokenBytes)
	case frameFollow:
		f := &m.follow
		f.id, f.generation, f.since = readID(r), r.Uint(), r.Uint()
		f.subject, f.token = readText(r, maxSubjectBytes), readText(r, maxTokenBytes)
		m.id = f.id
	default:
		return errkind.Errorf(errkind.Invalid, "feed: frame of unknown type %d", t)
	}
	if r.Err() != nil || (m.id == 0 && hasID(t)) {
		return errFrame
	}
	return nil
}

func hasID(t frameType) bool {
	switch t {
	case frameValue, frameUnchanged, frameGone, frameFollow, frameUnfollow:
		return true
	}
	return false
}

func (m *message) decodeValue(r *pack.Reader, p []byte) error {
	m.id = readID(r)
	generation, index, at, total := r.Uint(), r.Uint(), r.Uint(), r.Uint()
	if r.Err() != nil || total > math.MaxInt32 || at > math.MaxInt64 {
		return errFrame
	}
	m.value = valueHead{m.id, generation, index, int64(at), int(total) - 1}
	m.body = p[len(p)-r.Len():]
	if len(m.body) > max(0, m.value.total) || (len(m.body) == 0 && m.value.total > 0) {
		return errFrame
	}
	return nil
}

func readID(r *pack.Reader) uint32 {
	id := r.Uint()
	if id > math.MaxUint32 {
		return 0
	}
	return uint32(id)
}

// readText reads a string of at most limit bytes; a longer one is damage that the caller sees as an invalid name.
func readText(r *pack.Reader, limit int) string {
	if s := r.String(); len(s) <= limit {
		return s
	}
	return ""
}

func millis(n uint64) time.Duration {
	return time.Duration(min(n, uint64(math.MaxInt64/int64(time.Millisecond)))) * time.Millisecond
}
