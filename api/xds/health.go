package xds

import (
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/api/xds/h2"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	healthCheck = "/grpc.health.v1.Health/Check"
	healthWatch = "/grpc.health.v1.Health/Watch"
)

// The states of grpc.health.v1.HealthCheckResponse.
const (
	serving        = 1
	notServing     = 2
	serviceUnknown = 3
)

// health is the grpc.health.v1.Health service.
type health struct {
	mu       sync.Mutex // a leaf: the watchers' connections are locked while it is taken
	names    []string
	down     bool
	watchers map[*healthCall]struct{}
}

func (h *health) init(names []string) { h.names, h.watchers = names, map[*healthCall]struct{}{} }

func (h *health) set(serving bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = !serving
	for w := range h.watchers {
		w.stream.Wake()
	}
}

func (h *health) state(name string) byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !slices.Contains(h.names, name):
		return serviceUnknown
	case h.down:
		return notServing
	}
	return serving
}

func (h *health) start(stream *h2.Stream, watch bool) h2.Call {
	return &healthCall{health: h, stream: stream, watch: watch}
}

// healthCall is a Check or a Watch.
type healthCall struct {
	health *health
	stream *h2.Stream
	watch  bool
	asked  bool
	name   string
	told   byte
}

// Message implements h2.Call.
func (c *healthCall) Message(b []byte, _ time.Time) *h2.Status {
	if c.asked {
		return &h2.Status{Code: h2.Unimplemented, Message: "the method takes one request"}
	}
	c.asked = true
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeField(b)
		if n < 0 {
			return &h2.Status{Code: h2.InvalidArgument, Message: "the request is not a well-formed message"}
		}
		if num == 1 && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(b)
			value, _ := protowire.ConsumeBytes(b[tag:])
			c.name = string(value)
		}
		b = b[n:]
	}
	if c.watch {
		c.health.mu.Lock()
		c.health.watchers[c] = struct{}{}
		c.health.mu.Unlock()
	}
	c.stream.Ready()
	return nil
}

// Fill implements h2.Call.
func (c *healthCall) Fill(m *h2.Message, _ time.Time) bool {
	if !c.asked {
		return false
	}
	state := c.health.state(c.name)
	if state == c.told {
		return false
	}
	if !c.watch {
		if c.told != 0 {
			return false // it was answered before
		}
		if state == serviceUnknown {
			c.stream.Finish(h2.NotFound, "the service "+c.name+" is not known here")
			return false
		}
		c.stream.Finish(h2.OK, "")
	}
	c.told = state
	m.Append([]byte{1 << 3, state})
	return true
}

// HalfClose implements h2.Call.
func (c *healthCall) HalfClose() {
	if !c.asked {
		c.stream.Finish(h2.Internal, "the call ended without a request")
	}
}

// Closed implements h2.Call.
func (c *healthCall) Closed() {
	c.health.mu.Lock()
	defer c.health.mu.Unlock()
	delete(c.health.watchers, c)
}
