package check

//lint:file-ignore SA1019 the ClientConn of net/http has no Ping, and a ping is what this check is

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/encoding/protowire"

	"corbel.dev/corbel/catalog"
)

// maxPingFrames bounds what a peer may send before it answers the PING.
const maxPingFrames = 64

// h2Probe says hello in HTTP/2 and waits for the answer to a PING.
func h2Probe(s Spec, base *tls.Config) Probe {
	return func(ctx context.Context) Result {
		var conn net.Conn
		var err error
		if s.UseTLS {
			cfg := tlsFor(s, base)
			cfg.NextProtos = []string{http2.NextProtoTLS}
			conn, err = (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", s.Target)
		} else {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", s.Target)
		}
		if err != nil {
			return failed(err.Error())
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		defer stop()
		if err := h2Ping(conn); err != nil {
			return failed("HTTP2 ping failed: " + err.Error())
		}
		return Result{Status: catalog.Passing, Output: "HTTP2 ping was successful"}
	}
}

func h2Ping(conn io.ReadWriter) error {
	var hello bytes.Buffer // one write: preface, SETTINGS and PING may share a packet
	hello.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&hello, conn)
	data := [8]byte{'c', 'o', 'r', 'b', 'e', 'l', '/', '1'}
	if err := errors.Join(framer.WriteSettings(), framer.WritePing(false, data)); err != nil {
		return err
	}
	if _, err := conn.Write(hello.Bytes()); err != nil {
		return err
	}
	for range maxPingFrames {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		switch f := frame.(type) {
		case *http2.PingFrame:
			if f.IsAck() && f.Data == data {
				return nil
			}
		case *http2.GoAwayFrame:
			return fmt.Errorf("the server goes away: %v", f.ErrCode)
		}
	}
	return errors.New("no answer to the PING among many frames")
}

// serving is grpc.health.v1 HealthCheckResponse.SERVING.
const serving = 1

var servingNames = map[uint64]string{0: "UNKNOWN", serving: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}

// grpcProbe speaks grpc.health.v1.Health/Check by hand: one unary call whose
// messages have one field each does not need the grpc library.
func grpcProbe(s Spec, base *tls.Config) Probe {
	hostPort, service, _ := strings.Cut(s.Target, "/")
	s.Target = hostPort
	shown := hostPort
	if service != "" {
		shown += "/" + service
	}
	scheme := "http"
	if s.UseTLS {
		scheme = "https"
	}
	request := grpcFrame(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), service))
	// A connection per run, as for HTTP checks.
	transport := &http.Transport{Protocols: &http.Protocols{}, DisableKeepAlives: true,
		TLSClientConfig: tlsFor(s, base), TLSHandshakeTimeout: s.Timeout, MaxResponseHeaderBytes: 64 << 10}
	transport.Protocols.SetHTTP2(s.UseTLS)
	transport.Protocols.SetUnencryptedHTTP2(!s.UseTLS)
	target := &url.URL{Scheme: scheme, Host: hostPort, Path: "/grpc.health.v1.Health/Check"}
	return func(ctx context.Context) Result {
		defer transport.CloseIdleConnections()
		status, err := grpcCheck(ctx, transport, target, request)
		if err != nil {
			return failed(fmt.Sprintf("gRPC check %s: %v", shown, err))
		}
		if status != serving {
			return failed(fmt.Sprintf("gRPC %s serving status: %s", shown, servingNames[status]))
		}
		return Result{Status: catalog.Passing, Output: "gRPC check " + shown + ": success"}
	}
}

func grpcFrame(message []byte) []byte {
	b := make([]byte, 5, 5+len(message)) // flag byte (not compressed), length
	binary.BigEndian.PutUint32(b[1:], uint32(len(message)))
	return append(b, message...)
}

// maxReplyBytes bounds a health answer: it holds one small number.
const maxReplyBytes = 4 << 10

func grpcCheck(ctx context.Context, rt http.RoundTripper, target *url.URL, frame []byte) (uint64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(frame))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Set("User-Agent", userAgent)
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("unexpected HTTP status %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReplyBytes+1))
	if err != nil {
		return 0, err
	}
	code, text := resp.Trailer.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Message")
	if code == "" { // an answer of headers only
		code, text = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
	}
	if code != "0" {
		return 0, fmt.Errorf("rpc error: code = %s desc = %s", code, text)
	}
	return parseServing(body)
}

// parseServing reads the status field of a framed HealthCheckResponse.
func parseServing(body []byte) (uint64, error) {
	if len(body) < 5 || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:5])) != len(body)-5 {
		return 0, errors.New("malformed health answer")
	}
	var status uint64
	for b := body[5:]; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
		if num == 1 && typ == protowire.VarintType {
			if status, n = protowire.ConsumeVarint(b); n < 0 {
				return 0, protowire.ParseError(n)
			}
		} else if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return status, nil
}
