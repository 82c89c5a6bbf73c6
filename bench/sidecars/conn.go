package sidecars

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"golang.org/x/net/http2"
)

// conn is one host's connection: what is between bytes read and bytes to write.
type conn struct {
	l        *loop
	host     *Host
	addr     [4]byte
	port     int
	place    int // in its loop
	first    int // place of the host's first sidecar in the fleet
	fd       int
	carry    []byte // the begin of a frame whose end was not read yet
	out      []byte // what the socket did not take
	streams  []stream
	parts    map[int][]byte // messages in pieces, by stream; nil mostly
	owners   []uint16       // by the order of opening: whose HTTP/2 stream it is
	down     int            // streams that ended and are to be opened again
	flow     flow
	writable bool // epoll was asked to tell when the socket takes more
}

// flow is HTTP/2's flow control of a connection; a stream has its own window.
type flow struct {
	window   int // what the agent lets us send on the connection
	initial  int // what it lets us send on a new stream
	consumed int // read and not yet given back to the connection's window
	held     []heldMessage
}

// stream is one sidecar. It holds no names: what was asked for is kept as hashes.
type stream struct {
	versions [typeCount]uint32 // hashes of the tracked resources' versions; 0 is none yet
	asked    []uint32          // hashes of the names that were subscribed to
	id       uint32            // of the HTTP/2 stream; 0 while it has none
	window   int32
	have     uint8 // kinds of which the tracked resource came
	warm     bool
}

// heldMessage waits for the agent's window.
type heldMessage struct {
	stream  int
	message []byte
}

var seed = maphash.MakeSeed()

// hash32 is never 0.
func hash32(kind int, p []byte) uint32 { return uint32(maphash.Bytes(seed, p))<<3 | uint32(kind) + 1 }

// open forgets the former connection and puts the first requests of all streams into out.
func (c *conn) open() {
	c.out = c.l.spare[:0]
	if c.streams == nil {
		c.streams = make([]stream, len(c.host.Proxies))
	}
	c.flow, c.carry, c.parts = flow{window: defaultWindow, initial: defaultWindow}, nil, nil
	headers := headerBlock(c.host.Addr, c.l.fleet.cfg.Token)
	c.owners, c.down = c.owners[:0], 0
	c.out = append(c.out, opening()...)
	for i := range c.streams {
		c.openStream(i, headers)
	}
}

// openStream begins the sidecar's stream with its first requests.
func (c *conn) openStream(i int, headers []byte) {
	s := &c.streams[i]
	*s = stream{asked: s.asked[:0], versions: s.versions, window: int32(c.flow.initial), id: uint32(2*len(c.owners) + 1)}
	c.owners = append(c.owners, uint16(i))
	c.out = appendFrameHead(c.out, len(headers), http2.FrameHeaders, http2.FlagHeadersEndHeaders, s.id)
	c.out = append(c.out, headers...)
	c.request(i, nodeMessage(c.host.Proxies[i], c.host.Node), kindCluster, nil, nil)
	c.request(i, nil, kindListener, nil, nil)
}

// endStream gives a stream up that the agent ended. It is opened again after a
// while, on the same connection; the other sidecars of the host go on.
func (c *conn) endStream(i int, why error) {
	s := &c.streams[i]
	c.l.ended(c, why)
	if s.warm {
		s.warm = false
		c.l.warm.Add(-1)
	}
	c.out = appendFrameHead(c.out, 4, http2.FrameRSTStream, 0, s.id) // our half is open yet
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(http2.ErrCodeCancel))
	s.id = 0
	delete(c.parts, i)
	c.down++
	c.flow.held = slices.DeleteFunc(c.flow.held, func(h heldMessage) bool { return h.stream == i })
}

// revive opens the streams again that ended. A connection that has seen very many is not used on.
func (c *conn) revive() error {
	c.down = 0
	if len(c.owners) > 1<<20 {
		return errors.New("a million streams ended on it")
	}
	if len(c.out) == 0 {
		c.out = c.l.spare[:0]
	}
	headers := headerBlock(c.host.Addr, c.l.fleet.cfg.Token)
	for i := range c.streams {
		if c.streams[i].id == 0 {
			c.openStream(i, headers)
		}
	}
	return nil
}

// cold makes the sidecars of a lost connection wait for everything again.
func (c *conn) cold() {
	for i := range c.streams {
		if s := &c.streams[i]; s.warm {
			s.warm = false
			c.l.warm.Add(-1)
		}
	}
}

// request puts a request into out, or holds it until the agent's windows allow it.
func (c *conn) request(i int, node []byte, kind int, subscribe []string, nonce []byte) {
	m := appendRequest(c.l.scratch[:0], node, kind, subscribe, nonce)
	c.l.scratch = m
	if len(c.flow.held) > 0 || !c.fits(i, len(m)) {
		c.flow.held = append(c.flow.held, heldMessage{i, bytes.Clone(m)})
		return
	}
	c.put(i, m)
}

func (c *conn) fits(i, n int) bool {
	n += messageHead
	return n <= c.flow.window && n <= int(c.streams[i].window)
}

func (c *conn) put(i int, m []byte) {
	c.flow.window -= messageHead + len(m)
	c.streams[i].window -= int32(messageHead + len(m))
	c.out = appendMessage(c.out, c.streams[i].id, m)
}

// release sends what was held, in order, as far as the windows allow.
func (c *conn) release() {
	for len(c.flow.held) > 0 && c.fits(c.flow.held[0].stream, len(c.flow.held[0].message)) {
		c.put(c.flow.held[0].stream, c.flow.held[0].message)
		c.flow.held = c.flow.held[1:]
	}
}

// read takes all whole frames in p and returns how many bytes they have.
func (c *conn) read(p []byte) (int, error) {
	at := 0
	for len(p)-at >= frameHead {
		length := int(p[at])<<16 | int(p[at+1])<<8 | int(p[at+2])
		if length > maxFrame {
			return at, fmt.Errorf("a frame of %d bytes, the limit is %d", length, maxFrame)
		}
		if len(p)-at < frameHead+length {
			break
		}
		id := binary.BigEndian.Uint32(p[at+5:]) & maxWindow
		if err := c.frame(http2.FrameType(p[at+3]), http2.Flags(p[at+4]), id,
			p[at+frameHead:at+frameHead+length]); err != nil {
			return at, err
		}
		at += frameHead + length
	}
	if c.flow.consumed > 1<<30 {
		c.out = appendWindow(c.out, c.flow.consumed)
		c.flow.consumed = 0
	}
	return at, nil
}

func (c *conn) frame(kind http2.FrameType, flags http2.Flags, id uint32, p []byte) error {
	i := 0
	if id != 0 {
		at := int(id-1) / 2
		if id%2 == 0 || at >= len(c.owners) {
			return fmt.Errorf("a %v frame of stream %d, which was not opened", kind, id)
		}
		if i = int(c.owners[at]); c.streams[i].id != id { // it ended
			if kind == http2.FrameData {
				c.flow.consumed += len(p)
			}
			return nil
		}
	}
	switch kind {
	case http2.FrameData:
		c.flow.consumed += len(p)
		if id == 0 || flags&http2.FlagDataPadded != 0 {
			return errors.New("a DATA frame without stream or with padding")
		}
		err := c.data(i, p)
		if err == nil && flags&http2.FlagDataEndStream != 0 {
			c.endStream(i, errors.New("the agent ended a stream without a status"))
		}
		return err
	case http2.FrameHeaders:
		if id == 0 {
			return errors.New("headers without a stream")
		}
		err := readHeaders(c.l.headers, flags, p)
		if errors.Is(err, errEnded) {
			c.endStream(i, err)
			return nil
		}
		return err
	case http2.FrameSettings:
		if flags&http2.FlagSettingsAck == 0 {
			return c.settings(p)
		}
	case http2.FramePing:
		if flags&http2.FlagPingAck == 0 && len(p) == 8 {
			c.out = append(appendFrameHead(c.out, 8, http2.FramePing, http2.FlagPingAck, 0), p...)
		}
	case http2.FrameWindowUpdate:
		if len(p) != 4 {
			return errors.New("a WINDOW_UPDATE frame that has not 4 bytes")
		}
		n := int(binary.BigEndian.Uint32(p) & maxWindow)
		if id == 0 {
			c.flow.window += n
		} else {
			c.streams[i].window += int32(n)
		}
		c.release()
	case http2.FrameRSTStream:
		if id == 0 {
			return errors.New("a RST_STREAM frame without a stream")
		}
		c.endStream(i, fmt.Errorf("the agent reset a stream: code %x", p))
	case http2.FrameGoAway:
		return fmt.Errorf("the agent sent GOAWAY: %q", p[min(8, len(p)):])
	case http2.FrameContinuation, http2.FramePushPromise:
		return fmt.Errorf("a %v frame, which was not expected", kind)
	}
	return nil
}

func (c *conn) settings(p []byte) error {
	for ; len(p) >= 6; p = p[6:] {
		value := int(binary.BigEndian.Uint32(p[2:]))
		if http2.SettingID(binary.BigEndian.Uint16(p)) == http2.SettingInitialWindowSize {
			for i := range c.streams {
				c.streams[i].window += int32(value - c.flow.initial)
			}
			c.flow.initial = value
		}
	}
	c.out = appendFrameHead(c.out, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
	c.release()
	return nil
}

// data takes a piece of stream i. Messages that came whole are looked through in place.
func (c *conn) data(i int, p []byte) error {
	if part := c.parts[i]; part != nil {
		p = append(part, p...)
	}
	for len(p) >= messageHead {
		size := int(binary.BigEndian.Uint32(p[1:]))
		if p[0] != 0 || size > maxMessage {
			return fmt.Errorf("a message that is compressed (%d) or too long (%d bytes)", p[0], size)
		}
		if len(p) < messageHead+size {
			break
		}
		if err := c.message(i, p[messageHead:messageHead+size]); err != nil {
			return err
		}
		p = p[messageHead+size:]
	}
	switch {
	case len(p) == 0 && c.parts == nil:
	case len(p) == 0:
		delete(c.parts, i)
	default:
		if c.parts == nil {
			c.parts = map[int][]byte{}
		}
		c.parts[i] = slices.Clone(p)
	}
	return nil
}

// message looks through one response, notes arrivals and acknowledges.
func (c *conn) message(i int, p []byte) error {
	r, err := readResponse(p)
	if err != nil {
		return err
	}
	s, f := &c.streams[i], c.l.fleet
	var ask [typeCount][]string
	asks := false
	armed := f.round.Load()
	if armed != nil && armed.kind != r.kind {
		armed = nil
	}
	tracked := f.track[r.kind]
	for v := range r.resources {
		changed := true
		if tracked == "" || tracked == string(v.name) {
			h := hash32(0, v.version)
			changed = s.versions[r.kind] != h
			s.versions[r.kind] = h
			s.have |= 1 << r.kind
		}
		if armed != nil && (armed.Name == "" || armed.Name == string(v.name)) {
			now, fits := Monotonic(), armed.fits(v, changed)
			armed.seen[c.first+i].note(now, hash32(0, v.version), fits)
			if fits {
				armed.arrive(c.first+i, now)
			}
		}
		references(r.kind, v, func(kind int, name []byte) {
			if h := hash32(kind, name); !slices.Contains(s.asked, h) {
				s.asked = append(s.asked, h)
				ask[kind] = append(ask[kind], string(name))
				asks = true
			}
		})
	}
	c.request(i, nil, r.kind, nil, r.nonce)
	c.l.note(s)
	if asks {
		for kind, names := range ask {
			if len(names) > 0 {
				c.request(i, nil, kind, names, nil)
			}
		}
	}
	return nil
}

func (r *round) fits(v resource, changed bool) bool {
	if r.Name != "" && r.Name != string(v.name) {
		return false
	}
	if len(r.marker) == 0 {
		return changed
	}
	return bytes.Contains(v.content, r.marker) != r.Gone
}
