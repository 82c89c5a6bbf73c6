// Package hottest asks the short path and the long path of an API the same, in tests: random requests as bytes, each
// sent to two front doors of two equal states, and the answers compared. A seed repeats a run.
//
// It starts no goroutines. A Pair is for one goroutine at a time.
package hottest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Pair is the two front doors.
type Pair struct {
	// Short is the address of the short path with net/http behind it, Long that of net/http alone.
	Short, Long string
	// Same blanks what two equal states answer differently; nil is nothing.
	Same func(body []byte) []byte

	short, long *line
}

// Mark has the answers of net/http told from those of the short path: both front doors serve the handler that it
// returns.
func Mark(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(mark, "net/http")
		next.ServeHTTP(w, r)
	})
}

const mark = "X-Answered-By"

// line is a connection that is kept.
type line struct {
	net.Conn
	in *bufio.Reader
}

func (l *line) close() {
	if l != nil {
		_ = l.Close()
	}
}

const answerWithin = 60 * time.Second

// CompareMany compares as many random requests as asked for, and fails when the short path serves fewer than least of
// them: a path that hands everything on differs in nothing.
func (p *Pair) CompareMany(t *testing.T, words Words, seed, stream uint64, requests, least int) {
	t.Helper()
	served := 0
	r := rand.New(rand.NewPCG(seed, stream))
	for range requests {
		if p.Compare(t, words.Request(r)) {
			served++
		}
	}
	t.Logf("seed %d: %d requests, %d served by the short path", seed, requests, served)
	if served < least {
		t.Errorf("the short path served only %d of %d", served, requests)
	}
}

// Close closes the connections.
func (p *Pair) Close() { p.short.close(); p.long.close() }

// Compare sends one request to both and fails the test where the answers differ.
func (p *Pair) Compare(t testing.TB, raw []byte) (served bool) {
	t.Helper()
	short, served, err := p.ask(&p.short, p.Short, raw)
	if err != nil {
		t.Fatalf("short path: %v\n%q", err, cut(raw))
	}
	if !served && p.short != nil { // the connection is net/http's for good
		p.short.close()
		p.short = nil
	}
	long, _, err := p.ask(&p.long, p.Long, raw)
	if err != nil {
		t.Fatalf("long path: %v\n%q", err, cut(raw))
	}
	if short != long && !(short == torn && refuses(long)) && !(long == torn && refuses(short)) {
		t.Fatalf("the paths differ about (served by the short path: %v)\n%q\nshort: %s\nlong:  %s", served, cut(raw),
			short, long)
	}
	return served
}

// torn is what is seen of an answer that came before the request was read: the connection ends with it, and the
// system may drop it.
const torn = "closed"

// refuses is whether an answer refuses a request without having read it, and ends the connection.
func refuses(text string) bool {
	return (strings.HasPrefix(text, "HTTP/1.1 4") || strings.HasPrefix(text, "HTTP/1.1 50")) && strings.Contains(text,
		" true\n")
}

func cut(raw []byte) []byte { return raw[:min(len(raw), 600)] }

// ask sends a request on the kept connection, or a new one where that has ended.
func (p *Pair) ask(kept **line, addr string, raw []byte) (text string, short bool, err error) {
	if *kept == nil {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			return "", false, err
		}
		*kept = &line{nc, bufio.NewReader(nc)}
	}
	l := *kept
	if err := l.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return "", false, err
	}
	if _, err := l.Write(raw); err != nil {
		l.close()
		*kept = nil
		return torn, false, nil
	}
	method, _, _ := bytes.Cut(raw, []byte{' '})
	text, short, ends, err := p.read(l.in, string(method))
	if ends || err != nil || l.in.Buffered() > 0 {
		l.close()
		*kept = nil
	}
	return text, short, err
}

func (p *Pair) read(in *bufio.Reader, method string) (text string, short, ends bool, err error) {
	var resp *http.Response
	for resp == nil || resp.StatusCode == http.StatusContinue {
		if resp, err = http.ReadResponse(in, &http.Request{Method: method}); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
				return torn, false, true, nil
			}
			return "", false, true, err
		}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrUnexpectedEOF) {
		return torn, false, true, nil
	}
	if err != nil {
		return "", false, true, err
	}
	if p.Same != nil {
		body = p.Same(body)
		resp.Header.Del("Content-Length") // of what was blanked
		resp.ContentLength = min(resp.ContentLength, 0)
	}
	short = resp.Header.Get(mark) == ""
	resp.Header.Del(mark)
	resp.Header.Del("Date")
	var b strings.Builder
	fmt.Fprintln(&b, resp.Proto, resp.Status, resp.ContentLength, resp.TransferEncoding, resp.Close)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		fmt.Fprintf(&b, "%s: %q\n", name, resp.Header[name])
	}
	fmt.Fprintf(&b, "%q", body)
	return b.String(), short, resp.Close, nil
}

// Words are what requests to one API are made of.
type Words struct {
	// Paths, Queries, Headers (whole lines) and Bodies are picked from, and now and then damaged.
	Paths, Queries, Headers, Bodies []string
}

// Common headers that mean something to HTTP itself.
var common = []string{"Accept: */*", "Accept-Encoding: gzip", "Accept-Encoding: deflate, gzip",
	"Accept-Encoding: gzip;q=0", "Accept-Encoding: identity", "Accept-Encoding:", "Accept-Encoding: GZIP",
	"Accept-Encoding: gzip, gzip;q=0", "accept-encoding: x-gzip", "User-Agent: curl/8", "User-Agent:",
	"Content-Type: application/json", "Content-Type: application/x-www-form-urlencoded",
	"content-type: text/plain; charset=utf-8",
	"Connection: keep-alive", "Connection: close", "connection: Keep-Alive", "Connection: upgrade",
	"Connection: keep-alive, x", "Expect: 100-continue", "Upgrade: h2c", "Host: other", "Host: x:80", "Cookie: a=b",
	"Cache-Control: max-age=0", "Cache-Control: no-cache",
	"X-Forwarded-For: 10.0.0.1", "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
	"Range: bytes=0-1", "If-None-Match: *", "Accept: text/html", "Origin: http://x", "Authorization:",
	"Authorization: Basic eDp5",
	"X-Odd: \x7f", "X-Odd: \xff", " folded: x", "X-No-Colon", ": none", "X Space: y", "Trailer: X", "Content-Length: 0",
	"Content-Length: +0", "Transfer-Encoding: chunked", "Transfer-Encoding: identity", "Te: trailers"}

// Request makes a random request, whole as HTTP counts it: it does not wait for more.
func (w *Words) Request(r *rand.Rand) []byte {
	method := pick(r, "GET", "GET", "GET", "GET", "PUT", "PUT", "PUT", "POST")
	if r.IntN(30) == 0 {
		method = pick(r, "DELETE", "HEAD", "OPTIONS", "PATCH", "LIST", "SCAN", "get", "TRACE", "GETS")
	}
	target := pick(r, w.Paths...)
	if r.IntN(25) == 0 {
		target = damage(r, target)
	}
	if n := r.IntN(6); n < 2 && len(w.Queries) > 0 {
		target += "?" + pick(r, w.Queries...)
		if n == 0 {
			target += "&" + pick(r, w.Queries...)
		}
	}
	if r.IntN(50) == 0 {
		target = damage(r, target)
	}
	var lines []string
	for range r.IntN(4) {
		if r.IntN(3) == 0 {
			lines = append(lines, pick(r, common...))
		} else if len(w.Headers) > 0 {
			lines = append(lines, pick(r, w.Headers...))
		}
	}
	body := ""
	if method != "GET" && r.IntN(8) != 0 || r.IntN(40) == 0 {
		if body = pick(r, w.Bodies...); r.IntN(15) == 0 {
			body = damage(r, body)
		}
	}
	version := "HTTP/1.1"
	if r.IntN(80) == 0 {
		version = pick(r, "HTTP/1.0", "HTTP/1.2", "http/1.1", "HTTP/2.0", "HTTP/1.1 ")
	}
	return Assemble(method, target, version, lines, body)
}

// Assemble writes a request down. A host and the length of the body are added where the lines have none.
func Assemble(method, target, version string, lines []string, body string) []byte {
	has := func(name string) bool {
		return slices.ContainsFunc(lines, func(l string) bool {
			return len(l) > len(name) && strings.EqualFold(l[:len(name)+1], name+":")
		})
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s\r\n", method, target, version)
	if !has("host") {
		b.WriteString("Host: corbel\r\n")
	}
	chunked := has("transfer-encoding")
	if has("content-length") { // of none, or refused: a body would be another request
		body = ""
	}
	for _, l := range lines {
		b.WriteString(strings.NewReplacer("\n", "", "\r", "").Replace(l) + "\r\n")
	}
	if body != "" && !chunked {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	switch {
	case chunked && body != "":
		fmt.Fprintf(&b, "%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	case chunked:
		b.WriteString("0\r\n\r\n")
	default:
		b.WriteString(body)
	}
	return b.Bytes()
}

// Sound assembles a request of a fuzzer's, whose header lines are parted by newlines; false: a server might wait for
// more of it.
func Sound(method, target, headers, body string) (raw []byte, whole bool) {
	if method == "" || strings.ContainsAny(method+target, "\r\n") {
		return nil, false
	}
	var lines []string
	for line := range strings.Lines(headers) {
		line = strings.Trim(line, "\r\n")
		if name, _, _ := strings.Cut(strings.ToLower(line), ":"); line == "" || strings.Contains(name, "content-length") ||
			strings.Contains(name, "transfer-encoding") {
			return nil, false
		}
		lines = append(lines, line)
	}
	return Assemble(method, target, "HTTP/1.1", lines, body), true
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

// damage changes a text in one place.
func damage(r *rand.Rand, s string) string {
	at := r.IntN(len(s) + 1)
	switch r.IntN(6) {
	case 0:
		return s[:at] + pick(r, "%61", "%2F", "%2f", "%00", "%zz", "%", "%E2%98%83", "%FF", "+", ";", "&", "=", "#", "//",
			"/./", "/../", "~", "\\", "\"", "<", "{", "é", "\t", "a b") + s[at:]
	case 1:
		return s[:at]
	case 2:
		return s[at:]
	case 3:
		return s[:at] + strings.Repeat(pick(r, "x", "/", "ab/"), r.IntN(3000)) + s[at:]
	case 4:
		return strings.ToUpper(s)
	}
	return s + pick(r, "/", "//", ".", "?", "?x", "&")
}
