package h2

import (
	"strconv"
	"strings"
	"time"
)

// Code is a gRPC status code.
type Code uint8

// The codes that servers give.
const (
	OK                 Code = 0
	Canceled           Code = 1
	Unknown            Code = 2
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
	Unauthenticated    Code = 16
)

// Status is an error with a gRPC code.
type Status struct {
	Code    Code
	Message string
}

// Error implements error.
func (s *Status) Error() string { return s.Message }

// Metadata is what a client sent beside its messages: names in lower case and values, alternating.
type Metadata []string

// Get returns the first value of a name, or "".
func (m Metadata) Get(name string) string {
	for i := 0; i+1 < len(m); i += 2 {
		if m[i] == name {
			return m[i+1]
		}
	}
	return ""
}

// maxStatusText bounds grpc-message: clients limit the size of their headers too.
const maxStatusText = 1024

// appendHeader appends a header field that no table keeps, so that connections
// have no encoder state. The value is shorter than 2^21 bytes.
func appendHeader(b []byte, name, value string) []byte {
	b = append(b, 0) // literal without indexing, new name
	b = appendLength(b, len(name))
	b = append(b, name...)
	b = appendLength(b, len(value))
	return append(b, value...)
}

// appendLength appends an HPACK integer with a 7-bit prefix, without Huffman coding.
func appendLength(b []byte, n int) []byte {
	if n < 127 {
		return append(b, byte(n))
	}
	b = append(b, 127)
	n -= 127
	for ; n >= 128; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// responseHeaders are ":status 200" from the static table and the content type.
var responseHeaders = appendHeader([]byte{0x88}, "content-type", "application/grpc")

func appendTrailers(b []byte, code Code, message string) []byte {
	b = appendHeader(b, "grpc-status", strconv.Itoa(int(code)))
	if message != "" {
		b = appendHeader(b, "grpc-message", percent(message))
	}
	return b
}

// percent encodes a status message as gRPC wants it.
func percent(s string) string {
	if len(s) > maxStatusText {
		s = strings.ToValidUTF8(s[:maxStatusText], "")
	}
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			out.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// timeout reads a grpc-timeout, zero for none or one that is not well formed.
func timeout(s string) time.Duration {
	if len(s) < 2 || len(s) > 9 {
		return 0
	}
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 64)
	if err != nil {
		return 0
	}
	unit, ok := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second,
		'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}[s[len(s)-1]]
	if !ok {
		return 0
	}
	const longest = 1 << 62
	if n > uint64(longest/unit) {
		return longest
	}
	return max(1, time.Duration(n)*unit)
}
