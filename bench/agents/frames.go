package agents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// template is a masked WebSocket message with places that differ from one time to the next. Numbers that differ take
// five bytes always, as times in seconds do; shorter ones have leading zeros, which readers of protocol buffers accept.
type template struct {
	frame []byte
	names []int // where the agent's name stands
	times []int // seconds: when it was sent
	since []int // seconds: when the check was asked for
	seq   int
	id    int
	sent  int // twenty digits: nanoseconds
}

const (
	nameMark   = "bench-\x01\x02\x03\x04\x05\x06"
	sentMark   = "sent=00000000000000000000"
	timeMark   = 0x7_0001_0203
	issuedMark = 0x7_0001_0204
	seqMark    = 0x7_0001_0205
	idMark     = "\x01bench-event-id\x02"
	digits     = 20
)

// pb writes a message field by field.
type pb []byte

func (b *pb) text(n protowire.Number, v string) {
	if v != "" {
		*b = protowire.AppendString(protowire.AppendTag(*b, n, protowire.BytesType), v)
	}
}

func (b *pb) number(n protowire.Number, v uint64) {
	if v != 0 {
		*b = protowire.AppendVarint(protowire.AppendTag(*b, n, protowire.VarintType), v)
	}
}

func (b *pb) message(n protowire.Number, build func(*pb)) {
	var inner pb
	build(&inner)
	*b = protowire.AppendBytes(protowire.AppendTag(*b, n, protowire.BytesType), inner)
}

func (b *pb) meta(n protowire.Number, name, namespace string) {
	b.message(n, func(m *pb) { m.text(1, name); m.text(2, namespace) })
}

// checkTemplate is an event as an agent sends it: the check's configuration with every result, and the whole entity.
func checkTemplate(cfg *Config, namespace string, check int) template {
	handler := ""
	if namespace == SampleNamespace {
		handler = cfg.SampleHandler
	}
	sub := Subscription(check, cfg.Subscriptions)
	return makeTemplate("event", func(e *pb) {
		e.number(1, timeMark)
		e.message(2, func(b *pb) { entity(b, namespace, sub) })
		e.message(3, func(c *pb) {
			c.text(1, CheckCommand)
			c.text(3, handler)
			c.number(5, uint64(cfg.Interval))
			c.number(9, 1)
			c.text(11, sub)
			c.number(19, 10)
			*c = protowire.AppendFixed64(protowire.AppendTag(*c, 22, protowire.Fixed64Type), math.Float64bits(0.004217))
			c.number(23, timeMark)
			c.number(25, issuedMark)
			c.text(26, "CheckHTTP OK: 200 - 5213 bytes in 0.004 second response time | time=0.004217s;;;0.000000;10.000000 "+
				"size=5213B;;;0 "+sentMark+"\n")
			c.meta(38, CheckName(check), namespace)
			c.text(45, nameMark)
		})
		e.meta(5, "", namespace)
		e.text(6, idMark)
		e.number(7, seqMark)
	})
}

func keepaliveTemplate(cfg *Config, namespace, subscription string) template {
	return makeTemplate("keepalive", func(e *pb) {
		e.number(1, timeMark)
		e.message(2, func(b *pb) { entity(b, namespace, subscription) })
		e.message(3, func(c *pb) {
			c.number(5, uint64(cfg.Keepalive))
			c.number(19, 120)
			c.meta(38, "keepalive", namespace)
		})
		e.meta(5, "", namespace)
		e.text(6, idMark)
		e.number(7, seqMark)
	})
}

// entity is what an agent tells of its host.
func entity(b *pb, namespace, subscription string) {
	b.text(1, "agent")
	b.message(3, func(s *pb) {
		for i, v := range []string{nameMark, "linux", "ubuntu", "debian", "22.04"} {
			s.text(protowire.Number(i+1), v)
		}
		s.message(6, func(n *pb) {
			for _, card := range [][]string{{"lo", "", "127.0.0.1/8", "::1/128"}, {"eth0", "02:42:ac:11:00:02", "172.17.0.2/16",
				"fe80::42:acff:fe11:2/64"},
				{"docker0", "02:42:5d:1c:7e:90", "172.18.0.1/16", "fe80::42:5dff:fe1c:7e90/64"}} {
				n.message(1, func(i *pb) {
					i.text(1, card[0])
					i.text(2, card[1])
					i.text(3, card[2])
					i.text(3, card[3])
				})
			}
		})
		s.text(7, "amd64")
		s.text(9, "glibc")
		s.text(13, "hard")
	})
	b.text(4, subscription)
	b.text(4, "entity:"+nameMark)
	b.number(5, timeMark)
	b.message(7, func(*pb) {}) // agents write it always
	b.text(11, "agent")
	for _, secret := range []string{"password", "passwd", "pass", "api_key", "api_token", "access_key", "secret_key",
		"private_key", "secret"} {
		b.text(13, secret)
	}
	b.meta(14, nameMark, namespace)
	b.text(15, "6.12.0")
}

// makeTemplate makes the message and finds the places that differ in it.
func makeTemplate(kind string, build func(*pb)) template {
	var body pb
	build(&body)
	payload := kind + "\n" + string(body)
	var t template
	t.frame = binary.BigEndian.AppendUint16([]byte{0x82, 0x80 | 126}, uint16(len(payload)))
	t.frame = append(t.frame, 0, 0, 0, 0) // the mask
	t.frame = append(t.frame, payload...)
	number := func(v uint64) string { return string(protowire.AppendVarint(nil, v)) }
	t.names, t.times, t.since = places(t.frame, nameMark), places(t.frame, number(timeMark)),
		places(t.frame, number(issuedMark))
	t.seq, t.id, t.sent = -1, -1, -1
	for mark, at := range map[string]*int{number(seqMark): &t.seq, idMark: &t.id} {
		*at = places(t.frame, mark)[0]
	}
	if at := places(t.frame, sentMark); len(at) == 1 {
		t.sent = at[0] + len(sentMark) - digits
	}
	return t
}

func places(frame []byte, mark string) (list []int) {
	for from := 0; ; {
		i := strings.Index(string(frame[from:]), mark)
		if i < 0 {
			return list
		}
		list = append(list, from+i)
		from += i + len(mark)
	}
}

// put appends the message of one agent.
func (t *template) put(out []byte, name string, now int64, nanos, issued int64, seq uint32) []byte {
	at := len(out)
	out = append(out, t.frame...)
	b := out[at:]
	for _, i := range t.names {
		copy(b[i:], name)
	}
	for _, i := range t.times {
		putVarint(b[i:], uint64(now))
	}
	for _, i := range t.since {
		putVarint(b[i:], uint64(issued))
	}
	putVarint(b[t.seq:], uint64(seq))
	binary.LittleEndian.PutUint64(b[t.id:], rand.Uint64())
	binary.LittleEndian.PutUint64(b[t.id+8:], rand.Uint64())
	if t.sent >= 0 {
		for i := t.sent + digits - 1; i >= t.sent; i-- {
			b[i] = byte('0' + nanos%10)
			nanos /= 10
		}
	}
	return out
}

// putVarint writes 35 bits in five bytes.
func putVarint(b []byte, v uint64) {
	for i := range 4 {
		b[i] = byte(v>>(7*i)) | 0x80
	}
	b[4] = byte(v >> 28 & 0x7f)
}

var errRequest = errors.New("a check request that cannot be read")

// readRequest returns which check a request is for, and when it was issued.
func readRequest(b []byte) (name string, issued int64, err error) {
	config, issuedField, err := field(b, 1, 4)
	if err != nil {
		return "", 0, err
	}
	meta, _, err := field(config, 26, 0)
	if err != nil {
		return "", 0, err
	}
	text, _, err := field(meta, 1, 0)
	return string(text), int64(issuedField), err
}

// field finds the bytes of one field and the number of another one.
func field(b []byte, text, number protowire.Number) (found []byte, v uint64, err error) {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return nil, 0, fmt.Errorf("%w: %w", errRequest, protowire.ParseError(size))
		}
		b = b[size:]
		if size = protowire.ConsumeFieldValue(n, kind, b); size < 0 {
			return nil, 0, fmt.Errorf("%w: %w", errRequest, protowire.ParseError(size))
		}
		switch {
		case n == text && kind == protowire.BytesType:
			found, _ = protowire.ConsumeBytes(b)
		case n == number && kind == protowire.VarintType:
			v, _ = protowire.ConsumeVarint(b)
		}
		b = b[size:]
	}
	return found, v, nil
}
