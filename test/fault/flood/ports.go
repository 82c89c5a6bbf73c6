package flood

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	floodBytes   = 31 << 20 // a body for secrets
	messageBytes = 7 << 20  // a message of an agent
	requestBytes = 3 << 20  // a request of a proxy
	discovery    = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
)

// send writes a head and a body of zeros, beside: who answers early does not read all of it. Slow ones keep the last
// byte.
func send(nc net.Conn, head string, body int, slow bool) {
	if slow {
		body--
	}
	go func() {
		_, err := io.WriteString(nc, head)
		piece := bytes.Repeat([]byte("0"), 1<<20)
		for left := body; left > 0 && err == nil; left -= len(piece) {
			_, err = nc.Write(piece[:min(left, len(piece))]) // it ends with the connection
		}
	}()
}

// answer reads an answer of HTTP; 503 without Retry-After is wrong.
func answer(ctx context.Context, nc net.Conn) (status int, got Outcome, err error) {
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, Held, nil
	case err != nil:
		return 0, Cut, nil
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusServiceUnavailable:
		if resp.Header.Get("Retry-After") == "" {
			return 0, "", fmt.Errorf("a refusal without Retry-After: %s", resp.Status)
		}
		return resp.StatusCode, Refused, nil
	case http.StatusInternalServerError:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // what is there of it says why
		if strings.Contains(string(text), "disk does not answer") {
			return resp.StatusCode, Stalled, nil
		}
		return 0, "", fmt.Errorf("%s: %s", resp.Status, text)
	}
	return resp.StatusCode, "", nil
}

// ask sends a request with a large body; statuses are those that are right besides 503.
func (f *flood) ask(ctx context.Context, i int, addr, head string, body int, slow bool,
	statuses map[int]Outcome) (Outcome, error) {
	nc, err := f.dial(ctx, i, addr)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	send(nc, head, body, slow)
	status, got, err := answer(ctx, nc)
	if err != nil || got != "" {
		return got, err
	}
	if got = statuses[status]; got == "" {
		return "", fmt.Errorf("an answer of %d to %.40q", status, head)
	}
	return got, nil
}

func (f *flood) pressSecrets(ctx context.Context, i int) (Outcome, error) {
	token := []string{"", f.root}[i/floodSources%2]
	return f.secret(ctx, i, token, i%2 == 1)
}

func (f *flood) secret(ctx context.Context, i int, token string, slow bool) (Outcome, error) {
	head := fmt.Sprintf("PUT /v1/cubbyhole/x HTTP/1.1\r\nHost: x\r\nX-Vault-Token: %s\r\nContent-Length: %d\r\n\r\n",
		token, floodBytes)
	right := map[int]Outcome{http.StatusBadRequest: Taken} // it is no JSON
	if token == "" {
		right = map[int]Outcome{http.StatusForbidden: Denied}
	}
	return f.ask(ctx, i, f.secrets, head, floodBytes, slow, right)
}

// large is one body that is sent to its end.
func (f *flood) large(ctx context.Context, i int, token string, slow bool) Outcome {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	got, err := f.secret(ctx, i, token, slow)
	if err != nil {
		return Outcome(err.Error())
	}
	return got
}

func (f *flood) pressCatalog(ctx context.Context, i int) (Outcome, error) {
	head := fmt.Sprintf("PUT /v1/kv/flood-%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", i, 500<<10)
	return f.ask(ctx, i, f.server.HTTP, head, 500<<10, i/floodSources%2 == 1, map[int]Outcome{http.StatusOK: Taken})
}

func (f *flood) pressMonitor(ctx context.Context, i int) (Outcome, error) {
	token, right := f.access, map[int]Outcome{http.StatusBadRequest: Taken}
	if i/floodSources%2 == 0 {
		token, right = "nobody", map[int]Outcome{http.StatusUnauthorized: Denied}
	}
	head := fmt.Sprintf("POST /api/core/v2/namespaces/default/checks HTTP/1.1\r\nHost: x\r\n"+
		"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", token, 500_000)
	return f.ask(ctx, i, f.server.Monitor, head, 500_000, i%2 == 1, right)
}

// pressReaders asks for a large value again and again, and reads nothing.
func (f *flood) pressReaders(ctx context.Context, i int) (Outcome, error) {
	nc, err := f.dial(ctx, i, f.server.HTTP)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	_ = nc.(*net.TCPConn).SetReadBuffer(4 << 10)
	if _, err := io.WriteString(nc, strings.Repeat("GET /v1/kv/large?raw HTTP/1.1\r\nHost: x\r\n\r\n", 40)); err != nil {
		return Cut, nil
	}
	<-ctx.Done()
	return Held, nil
}

// pressAgents opens a session and sends the most of a large message, in one frame or in many.
func (f *flood) pressAgents(ctx context.Context, i int) (Outcome, error) {
	nc, err := f.dial(ctx, i, f.server.Agents)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	login := base64.StdEncoding.EncodeToString([]byte("agent:P@ssw0rd!"))
	_, _ = fmt.Fprintf(nc, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+
		"Sensu-AgentName: flood-%d\r\nAuthorization: Basic %s\r\n\r\n", i, login)
	in := bufio.NewReader(nc)
	resp, err := http.ReadResponse(in, nil)
	switch {
	case err != nil:
		return Cut, nil
	case resp.StatusCode == http.StatusServiceUnavailable:
		return Refused, nil
	case resp.StatusCode != http.StatusSwitchingProtocols:
		return "", fmt.Errorf("a session got %s", resp.Status)
	}
	if i/floodSources%2 == 0 {
		send(nc, string(webFrame(0x82, messageBytes+1)), messageBytes, false)
	} else {
		go func() {
			frame, err := append(webFrame(0x02, 60<<10), make([]byte, 60<<10)...), error(nil)
			for sent := 0; sent < messageBytes && err == nil; sent += 60 << 10 {
				_, err = nc.Write(frame)
				frame[0] = 0
			}
		}()
	}
	for {
		op, body, err := readWebFrame(in)
		switch {
		case err != nil && ctx.Err() != nil:
			return Held, nil
		case err != nil:
			return Cut, nil
		case op == 8 && len(body) > 1 && binary.BigEndian.Uint16(body) == 1013:
			return Refused, nil
		case op == 8:
			return "", fmt.Errorf("a session was closed: %q", body)
		}
	}
}

// webFrame is the head of a frame under a mask of zeros.
func webFrame(first byte, size int) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{first, 0xff}, uint64(size)), 0, 0, 0, 0)
}

// readWebFrame reads a frame of a server.
func readWebFrame(in *bufio.Reader) (op byte, body []byte, err error) {
	var head [10]byte
	if _, err := io.ReadFull(in, head[:2]); err != nil {
		return 0, nil, err
	}
	size := int(head[1])
	switch size {
	case 126:
		_, err = io.ReadFull(in, head[2:4])
		size = int(binary.BigEndian.Uint16(head[2:]))
	case 127:
		_, err = io.ReadFull(in, head[2:])
		size = int(binary.BigEndian.Uint64(head[2:]))
	}
	if err != nil {
		return 0, nil, err
	}
	body = make([]byte, size)
	_, err = io.ReadFull(in, body)
	return head[0] & 15, body, err
}

// pressGRPC opens a stream of discovery and sends the most of a large request as its windows allow.
func (f *flood) pressGRPC(ctx context.Context, i int) (Outcome, error) {
	nc, err := f.dial(ctx, i, f.server.GRPC)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", discovery}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true})
	}
	_, _ = io.WriteString(nc, http2.ClientPreface)
	fr := http2.NewFramer(nc, nc)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = fr.WriteSettings()
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	left, window := append(binary.BigEndian.AppendUint32([]byte{0}, requestBytes+1), make([]byte, requestBytes)...), 65535
	for {
		for len(left) > 0 && window >= 16<<10 {
			piece := left[:min(len(left), 16<<10)]
			if err := fr.WriteData(1, false, piece); err != nil {
				break // the reader says why
			}
			left, window = left[len(piece):], window-len(piece)
		}
		frame, err := fr.ReadFrame()
		switch frame := frame.(type) {
		case *http2.WindowUpdateFrame:
			if frame.StreamID == 1 {
				window += int(frame.Increment)
			}
		case *http2.MetaHeadersFrame:
			for _, h := range frame.Fields {
				if h.Name == "grpc-status" && h.Value == "8" {
					return Refused, nil
				} else if h.Name == "grpc-status" {
					return "", fmt.Errorf("a stream ended with status %s", h.Value)
				}
			}
		}
		if err != nil && ctx.Err() != nil {
			return Held, nil
		} else if err != nil {
			return Cut, nil
		}
	}
}

// pressDNS asks for a large answer again and again, and reads nothing.
func (f *flood) pressDNS(ctx context.Context, i int) (Outcome, error) {
	nc, err := f.dial(ctx, i, f.dns)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	_ = nc.(*net.TCPConn).SetReadBuffer(4 << 10)
	m := new(dns.Msg).SetQuestion("large.service.consul.", dns.TypeSRV)
	query, err := m.Pack()
	if err != nil {
		return "", err
	}
	query = append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	for range 400 {
		if _, err := nc.Write(query); err != nil {
			break
		}
	}
	<-ctx.Done()
	return Held, nil
}

// pressRPC connects to the port between members, and sends half of a header.
func (f *flood) pressRPC(ctx context.Context, i int) (Outcome, error) {
	nc, err := f.dial(ctx, i, f.server.RPC)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	_, _ = nc.Write([]byte{2})
	if _, err := nc.Read(make([]byte, 1)); err != nil && ctx.Err() == nil {
		return Cut, nil
	}
	return Held, nil
}
