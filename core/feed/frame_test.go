package feed

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"corbel.dev/corbel/core/framing"
	"corbel.dev/corbel/kit/errkind"
)

// samples are one frame of each type, encoded and as decoded.
func samples() map[string]struct {
	frame []byte
	want  message
} {
	type sample = struct {
		frame []byte
		want  message
	}
	beat := heartbeat{generation: 1 << 63, known: 900, sent: 899, lag: 1500 * time.Millisecond, now: -5}
	head := valueHead{id: 7, generation: 3, index: 1 << 40, at: 12345, total: 5}
	none := valueHead{id: 8, index: 2, total: -1}
	return map[string]sample{
		"welcome": {welcome{1, time.Second}.append(nil), message{kind: frameWelcome, welcome: welcome{1, time.Second}}},
		"value": {head.append(nil, []byte("hello")), message{kind: frameValue, id: 7, value: head,
			body: []byte("hello")}},
		"part":    {head.append(nil, []byte("he")), message{kind: frameValue, id: 7, value: head, body: []byte("he")}},
		"nothing": {none.append(nil, nil), message{kind: frameValue, id: 8, value: none, body: []byte{}}},
		"empty": {valueHead{id: 8, index: 2}.append(nil, nil),
			message{kind: frameValue, id: 8, value: valueHead{id: 8, index: 2}, body: []byte{}}},
		"chunk":     {appendChunk(nil, []byte("rest")), message{kind: frameChunk, body: []byte("rest")}},
		"unchanged": {appendUnchanged(nil, 9), message{kind: frameUnchanged, id: 9}},
		"gone": {appendGone(nil, 9, errkind.New(errkind.Denied, "no")),
			message{kind: frameGone, id: 9, err: errkind.New(errkind.Denied, "no")}},
		"heartbeat": {beat.append(nil), message{kind: frameHeartbeat, beat: beat}},
		"bye":       {appendBye(nil, errors.New("x")), message{kind: frameBye, err: errkind.New(errkind.Internal, "x")}},
		"hello":     {hello{1, "n", "t"}.append(nil), message{kind: frameHello, hello: hello{1, "n", "t"}}},
		"follow": {follow{4, 3, 2, "s", "t"}.append(nil),
			message{kind: frameFollow, id: 4, follow: follow{4, 3, 2, "s", "t"}}},
		"unfollow": {appendUnfollow(nil, 4), message{kind: frameUnfollow, id: 4}},
	}
}

func TestFramesSurvive(t *testing.T) {
	for name, s := range samples() {
		t.Run(name, func(t *testing.T) {
			in := framing.NewReader(iotest.OneByteReader(bytes.NewReader(s.frame)), 16, maxFrameBytes)
			kind, p, _, err := in.Next()
			if err != nil {
				t.Fatal(err)
			}
			var m message
			if err := decode(kind, p, &m); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(m, s.want) {
				t.Errorf("got  %+v\nwant %+v", m, s.want)
			}
			if _, _, _, err := in.Next(); err != io.EOF {
				t.Errorf("after the frame: %v", err)
			}
			for cut := 1; cut < len(s.frame); cut++ {
				in := framing.NewReader(bytes.NewReader(s.frame[:cut]), 16, maxFrameBytes)
				if _, _, _, err := in.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("cut after %d bytes: %v", cut, err)
				}
			}
		})
	}
}

func TestBadFramesAreRefused(t *testing.T) {
	head := func(t frameType, p ...byte) []byte {
		b, mark := framing.Begin(nil, t)
		return framing.End(append(b, p...), mark)
	}
	for name, whole := range map[string][]byte{
		"unknown type":         head(200),
		"id 0":                 head(frameUnchanged, 0),
		"no id":                head(frameUnfollow),
		"large id":             head(frameUnchanged, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		"empty chunk":          head(frameChunk),
		"more than the total":  valueHead{id: 1, total: 1}.append(nil, []byte("ab")),
		"body of nothing":      valueHead{id: 1, total: -1}.append(nil, []byte("ab")),
		"value without a part": valueHead{id: 1, total: 9}.append(nil, nil),
		"varint that ends":     head(frameValue, 1, 0x80),
		"too long":             {byte(frameChunk), 1, 0, 1},
	} {
		var m message
		in := framing.NewReader(bytes.NewReader(append(whole, make([]byte, 1<<17)...)), 16, maxFrameBytes)
		kind, p, _, err := in.Next()
		if err == nil {
			err = decode(kind, p, &m)
		}
		if !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLongNamesAreInvalid: a subject beyond its limit arrives as none, which is refused, and not cut short.
func TestLongNamesAreInvalid(t *testing.T) {
	var m message
	_, p, _, err := framing.NewReader(bytes.NewReader(follow{id: 1,
		subject: strings.Repeat("x", maxSubjectBytes+1)}.append(nil)), 16, maxFrameBytes).Next()
	if err == nil {
		err = decode(frameFollow, p, &m)
	}
	if err != nil || m.follow.subject != "" {
		t.Errorf("%v, subject of %d bytes", err, len(m.follow.subject))
	}
}

// encode is the inverse of decode.
func encode(m *message) []byte {
	switch m.kind {
	case frameWelcome:
		return m.welcome.append(nil)
	case frameValue:
		return m.value.append(nil, m.body)
	case frameChunk:
		return appendChunk(nil, m.body)
	case frameUnchanged:
		return appendUnchanged(nil, m.id)
	case frameUnfollow:
		return appendUnfollow(nil, m.id)
	case frameGone:
		return appendGone(nil, m.id, m.err)
	case frameBye:
		return appendBye(nil, m.err)
	case frameHeartbeat:
		return m.beat.append(nil)
	case frameHello:
		return m.hello.append(nil)
	default:
		return m.follow.append(nil)
	}
}

// FuzzFrames reads any bytes as frames of either direction: what decodes means the same
// after being encoded again, and the parts of a value never grow beyond what it announced.
func FuzzFrames(f *testing.F) {
	var all []byte
	for _, s := range samples() {
		f.Add(s.frame)
		all = append(all, s.frame...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		in := framing.NewReader(bytes.NewReader(b), 64, maxFrameBytes)
		var parts assembly
		for {
			kind, p, owned, err := in.Next()
			if err != nil {
				return
			}
			if len(p) > maxFrameBytes {
				t.Fatalf("a frame of %d bytes", len(p))
			}
			var m, again message
			if decode(kind, p, &m) != nil {
				continue
			}
			whole := encode(&m)
			if err := decode(kind, whole[framing.HeadBytes:], &again); err != nil {
				t.Fatalf("type %d, encoded again: %v", kind, err)
			}
			if m.err != nil && errkind.Text(m.err) == errkind.Text(again.err) && errkind.Of(m.err) == errkind.Of(again.err) {
				m.err, again.err = nil, nil
			}
			if !reflect.DeepEqual(m, again) {
				t.Fatalf("got  %+v\nfrom %+v", again, m)
			}
			if kind == frameValue || kind == frameChunk {
				if parts.take(&m, owned, 1<<20) == nil && len(parts.body) > max(0, parts.head.total) {
					t.Fatalf("%d bytes of %d", len(parts.body), parts.head.total)
				}
				if parts.complete() {
					parts = assembly{}
				}
			}
		}
	})
}
