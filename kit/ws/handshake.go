package ws

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// acceptOf is what a server answers to a key (RFC 6455, section 4.2.2): a check that it speaks WebSocket, no secret.
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// check returns what is wrong with a request to upgrade.
func check(r *http.Request) error {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	switch {
	case r.Method != http.MethodGet:
		return errors.New("a WebSocket begins with GET")
	case !hasToken(r.Header, "Connection", "upgrade"), !hasToken(r.Header, "Upgrade", "websocket"):
		return errors.New("not a WebSocket handshake: the headers Connection and Upgrade do not ask for one")
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return errors.New("WebSocket version 13 is spoken here")
	case err != nil || len(key) != 16:
		return errors.New("Sec-WebSocket-Key is not 16 bytes in base64")
	}
	return nil
}

func hasToken(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for word := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(word), token) {
				return true
			}
		}
	}
	return false
}

// handshakeTime bounds the answer to a handshake.
const handshakeTime = 10 * time.Second

// Upgrade takes over the connection of a request; header is added to the answer, with a line for each value. After
// an error the request was answered (400). limits is kept and shared. The caller's handler may return.
func Upgrade(w http.ResponseWriter, r *http.Request, header http.Header, limits *Limits) (*Conn, error) {
	if err := check(r); err != nil {
		w.Header().Set("Sec-WebSocket-Version", "13")
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, err
	}
	nc, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "this connection cannot be taken over", http.StatusInternalServerError)
		return nil, err
	}
	var early []byte
	if n := buffered.Reader.Buffered(); n > 0 {
		early = make([]byte, n)
		_, _ = io.ReadFull(buffered.Reader, early) // it is there already
	}
	var b strings.Builder
	b.WriteString(
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
			acceptOf(r.Header.Get("Sec-WebSocket-Key")) + "\r\n")
	_ = header.Write(&b) // a Builder takes everything
	b.WriteString("\r\n")
	if err = nc.SetDeadline(time.Now().Add(handshakeTime)); err == nil {
		_, err = io.WriteString(nc, b.String())
	}
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	l := limits.orDefaults()
	return newConn(nc, &l, false, early), nil
}

// Refused is a server's answer that is no upgrade.
type Refused struct {
	Status int
	Body   string // up to 1 KiB of it
}

// Error implements error.
func (e *Refused) Error() string {
	return fmt.Sprintf("the server answered %d: %s", e.Status, strings.TrimSpace(e.Body))
}

// Dial connects to a ws or wss URL; header goes with the request. The error is a *Refused when the server says no.
func Dial(ctx context.Context, target string, header http.Header, config *tls.Config, limits *Limits) (*Conn,
	http.Header, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, nil, err
	}
	port := map[string]string{"ws": "80", "wss": "443"}[u.Scheme]
	if port == "" {
		return nil, nil, fmt.Errorf("%s: the scheme is neither ws nor wss", target)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, nil, err
	}
	if u.Scheme == "wss" {
		config = config.Clone()
		if config == nil {
			config = &tls.Config{}
		}
		if config.ServerName == "" {
			config.ServerName = u.Hostname()
		}
		nc = tls.Client(nc, config)
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c, answer, err := shake(nc, u, header, limits)
	if err != nil {
		return nil, nil, errors.Join(err, nc.Close(), ctx.Err())
	}
	if !stop() {
		return nil, nil, errors.Join(ctx.Err(), nc.Close())
	}
	return c, answer, nil
}

func shake(nc net.Conn, u *url.URL, header http.Header, limits *Limits) (*Conn, http.Header, error) {
	var random [16]byte
	_, _ = rand.Read(random[:])
	key := base64.StdEncoding.EncodeToString(random[:])
	r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: header.Clone()}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key} {
		r.Header.Set(name, value)
	}
	if err := r.Write(nc); err != nil {
		return nil, nil, err
	}
	const most = 16 << 10
	in := bufio.NewReaderSize(io.LimitReader(nc, most), 1<<10)
	answer, err := http.ReadResponse(in, r)
	if err != nil {
		return nil, nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Sec-WebSocket-Accept") != acceptOf(key) {
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // what came of it
		return nil, nil, &Refused{answer.StatusCode, string(body)}
	}
	early := make([]byte, in.Buffered())
	if _, err := io.ReadFull(in, early); err != nil {
		return nil, nil, err
	}
	l := limits.orDefaults()
	return newConn(nc, &l, true, early), answer.Header, nil
}
