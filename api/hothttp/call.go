package hothttp

import (
	"context"
	"net/netip"
	"strconv"
	"sync"
)

// Call is one request's place on its connection: what is answered, parked and
// told when the client vanishes. It is reused for the connection's next request.
type Call struct {
	conn *conn
}

// Remote is the address of the client; the zero value where it has none.
func (c *Call) Remote() netip.AddrPort { return c.conn.remote }

// Park announces that Reply will be called later. onGone runs once, on another
// goroutine, if the client vanishes or the server stops before that; it is not
// called after Reply. Call Park before anybody can learn of the Call.
func (c *Call) Park(onGone func()) {
	k := c.conn
	k.mu.Lock()
	k.parked, k.onGone = true, onGone
	k.mu.Unlock()
}

var joined = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// joinBytes is the size up to which a body is copied behind its head; larger
// ones go out as a second vector of the same system call.
const joinBytes = 8 << 10

// Reply answers the call. head is the status line and headers, each ended by
// CRLF, without Date, Content-Length and the empty line, which are added. head
// and body are only read, and not after Reply returns, but for the body of a
// parked call, which must never change.
//
// On the goroutine that runs Serve, Reply waits for a slow client up to the
// write timeout. On a parked call it never waits: what the socket does not take
// at once is sent by a goroutine of the connection. An error means that the
// client is gone.
func (c *Call) Reply(head, body []byte) error { return c.answer(head, body, false) }

// ReplyNoContent is Reply with a status that has no body and no length, like 204.
func (c *Call) ReplyNoContent(head []byte) error { return c.answer(head, nil, true) }

func (c *Call) answer(head, body []byte, none bool) error {
	p := joined.Get().(*[]byte)
	b := append((*p)[:0], head...)
	if none {
		b = append(append(b, dateHeader()...), "\r\n"...)
	} else {
		b = finishHead(b, len(body))
	}
	if len(body) <= joinBytes {
		b = append(b, body...)
		body = nil
	}
	err := c.conn.reply(b, body, false)
	*p = b
	joined.Put(p)
	return err
}

// joinRendered is the size up to which a shared answer's body is copied behind its
// head, once, so that each call it is given to costs a plain write.
const joinRendered = 256 << 10

// Rendered is one whole answer, head and body, that any number of calls may be
// given: nothing of it is copied for them. It never changes.
type Rendered struct{ head, body []byte }

// Render joins head and body (as for Reply) into an answer to be shared. It
// may keep body.
func Render(head, body []byte) Rendered {
	if len(body) <= joinRendered {
		b := finishHead(append(make([]byte, 0, len(head)+128+len(body)), head...), len(body))
		return Rendered{head: append(b, body...)}
	}
	b := finishHead(append(make([]byte, 0, len(head)+128), head...), len(body))
	return Rendered{head: b, body: body}
}

// ReplyRendered is Reply with an answer that is shared with other calls.
func (c *Call) ReplyRendered(r Rendered) error { return c.conn.reply(r.head, r.body, true) }

func finishHead(b []byte, bodyBytes int) []byte {
	b = append(b, dateHeader()...)
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(bodyBytes), 10)
	return append(b, "\r\n\r\n"...)
}

// reply sends head and body; shared tells that head, too, may be kept.
func (k *conn) reply(head, body []byte, shared bool) error {
	k.mu.Lock()
	if k.gone {
		k.mu.Unlock()
		return context.Canceled
	}
	k.out[0], k.out[1], k.writeErr = head, body, nil
	err := k.raw.Write(k.onWritable)
	if err == nil {
		err = k.writeErr
	}
	rest, tail := k.out[0], k.out[1]
	k.out = [2][]byte{}
	k.onGone = nil
	if err == nil && len(rest)+len(tail) > 0 {
		if k.parked {
			if !shared { // head is a pooled buffer: keep a copy of what is left of it
				rest = append([]byte(nil), rest...)
			}
			k.mu.Unlock()
			k.server.wg.Go(func() { k.answered(k.writeSlow(rest, tail)) })
			return nil
		}
		k.mu.Unlock()
		return k.answered(k.writeSlow(rest, tail))
	}
	k.parked = false // under the lock of the write: the client's next request finds it so
	k.endBehindLocked()
	k.mu.Unlock()
	if err != nil {
		k.shut()
	}
	return err
}

// answered lets the connection go on with its next request after a slow write, or ends it.
func (k *conn) answered(err error) error {
	k.mu.Lock()
	k.parked = false
	k.endBehindLocked()
	k.mu.Unlock()
	if err != nil {
		k.shut()
	}
	return err
}
