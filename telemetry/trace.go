package telemetry

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
)

// TraceID and SpanID are those of W3C Trace Context. The zero value is none.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

// String is the id as headers have it.
func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// String is the id as headers have it.
func (id SpanID) String() string { return hex.EncodeToString(id[:]) }

func newTraceID() (id TraceID) {
	for id == (TraceID{}) {
		binary.BigEndian.PutUint64(id[:8], rand.Uint64())
		binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

func newSpanID() (id SpanID) {
	for id == (SpanID{}) {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// Traceparent is what a header of that name says.
type Traceparent struct {
	Trace   TraceID
	Parent  SpanID
	Sampled bool
}

// ParseTraceparent reads a traceparent header (W3C Trace Context, version 00 and later ones that begin alike); false
// when there is none or it is malformed.
func ParseTraceparent(header string) (t Traceparent, ok bool) {
	parts := strings.SplitN(header, "-", 5)
	if len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || len(parts[1]) != 32 || len(parts[2]) != 16 ||
		len(parts[3]) != 2 {
		return t, false
	}
	if parts[0] == "00" && len(parts) > 4 {
		return t, false
	}
	var flags [1]byte
	for _, part := range []struct {
		text string
		to   []byte
	}{{parts[0], flags[:]}, {parts[1], t.Trace[:]}, {parts[2], t.Parent[:]}, {parts[3], flags[:]}} {
		if strings.ToLower(part.text) != part.text {
			return Traceparent{}, false
		}
		if _, err := hex.Decode(part.to, []byte(part.text)); err != nil {
			return Traceparent{}, false
		}
	}
	if t.Trace == (TraceID{}) || t.Parent == (SpanID{}) {
		return Traceparent{}, false
	}
	t.Sampled = flags[0]&1 != 0
	return t, true
}

// carried is what a context tells of the request that it is of, to those who measure and to nobody else.
type carried struct {
	trace   string
	request *Request
	account *Account
}

type carriedKey struct{}

func with(ctx context.Context, c *carried) context.Context {
	return context.WithValue(ctx, carriedKey{}, c)
}

func carriedBy(ctx context.Context) carried {
	if c, _ := ctx.Value(carriedKey{}).(*carried); c != nil {
		return *c
	}
	return carried{}
}

// WithTrace gives ctx the id of the caller's trace (W3C Trace Context), for whoever keeps slow requests.
func WithTrace(ctx context.Context, id string) context.Context {
	c := carriedBy(ctx)
	c.trace = id
	return with(ctx, &c)
}

// TraceOf is the id that WithTrace gave, "" without one.
func TraceOf(ctx context.Context) string {
	return carriedBy(ctx).trace
}
