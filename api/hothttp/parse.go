package hothttp

import "bytes"

// Method is one of the methods that the hot path knows.
type Method uint8

// The methods. Others are handed over.
const (
	GET Method = iota + 1
	PUT
	POST
)

// Request is one parsed request. All slices point into the read buffer and are
// valid until Serve returns.
type Request struct {
	Method Method
	// Path is the raw path: printable ASCII without '%', so it needs no decoding.
	Path []byte
	// Query is what follows '?', raw; nil without one.
	Query []byte
	// Token is the value of X-Consul-Token, VaultToken and NomadToken those of X-Vault-Token and X-Nomad-Token; nil
	// without the header.
	Token, VaultToken, NomadToken []byte
	// Gzip tells that the client accepts gzip.
	Gzip bool
	// Body is the whole body.
	Body []byte
}

// Limits of what the hot path takes on; larger requests are handed over.
const (
	readBytes = 16 << 10
	maxBody   = 8 << 10
	maxHeads  = 32
)

// verdict tells what parse found.
type verdict uint8

const (
	complete   verdict = iota // a request, n bytes long
	incomplete                // more bytes are needed
	unusual                   // not for the hot path
)

var (
	version11  = []byte("HTTP/1.1")
	methodGet  = []byte("GET")
	methodPut  = []byte("PUT")
	methodPost = []byte("POST")
)

// parse reads the first request of buf. It takes only what it fully
// understands: one Host, known headers, a plain path, HTTP/1.1.
func parse(buf []byte, r *Request) (n int, v verdict) {
	*r = Request{}
	end := bytes.IndexByte(buf, '\n')
	if end < 0 {
		return 0, incomplete
	}
	if !r.requestLine(buf[:end]) {
		return 0, unusual
	}
	rest := buf[end+1:]
	length, host := -1, false
	for heads := 0; ; heads++ {
		end = bytes.IndexByte(rest, '\n')
		if end < 0 {
			return 0, incomplete
		}
		line := rest[:end]
		rest = rest[end+1:]
		if len(line) == 1 && line[0] == '\r' {
			break
		}
		if heads == maxHeads || len(line) < 2 || line[len(line)-1] != '\r' {
			return 0, unusual
		}
		if !r.header(line[:len(line)-1], &length, &host) {
			return 0, unusual
		}
	}
	length = max(length, 0)
	if !host || length > maxBody || (r.Method == GET && length > 0) {
		return 0, unusual
	}
	if len(rest) < length {
		return 0, incomplete
	}
	r.Body = rest[:length:length]
	return len(buf) - len(rest) + length, complete
}

func (r *Request) requestLine(line []byte) bool {
	method, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return false
	}
	switch {
	case bytes.Equal(method, methodGet):
		r.Method = GET
	case bytes.Equal(method, methodPut):
		r.Method = PUT
	case bytes.Equal(method, methodPost):
		r.Method = POST
	default:
		return false
	}
	target, proto, ok := bytes.Cut(rest, []byte{' '})
	if !ok || len(proto) != len(version11)+1 || !bytes.HasPrefix(proto, version11) || proto[len(version11)] != '\r' {
		return false
	}
	if len(target) == 0 || target[0] != '/' {
		return false
	}
	for _, c := range target {
		// '%' needs decoding, '#' and controls are errors: net/http's business.
		if c <= ' ' || c >= 0x7f || c == '%' || c == '#' {
			return false
		}
	}
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		r.Path, r.Query = target[:i], target[i+1:]
	} else {
		r.Path = target
	}
	return true
}

// header takes one known header line; false for any other.
func (r *Request) header(line []byte, length *int, host *bool) bool {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return false
	}
	name, value := line[:colon], trim(line[colon+1:])
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	switch len(name) {
	case len("Host"):
		if !equalFold(name, "host") || *host || len(value) == 0 || !plainHost(value) {
			return false
		}
		*host = true
		return true
	case len("Accept"):
		return equalFold(name, "accept")
	case len("Connection"): // and User-Agent
		if equalFold(name, "connection") {
			return equalFold(value, "keep-alive")
		}
		return equalFold(name, "user-agent")
	case len("Content-Type"):
		return equalFold(name, "content-type")
	case len("Content-Length"): // and X-Consul-Token
		if equalFold(name, "x-consul-token") {
			if r.Token != nil {
				return false
			}
			r.Token = given(value)
			return true
		}
		return equalFold(name, "content-length") && decimal(value, length)
	case len("X-Vault-Token"): // and X-Nomad-Token
		if equalFold(name, "x-nomad-token") {
			if r.NomadToken != nil {
				return false
			}
			r.NomadToken = given(value)
			return true
		}
		if !equalFold(name, "x-vault-token") || r.VaultToken != nil {
			return false
		}
		r.VaultToken = given(value)
		return true
	case len("Accept-Encoding"): // and X-Vault-Request
		if equalFold(name, "x-vault-request") {
			return equalFold(value, "true")
		}
		if !equalFold(name, "accept-encoding") {
			return false
		}
		// Only the plain list that clients send by themselves; weights are net/http's path.
		if bytes.IndexByte(value, ';') >= 0 {
			return false
		}
		for name := range bytes.SplitSeq(value, []byte{','}) {
			r.Gzip = r.Gzip || string(trim(name)) == "gzip"
		}
		return true
	}
	return false
}

func plainHost(value []byte) bool {
	for _, c := range value {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9',
			c == '.', c == '-', c == ':', c == '[', c == ']', c == '_':
		default:
			return false
		}
	}
	return true
}

// decimal reads a Content-Length; a second one is refused.
func decimal(value []byte, out *int) bool {
	if *out >= 0 || len(value) == 0 || len(value) > 6 {
		return false
	}
	n := 0
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + int(c-'0')
	}
	*out = n
	return true
}

// given is a header's value, not nil even when it is empty: what is there twice is net/http's to judge, the empty one
// first too.
func given(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

func trim(b []byte) []byte { return bytes.Trim(b, " \t") }

// equalFold compares with a lower-case ASCII word.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
