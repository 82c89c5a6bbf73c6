package sidecars

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	frameHead   = 9
	messageHead = 5 // of a gRPC message: not compressed, and its length
	maxFrame    = 16384
	// maxMessage bounds a response that came in pieces.
	maxMessage = 16 << 20
	maxWindow  = 1<<31 - 1
	// defaultWindow is every window's size before settings and updates.
	defaultWindow = 65535
)

func appendFrameHead(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	b = append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(b, stream)
}

// appendMessage appends a DATA frame with one gRPC message. Requests are far
// smaller than a frame may be; one that is not is refused by the caller.
func appendMessage(b []byte, stream uint32, message []byte) []byte {
	b = appendFrameHead(b, messageHead+len(message), http2.FrameData, 0, stream)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	return append(b, message...)
}

// opening is what each connection sends first: windows as wide as they go, since
// a simulated sidecar has room for what it looks through, and no header table, so
// that one decoder serves all connections.
func opening() []byte {
	b := append([]byte(nil), http2.ClientPreface...)
	settings := []struct {
		id    http2.SettingID
		value uint32
	}{{http2.SettingHeaderTableSize, 0}, {http2.SettingEnablePush, 0}, {http2.SettingInitialWindowSize, maxWindow}}
	b = appendFrameHead(b, 6*len(settings), http2.FrameSettings, 0, 0)
	for _, s := range settings {
		b = binary.BigEndian.AppendUint16(b, uint16(s.id))
		b = binary.BigEndian.AppendUint32(b, s.value)
	}
	return appendWindow(b, maxWindow-defaultWindow)
}

func appendWindow(b []byte, n int) []byte {
	b = appendFrameHead(b, 4, http2.FrameWindowUpdate, 0, 0)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// headerBlock encodes the request's headers without the dynamic table: the same for every stream.
func headerBlock(authority, token string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"},
		{":path", "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"},
		{":authority", authority}, {"content-type", "application/grpc"}, {"te", "trailers"}, {"x-consul-token", token},
	} {
		if h[1] != "" {
			_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // a bytes.Buffer takes all
		}
	}
	return b.Bytes()
}

// errEnded says that the agent ended one stream, and why.
var errEnded = errors.New("the stream ended")

// readHeaders checks a block of response headers or trailers. An end of the
// stream is an error: a discovery stream has none.
func readHeaders(d *hpack.Decoder, flags http2.Flags, p []byte) error {
	if flags&http2.FlagHeadersEndHeaders == 0 {
		return fmt.Errorf("headers of more than one frame")
	}
	if flags&http2.FlagHeadersPadded != 0 || flags&http2.FlagHeadersPriority != 0 {
		return fmt.Errorf("headers with padding or priority")
	}
	list, err := d.DecodeFull(p)
	if err != nil {
		return fmt.Errorf("headers: %w", err)
	}
	status, code, text := "", "", ""
	for _, h := range list {
		switch h.Name {
		case ":status":
			status = h.Value
		case "grpc-status":
			code = h.Value
		case "grpc-message":
			text = h.Value
		}
	}
	if flags&http2.FlagHeadersEndStream != 0 || code != "" || status != "200" {
		return fmt.Errorf("%w: HTTP status %q, gRPC status %q: %s", errEnded, status, code, text)
	}
	return nil
}
