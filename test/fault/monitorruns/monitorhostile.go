package monitorruns

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/ws"
	faultrun "corbel.dev/corbel/test/fault"
)

// Clients that misbehave. What each costs is bounded, the log names them, and results of others count all the while.

// hostile has all of them at work at once.
func (r *faultsRun) hostile(ctx context.Context) error {
	s := r.Servers[0]
	stop := func() {}
	defer func() { stop() }()
	return r.under(ctx, func() (err error) {
		if stop, err = r.silentGuests(ctx, s); err != nil {
			return err
		}
		return errors.Join(r.wrongCredentials(ctx, s), r.brokenFrames(ctx, s), r.rubbish(ctx, s), r.neverReads(ctx, s))
	}, func() error { return r.named(ctx, s) })
}

// named waits for what the log must say of them.
func (r *faultsRun) named(ctx context.Context, s *faultrun.Server) error {
	return spawn.Until(ctx, 30*time.Second, "the log of "+s.Name+" to name them", func() error {
		log := s.Log()
		for _, what := range []string{"wrong credentials", "agent=framer", "agent=rubbish", "agent=deaf"} {
			if !strings.Contains(log, what) {
				return fmt.Errorf("no word of %q", what)
			}
		}
		return nil
	})
}

// silentGuests connect and say nothing, or half a request.
func (r *faultsRun) silentGuests(ctx context.Context, s *faultrun.Server) (stop func(), err error) {
	var held []net.Conn
	stop = func() {
		for _, c := range held {
			_ = c.Close()
		}
	}
	for i := range 200 {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Agents)
		if err != nil {
			return stop, err
		}
		held = append(held, c)
		if i%2 == 0 {
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nA: ")
		}
	}
	return stop, nil
}

func (r *faultsRun) wrongCredentials(ctx context.Context, s *faultrun.Server) error {
	for i := range 5 {
		h := http.Header{"Sensu-Namespace": {"default"}, "Sensu-Agentname": {"nobody"}}
		q := http.Request{Header: h}
		q.SetBasicAuth(fmt.Sprintf("nobody-%d", i), "wrong")
		c, _, err := ws.Dial(ctx, "ws://"+s.Agents+"/", h, nil, nil)
		if err == nil {
			return errors.Join(errors.New("wrong credentials opened a session"), c.Close())
		}
		var refused *ws.Refused
		if !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized &&
			refused.Status != http.StatusServiceUnavailable {
			return fmt.Errorf("wrong credentials: %w", err)
		}
	}
	return nil
}

// rawAgent opens a session without a library, which would not send what is wrong. Like an agent it comes again where
// the server has no room yet.
func rawAgent(ctx context.Context, s *faultrun.Server, name string) (c net.Conn, in *bufio.Reader, err error) {
	err = spawn.Until(ctx, time.Minute, "a session", func() error {
		if c, in, err = rawSession(ctx, s, name); err != nil && !errors.Is(err, errNoRoom) {
			return spawn.Hopeless(err)
		}
		return err
	})
	return c, in, err
}

var errNoRoom = errors.New("the server has no room for a session")

func rawSession(ctx context.Context, s *faultrun.Server, name string) (net.Conn, *bufio.Reader, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Agents)
	if err != nil {
		return nil, nil, err
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+s.Agents+
		"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAccept: application/octet-stream\r\nSensu-Namespace: "+
		"default\r\nSensu-AgentName: "+name+"\r\n"+
		"Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("agent:P@ssw0rd!"))+"\r\n\r\n")
	in := bufio.NewReader(c)
	if err == nil {
		var answer *http.Response
		answer, err = http.ReadResponse(in, nil)
		switch {
		case err != nil:
		case answer.StatusCode == http.StatusServiceUnavailable:
			err = errNoRoom
		case answer.StatusCode != http.StatusSwitchingProtocols:
			err = fmt.Errorf("a session was answered with %s", answer.Status)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, in, nil
}

// closeCode reads frames of a server up to the one that ends the session.
func closeCode(in *bufio.Reader) (int, error) {
	for {
		var head [2]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return 0, err
		}
		n := int64(head[1])
		if n == 126 {
			var long [2]byte
			if _, err := io.ReadFull(in, long[:]); err != nil {
				return 0, err
			}
			n = int64(binary.BigEndian.Uint16(long[:]))
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(in, body); err != nil {
			return 0, err
		}
		if head[0] == 0x88 && n >= 2 {
			return int(binary.BigEndian.Uint16(body)), nil
		}
	}
}

// brokenFrames: each ends its own session, with the code that RFC 6455 has for it.
func (r *faultsRun) brokenFrames(ctx context.Context, s *faultrun.Server) error {
	const mask = "\x01\x02\x03\x04"
	for name, one := range map[string]struct {
		frame string
		want  int
	}{
		"reserved bits":               {"\xf2\x80" + mask, ws.CloseProtocol},
		"no mask":                     {"\x82\x01x", ws.CloseProtocol},
		"a long ping":                 {"\x89\xfe\x00\x7e" + mask, ws.CloseProtocol},
		"the rest of nothing":         {"\x80\x80" + mask, ws.CloseProtocol},
		"an opcode that is none":      {"\x83\x80" + mask, ws.CloseProtocol},
		"more than 63 bits":           {"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff" + mask, ws.CloseProtocol},
		"a message of a tebibyte":     {"\x82\xff\x00\x00\x01\x00\x00\x00\x00\x00" + mask, ws.CloseTooBig},
		"a second message in a first": {"\x02\x80" + mask + "\x02\x80" + mask, ws.CloseProtocol},
	} {
		c, in, err := rawAgent(ctx, s, "framer")
		if err != nil {
			return err
		}
		_, err = io.WriteString(c, one.frame)
		code := 0
		if err == nil {
			code, err = closeCode(in)
		}
		_ = c.Close()
		if err != nil || code != one.want {
			return fmt.Errorf("%s: ended with %d, %w", name, code, faultrun.OrNone(err))
		}
	}
	return nil
}

// rubbishLines is how many lines of the log rubbish may cost.
const rubbishLines = 100

// rubbish: one agent sends broken messages as fast as it can, and huge ones. It keeps its session, the log stays
// short, memory bounded.
func (r *faultsRun) rubbish(ctx context.Context, s *faultrun.Server) error {
	c, err := dialAgent(ctx, s, "rubbish", "")
	if err != nil {
		return err
	}
	defer c.Close()
	base, lines := s.RSS(), strings.Count(s.Log(), "agent=rubbish")
	huge := strings.Repeat("x", 4<<20)
	for i := range r.cfg.Rubbish {
		text := []string{"no newline", "strange\nbody", "event\nrubbish", "keepalive\n\xff\xff", "\n", "event\n",
			"event\n\x0a\xff\xff\xff\xff\x0f"}[i%7]
		if i%333 == 0 {
			text = "event\n" + huge
		}
		if err := errors.Join(c.Write([]byte(text)), c.Flush()); err != nil {
			return fmt.Errorf("broken messages ended the session: %w", err)
		}
	}
	if err := answers(ctx, c); err != nil {
		return fmt.Errorf("after broken messages: %w", err)
	}
	r.report.GrewBytes = max(r.report.GrewBytes, s.RSS()-base)
	if r.report.GrewBytes > 192<<20 {
		return fmt.Errorf("broken messages made the server grow by %d bytes", r.report.GrewBytes)
	}
	if n := strings.Count(s.Log(), "agent=rubbish") - lines; n > rubbishLines {
		return fmt.Errorf("%d broken messages made %d lines of the log", r.cfg.Rubbish, n)
	}
	return nil
}

// answers waits for the pong of a ping, which comes when all before it was read.
func answers(ctx context.Context, c *ws.Conn) error {
	got := make(chan struct{}, 1)
	c.OnPong(func([]byte) { got <- struct{}{} })
	ended := make(chan error, 1)
	go func() { // ends with the connection, which the caller closes
		for {
			if _, err := c.Read(nil); err != nil {
				ended <- err
				return
			}
		}
	}()
	if err := c.Ping([]byte("all")); err != nil {
		return err
	}
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	select {
	case <-got:
		return nil
	case err := <-ended:
		return err
	case <-limit.C:
		return errors.New("no answer within a minute")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// neverReads: an agent that asks for answers and takes none is cut off, at the bound of what may wait for it.
func (r *faultsRun) neverReads(ctx context.Context, s *faultrun.Server) error {
	c, _, err := rawAgent(ctx, s, "deaf")
	if err != nil {
		return err
	}
	defer c.Close()
	ping := append([]byte{0x89, 0x80 | 125, 0, 0, 0, 0}, make([]byte, 125)...)
	pings := []byte(strings.Repeat(string(ping), 500))
	for sent := 0; ; sent += len(pings) {
		if _, err := c.Write(pings); err != nil {
			return nil // it was cut off
		}
		if sent > 1<<30 {
			return errors.New("an agent that takes nothing is never cut off")
		}
	}
}
