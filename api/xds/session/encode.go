package session

import (
	"hash/fnv"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Sink takes the encoded response in pieces: bytes that are copied, and bytes
// that are shared by all who get them and must not be changed.
type Sink interface {
	// Private returns a buffer to append to; Commit ends the piece.
	Private() []byte
	Commit([]byte)
	Shared([]byte)
}

// Encode writes the response as a DeltaDiscoveryResponse, or with world as a
// DiscoveryResponse. The resources' bytes are passed on as they are.
func (r *Response) Encode(world bool, to Sink) {
	b := to.Private()
	if world {
		b = appendText(b, 1, r.version())
	}
	for _, res := range r.Resources {
		body := res.Body
		if world {
			body = res.Any
		}
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(body)))
		to.Commit(b)
		to.Shared(body)
		b = to.Private()
	}
	b = appendText(b, 4, r.Type.URL())
	b = protowire.AppendTag(b, 5, protowire.BytesType)
	b = appendNonce(b, r.Nonce)
	for _, name := range r.Removed {
		b = appendText(b, 6, name)
	}
	to.Commit(b)
}

func appendText(b []byte, num protowire.Number, text string) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, text)
}

// appendNonce appends the length and the hexadecimal digits.
func appendNonce(b []byte, nonce uint32) []byte {
	at := len(b)
	b = append(b, 0)
	b = strconv.AppendUint(b, uint64(nonce), 16)
	b[at] = byte(len(b) - at - 1)
	return b
}

// version names the content, so that equal content has one name on all servers.
func (r *Response) version() string {
	h := fnv.New64a()
	for _, res := range r.Resources {
		_, _ = h.Write([]byte(res.Name))
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(res.Version))
		_, _ = h.Write([]byte{0})
	}
	return strconv.FormatUint(h.Sum64(), 16)
}
