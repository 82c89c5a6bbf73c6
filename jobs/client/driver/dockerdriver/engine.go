package dockerdriver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// engine is the Engine's API at a socket.
type engine struct {
	client *http.Client
	dial   func(ctx context.Context) (net.Conn, error)
}

const (
	// answerBytes bounds an answer, and callLimit the time of one that does not wait for a task.
	answerBytes = 4 << 20
	callLimit   = time.Minute
	// prefix is the oldest version of the API that has all that is used here; Podman has it too.
	prefix = "/v1.40"
)

// newEngine speaks to unix:///path, or tcp://host:port on this host.
func newEngine(address string) (*engine, error) {
	network, addr := "unix", strings.TrimPrefix(address, "unix://")
	if u, err := url.Parse(address); err == nil && u.Scheme == "tcp" {
		network, addr = "tcp", u.Host
	} else if !strings.HasPrefix(addr, "/") {
		return nil, errkind.Errorf(errkind.Invalid, "%q is no unix:///path", address)
	}
	dial := func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, network, addr) }
	return &engine{dial: dial, client: &http.Client{Transport: &http.Transport{MaxIdleConns: 8,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}}, nil
}

// open sends a request; the caller closes the answer's body.
func (e *engine) open(ctx context.Context, method, path string, in any, header http.Header) (*http.Response, error) {
	var body io.Reader = http.NoBody
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+prefix+path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := e.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, errkind.E(errkind.Unavailable, "", err)
	}
	if res.StatusCode < 400 {
		return res, nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	var said struct{ Message string }
	if json.Unmarshal(text, &said) != nil || said.Message == "" {
		said.Message = string(text)
	}
	kind := errkind.Invalid
	switch {
	case res.StatusCode == http.StatusNotFound:
		kind = errkind.NotFound
	case res.StatusCode == http.StatusConflict:
		kind = errkind.Conflict
	case res.StatusCode >= 500:
		kind = errkind.Unavailable
	}
	return nil, errkind.Errorf(kind, "%s", strings.TrimSpace(said.Message))
}

// call sends a request and reads the answer into out; nil ignores it.
func (e *engine) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return e.wait(ctx, method, path, in, out)
}

// wait is call without a limit of its own.
func (e *engine) wait(ctx context.Context, method, path string, in, out any) error {
	res, err := e.open(ctx, method, path, in, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, answerBytes))
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// pull gets an image, and returns when the Engine has it.
func (e *engine) pull(ctx context.Context, image string, auth *auth) error {
	name, tag := split(image)
	header := http.Header{}
	if auth != nil {
		text, err := json.Marshal(auth)
		if err != nil {
			return err
		}
		header.Set("X-Registry-Auth", base64.URLEncoding.EncodeToString(text))
	}
	res, err := e.open(ctx, http.MethodPost, "/images/create?fromImage="+url.QueryEscape(name)+"&tag="+
		url.QueryEscape(tag), nil, header)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	d := json.NewDecoder(res.Body)
	for {
		var line struct{ Error string }
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return errkind.E(errkind.Unavailable, "", err)
		}
		if line.Error != "" {
			return errkind.New(errkind.Unavailable, line.Error)
		}
	}
}

// split is an image's name and its tag or digest.
func split(image string) (name, tag string) {
	if name, digest, ok := strings.Cut(image, "@"); ok {
		return name, digest
	}
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i+1:]
	}
	return image, "latest"
}

// maxFrame bounds a frame of a log.
const maxFrame = 1 << 20

// demux reads a stream of the Engine's frames until it ends.
func demux(r io.Reader, stdout, stderr io.Writer) error {
	var head [8]byte
	buf := make([]byte, 32<<10)
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		n := int64(binary.BigEndian.Uint32(head[4:]))
		out := stdout
		if head[0] == 2 {
			out = stderr
		}
		if head[0] > 2 || n > maxFrame {
			return errkind.New(errkind.Corrupt, "the Engine's stream is not in frames")
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{out}, io.LimitReader(r, n), buf); err != nil {
			return err
		}
	}
}

// attach starts a command and returns the connection on which it talks.
func (e *engine) attach(ctx context.Context, exec string, tty bool) (net.Conn, io.Reader, error) {
	conn, err := e.dial(ctx)
	if err != nil {
		return nil, nil, errkind.E(errkind.Unavailable, "", err)
	}
	text := fmt.Sprintf(`{"Detach":false,"Tty":%t}`, tty)
	_, err = io.WriteString(conn, "POST "+prefix+"/exec/"+exec+"/start HTTP/1.1\r\nHost: engine\r\n"+
		"Content-Type: application/json\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: "+
		strconv.Itoa(len(text))+"\r\n\r\n"+text)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	if res.StatusCode >= 300 {
		defer conn.Close()
		said, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		return nil, nil, errkind.Errorf(errkind.Unavailable, "%s: %s", res.Status, said)
	}
	return conn, r, nil
}
