package h2

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// frame takes one frame.
func (c *Conn) frame(f http2.Frame, now time.Time) error {
	if !c.settled {
		if s, ok := f.(*http2.SettingsFrame); !ok || s.IsAck() {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		c.settled = true
		if !c.closing {
			_ = c.nc.SetDeadline(time.Time{})
		}
	}
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.data(f.StreamID, int(f.Length), f.Data(), f.StreamEnded(), now)
	case *http2.MetaHeadersFrame:
		return c.headers(f, now)
	case *http2.WindowUpdateFrame:
		return c.windowUpdate(f)
	case *http2.RSTStreamFrame:
		if c.idle(f.StreamID) {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		if s := c.streams[f.StreamID]; s != nil {
			c.remove(s)
		}
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if err := f.ForeachSetting(c.setting); err != nil {
			return err
		}
		c.control(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
	case *http2.PingFrame:
		if f.IsAck() {
			return nil
		}
		c.control(http2.FramePing, http2.FlagPingAck, 0, f.Data[:])
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if !c.abuse.Take(now.Sub(c.server.epoch)) {
		return calm
	}
	return nil
}

// idle reports whether the peer has not opened the stream.
func (e *ended) idle(id uint32) bool { return id%2 == 0 || id > e.maxID }

// open notes that the peer used the number.
func (e *ended) open(id uint32) {
	if id%2 == 1 {
		e.maxID = max(e.maxID, id)
	}
}

func (c *Conn) setting(s http2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case http2.SettingInitialWindowSize:
		grown := int32(s.Val) - c.peerInitial
		c.peerInitial = int32(s.Val)
		for _, one := range c.streams {
			if int64(one.sendWindow)+int64(grown) > maxWindow {
				return http2.ConnectionError(http2.ErrCodeFlowControl)
			}
			one.sendWindow += grown
			if grown > 0 {
				one.Ready()
			}
		}
	case http2.SettingMaxFrameSize:
		c.peerFrame = int(s.Val)
	}
	return nil
}

func (c *Conn) windowUpdate(f *http2.WindowUpdateFrame) error {
	if f.StreamID == 0 {
		if int64(c.sendWindow)+int64(f.Increment) > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.sendWindow += int32(f.Increment)
		c.ready = append(c.ready, c.starved...)
		clear(c.starved)
		c.starved = c.starved[:0]
		return nil
	}
	if c.idle(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	s := c.streams[f.StreamID]
	if s == nil {
		return nil
	}
	if int64(s.sendWindow)+int64(f.Increment) > maxWindow {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFlowControl}
	}
	blocked := s.sendWindow <= 0
	s.sendWindow += int32(f.Increment)
	if blocked {
		s.Ready()
	}
	return nil
}

// grant gives the peer n more bytes to send.
func (c *Conn) grant(id uint32, n int32) {
	c.control(http2.FrameWindowUpdate, 0, id, binary.BigEndian.AppendUint32(nil, uint32(n)))
}

// data takes a DATA frame of size bytes, which are b and padding.
func (c *Conn) data(id uint32, frame int, b []byte, end bool, now time.Time) error {
	size := int32(frame)
	if size > c.recvLeft {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	if c.recvLeft -= size; c.recvLeft < connWindow/2 {
		c.grant(0, connWindow-c.recvLeft)
		c.recvLeft = connWindow
	}
	if c.idle(id) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	s := c.streams[id]
	if s == nil || s.remoteDone {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
	}
	if size > s.recvLeft {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeFlowControl}
	}
	s.recvLeft -= size
	if len(b) == 0 && !end && !c.abuse.Take(now.Sub(c.server.epoch)) {
		return calm
	}
	s.receive(b, now)
	if s.closed {
		return nil
	}
	if end {
		s.end()
	} else if s.recvLeft < streamWindow/2 {
		c.grant(id, streamWindow-s.recvLeft)
		s.recvLeft = streamWindow
	}
	return nil
}

func (c *Conn) headers(f *http2.MetaHeadersFrame, now time.Time) error {
	id := f.StreamID
	if s := c.streams[id]; s != nil {
		switch {
		case s.remoteDone:
			return http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
		case !f.StreamEnded() || len(f.PseudoFields()) > 0:
			return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
		}
		s.end() // trailers, which say nothing to us
		return nil
	}
	if slices.Contains(c.recent[:], id) {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
	}
	if !c.idle(id) || id%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.maxID = id
	if c.closing || len(c.streams) >= c.server.cfg.MaxStreamsPerConn {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	}
	if !c.abuse.Take(now.Sub(c.server.epoch)) {
		return calm
	}
	at := c.server.since(now)
	s := &Stream{conn: c, id: id, call: refused{}, sendWindow: c.peerInitial, recvLeft: streamWindow,
		rare: &rare{began: at}}
	c.streams[id], c.restless = s, true
	if c.server.streams.Add(1) > int64(c.server.cfg.MaxStreams) {
		c.server.refused.Add(1)
		s.Finish(ResourceExhausted, "the server has too many streams: try another one")
	} else {
		c.begin(s, f)
	}
	if d := timeout(value(f, "grpc-timeout")); d > 0 {
		s.seldom().deadline = at + int64(d)
	}
	if f.StreamEnded() && !s.closed {
		s.end()
	}
	return nil
}

// begin checks the request's headers and starts its call.
func (c *Conn) begin(s *Stream, f *http2.MetaHeadersFrame) {
	contentType := value(f, "content-type")
	rest, grpc := strings.CutPrefix(contentType, "application/grpc")
	switch {
	case f.Truncated:
		s.Finish(ResourceExhausted, "the request's headers are larger than 16 kB")
		return
	case f.PseudoValue("method") != "POST":
		c.plain(s, "405")
		return
	case !grpc || (rest != "" && rest[0] != '+' && rest[0] != ';'):
		c.plain(s, "415")
		return
	}
	md := make(Metadata, 0, 2*len(f.Fields))
	for _, h := range f.RegularFields() {
		md = append(md, h.Name, h.Value)
	}
	call, status := c.server.cfg.Start(s, f.PseudoValue("path"), md)
	if status != nil {
		s.finish(status)
		return
	}
	s.call = call
}

// plain answers what is no gRPC call with an HTTP status.
func (c *Conn) plain(s *Stream, status string) {
	head := appendHeader(nil, ":status", status)
	flags := http2.FlagHeadersEndHeaders | http2.FlagHeadersEndStream
	c.control(http2.FrameHeaders, flags, s.id, head)
	c.remove(s)
}

func value(f *http2.MetaHeadersFrame, name string) string {
	for _, h := range f.RegularFields() {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}
