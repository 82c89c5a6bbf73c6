package radius

import (
	"context"
	"crypto/hmac"
	"crypto/md5" // RADIUS has no other
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Codes and attributes of RFC 2865, and of RFC 3579 the last.
const (
	codeRequest   = 1
	codeAccept    = 2
	codeReject    = 3
	codeChallenge = 11

	attrUserName     = 1
	attrUserPassword = 2
	attrNASPort      = 5
	attrNASID        = 32
	attrMessageAuth  = 80

	headBytes     = 20
	authBytes     = 16
	maxBytes      = 4096
	valueMost     = 253
	passwordBytes = 128
)

// question is one Access-Request.
type question struct {
	user, password, secret, nasID string
	nasPort                       uint32
}

// packet encodes it. request is its authenticator: 16 random bytes.
func (q *question) packet(id byte, request [authBytes]byte) []byte {
	b := append([]byte{codeRequest, id, 0, 0}, request[:]...)
	b = attribute(b, attrMessageAuth, make([]byte, authBytes)) // first: as the advice against forged answers has it
	b = attribute(b, attrUserName, []byte(q.user))
	b = attribute(b, attrUserPassword, hidden(q.password, q.secret, request))
	if q.nasID != "" {
		b = attribute(b, attrNASID, []byte(q.nasID))
	}
	b = attribute(b, attrNASPort, binary.BigEndian.AppendUint32(nil, q.nasPort))
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	copy(b[headBytes+2:], messageAuth(q.secret, b))
	return b
}

func attribute(b []byte, kind byte, value []byte) []byte {
	return append(append(b, kind, byte(len(value)+2)), value...)
}

// hidden is a password as User-Password has it.
func hidden(password, secret string, request [authBytes]byte) []byte {
	out := make([]byte, max(authBytes, (len(password)+authBytes-1)/authBytes*authBytes))
	copy(out, password)
	last := request[:]
	for at := 0; at < len(out); at += authBytes {
		sum := md5.Sum(append([]byte(secret), last...))
		subtle.XORBytes(out[at:at+authBytes], out[at:at+authBytes], sum[:])
		last = out[at : at+authBytes]
	}
	return out
}

// messageAuth is the Message-Authenticator of a packet whose own is zero.
func messageAuth(secret string, packet []byte) []byte {
	mac := hmac.New(md5.New, []byte(secret))
	mac.Write(packet)
	return mac.Sum(nil)
}

var (
	errForeign = errors.New("it is no answer to this request, or the shared secret is another")
	errBare    = errkind.New(errkind.Unavailable, "the RADIUS server's answer has no Message-Authenticator, without "+
		"which anybody on the way can forge it (CVE-2024-3596): have the server send it, or write "+
		"require_message_authenticator=false to config")
)

// read judges a packet that came for a request, and gives its code.
func (q *question) read(packet []byte, id byte, request [authBytes]byte, signed bool) (code byte, err error) {
	if len(packet) < headBytes || packet[1] != id {
		return 0, errForeign
	}
	n := int(binary.BigEndian.Uint16(packet[2:]))
	if n < headBytes || n > len(packet) {
		return 0, errForeign
	}
	packet = packet[:n]
	var given [authBytes]byte
	copy(given[:], packet[4:headBytes])
	body := append([]byte(nil), packet...)
	copy(body[4:], request[:])
	sum := md5.Sum(append(append([]byte(nil), body...), q.secret...))
	if subtle.ConstantTimeCompare(sum[:], given[:]) != 1 {
		return 0, errForeign
	}
	authenticated := false
	for at := headBytes; at < n; {
		if at+2 > n || int(body[at+1]) < 2 || at+int(body[at+1]) > n {
			return 0, errForeign
		}
		value := body[at+2 : at+int(body[at+1])]
		if body[at] == attrMessageAuth {
			if len(value) != authBytes || authenticated {
				return 0, errForeign
			}
			said := append([]byte(nil), value...)
			clear(value)
			if !hmac.Equal(said, messageAuth(q.secret, body)) {
				return 0, errForeign
			}
			copy(value, said)
			authenticated = true
		}
		at += int(body[at+1])
	}
	if signed && !authenticated {
		return 0, errBare
	}
	return packet[0], nil
}

// ask sends a question until it is answered, every again, or ctx ends. What is no answer to it is passed over: anybody
// may send packets.
func (q *question) ask(ctx context.Context, address string, again time.Duration, signed bool) (code byte, err error) {
	var head [authBytes + 1]byte
	_, _ = rand.Read(head[:])
	id, request := head[0], [authBytes]byte(head[1:])
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", address)
	if err != nil {
		return 0, errkind.Errorf(errkind.Unavailable, "the RADIUS server %s cannot be asked: %w", address, err)
	}
	defer conn.Close()
	packet, in := q.packet(id, request), make([]byte, maxBytes)
	why := errors.New("it did not answer in time")
	const refusals = 2 // in a row: nobody listens there
	for refused := 0; ctx.Err() == nil && refused < refusals; {
		if _, err := conn.Write(packet); err != nil {
			why = err
		}
		until := time.Now().Add(again)
		if end, ok := ctx.Deadline(); ok && end.Before(until) {
			until = end
		}
		if err := conn.SetReadDeadline(until); err != nil {
			return 0, errkind.E(errkind.Unavailable, "radius", err)
		}
		for {
			n, err := conn.Read(in)
			if err != nil {
				var slow net.Error
				if errors.As(err, &slow) && slow.Timeout() {
					break
				}
				why, refused = err, refused+1
				rest(ctx, time.Until(until))
				break
			}
			refused = 0
			code, err := q.read(in[:n], id, request, signed)
			switch {
			case err == nil:
				return code, nil
			case errkind.Is(err, errkind.Unavailable):
				return 0, err
			}
			why = err
		}
	}
	return 0, errkind.Errorf(errkind.Unavailable, "the RADIUS server %s cannot be asked: %w: look at host, port, "+
		"secret, and whether it knows this client", address, why)
}

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (q *question) check() error {
	switch {
	case len(q.password) > passwordBytes:
		return fmt.Errorf("password: has more than %d bytes, which RADIUS cannot carry", passwordBytes)
	case len(q.user) > valueMost:
		return fmt.Errorf("username: has more than %d bytes, which RADIUS cannot carry", valueMost)
	}
	return nil
}
