package agents

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// session is one simulated agent.
type session struct {
	id     int
	name   string
	ns     int // 0 default, 1 the sample's
	target int
	fd     int
	opens  uint32 // how often it was opened: turns of a former session are void
	state  state
	armed  bool // waits until the socket takes more
	alive  uint32
	next   int // check that a flood sends next
	carry  []byte
	out    []byte
	seqs   []uint32
}

type state uint8

const (
	stateShaking state = iota // the answer to the handshake is awaited
	stateWaiting              // the configuration is awaited
	stateReady
)

// holdBytes is how much may wait for the socket before an agent holds back its events: an agent queues ten.
const holdBytes = 16 << 10

var namespaces = [2]string{"default", SampleNamespace}

// handshake is the request for a session.
func (f *Fleet) handshake(s *session) []byte {
	sub := Subscription(s.id, f.cfg.Subscriptions)
	key := base64.StdEncoding.EncodeToString([]byte("bench-agent-0000"))
	auth := base64.StdEncoding.EncodeToString([]byte(f.cfg.User + ":" + f.cfg.Password))
	return fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: "+
		"Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n"+
		"Accept: application/octet-stream\r\nSensu-Namespace: %s\r\nSensu-AgentName: %s\r\nSensu-Subscriptions: %s,"+
		"entity:%s\r\nSensu-User: %s\r\nAuthorization: Basic %s\r\n\r\n",
		f.targets[s.target], key, namespaces[s.ns], s.name, sub, s.name, f.cfg.User, auth)
}

// read takes what came and returns how much of it was understood.
func (f *Fleet) read(s *session, b []byte, l *looks) (used int, err error) {
	if s.state == stateShaking {
		end := bytes.Index(b, []byte("\r\n\r\n"))
		if end < 0 {
			return 0, nil
		}
		if !bytes.HasPrefix(b, []byte("HTTP/1.1 101 ")) {
			line, _, _ := strings.Cut(string(b), "\r\n")
			return 0, fmt.Errorf("refused: %s %.100q", line, b[end+4:])
		}
		s.state, used = stateWaiting, end+4
	}
	for {
		size, op, payload, err := message(b[used:])
		if err != nil || size == 0 {
			return used, err
		}
		used += size
		switch op {
		case opBinary:
			err = f.message(s, payload, l)
		case opPing:
			s.out = append(append(s.out, 0x80|opPong, 0x80|byte(len(payload)), 0, 0, 0, 0), payload...)
		case opClose:
			err = io.EOF
		}
		if err != nil {
			return used, err
		}
	}
}

// Opcodes of WebSocket frames.
const (
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10
)

// mostMessage bounds what a server may send at once.
const mostMessage = 1 << 20

// message cuts one frame of a server; size 0 asks for more bytes.
func message(b []byte) (size int, op byte, payload []byte, err error) {
	if len(b) < 2 {
		return 0, 0, nil, nil
	}
	head, length := 2, int(b[1]&0x7f)
	switch {
	case b[1]&0x80 != 0 || b[0]&0x80 == 0:
		return 0, 0, nil, errors.New("a frame that is masked, or a part")
	case length == 126:
		if len(b) < 4 {
			return 0, 0, nil, nil
		}
		head, length = 4, int(binary.BigEndian.Uint16(b[2:]))
	case length == 127:
		if len(b) < 10 {
			return 0, 0, nil, nil
		}
		long := binary.BigEndian.Uint64(b[2:])
		if long > mostMessage {
			return 0, 0, nil, errors.New("a frame that is too large")
		}
		head, length = 10, int(long)
	}
	if len(b) < head+length {
		return 0, 0, nil, nil
	}
	return head + length, b[0] & 0x0f, b[head : head+length], nil
}

// looks is what a loop remembers between sessions: a request goes to thousands of agents in the same bytes.
type looks struct {
	last   []byte
	check  int
	issued int64
	err    error
}

var (
	kindRequest = []byte("check_request\n")
	kindConfig  = []byte("entity_config\n")
)

// message takes what the server says.
func (f *Fleet) message(s *session, b []byte, l *looks) error {
	if body, ok := bytes.CutPrefix(b, kindRequest); ok {
		f.requests.Add(1)
		if !bytes.Equal(body, l.last) {
			l.look(body)
		}
		if l.err != nil {
			return l.err
		}
		if l.check >= 0 && l.check < f.cfg.Checks && s.state == stateReady && !f.quiet.Load() {
			f.answer(s, l.check, l.issued, time.Now())
		}
		return nil
	}
	if bytes.HasPrefix(b, kindConfig) && s.state == stateWaiting {
		s.state = stateReady
		f.opened.Add(1)
		f.sessions.Add(1)
	}
	return nil
}

func (l *looks) look(body []byte) {
	l.last = append(l.last[:0], body...)
	var name string
	name, l.issued, l.err = readRequest(body)
	number, ok := strings.CutPrefix(name, "bench-check-")
	n, err := strconv.Atoi(number)
	if l.check = n; !ok || err != nil {
		l.check = -1 // a check of somebody else
	}
}

// answer sends a result.
func (f *Fleet) answer(s *session, check int, issued int64, now time.Time) {
	if len(s.out) > holdBytes {
		f.held.Add(1)
		return
	}
	s.seqs[check]++
	s.out = f.forms[s.ns][check].put(s.out, s.name, now.Unix(), now.UnixNano(), issued, s.seqs[check])
	f.events.Add(1)
	if s.ns == 1 {
		f.sampled.Add(1)
	}
}

// keepalive sends a sign of life.
func (f *Fleet) keepalive(s *session) {
	s.alive++
	now := time.Now().Unix()
	s.out = f.alive[s.ns][s.id%f.cfg.Subscriptions].put(s.out, s.name, now, 0, now, s.alive)
	f.keepalives.Add(1)
}

func ping(s *session) { s.out = append(s.out, 0x80|opPing, 0x80, 0, 0, 0, 0) }
