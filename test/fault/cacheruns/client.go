package cacheruns

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/usage/remote"
)

// client is a client of the cluster of caches, with a connection to each host. One goroutine uses it.
type client struct {
	ports []int
	tls   bool
	next  int
	conns map[string]*conn
	homes map[string]string // where a key was answered last
}

type conn struct {
	net.Conn
	in   *bufio.Reader
	used time.Time
}

func (r *run) client() *client {
	return &client{ports: r.ports, tls: r.cfg.TLS, conns: map[string]*conn{}, homes: map[string]string{}}
}

func (c *client) close() {
	for _, nc := range c.conns {
		_ = nc.Close()
	}
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func contains(text []byte, part string) bool { return bytes.Contains(text, []byte(part)) }

// wait bounds one command.
const wait = 10 * time.Second

// ask asks one host.
func (c *client) ask(addr string, words ...string) (remote.Reply, error) {
	nc := c.conns[addr]
	if nc == nil {
		dialer := net.Dialer{Timeout: wait}
		raw, err := dialer.Dial("tcp", addr)
		if err != nil {
			return remote.Reply{}, errors.Join(errDial, err)
		}
		if c.tls {
			raw = tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) // the certificate is made for the run
		}
		nc = &conn{raw, bufio.NewReaderSize(raw, 64<<10), time.Now()}
		c.conns[addr] = nc
	}
	if time.Since(nc.used) > time.Second { // the host may have ended, and be another process by now
		_ = nc.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := nc.in.Peek(1); errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			_ = nc.Close() // it is closed already
			delete(c.conns, addr)
			return c.ask(addr, words...)
		}
	}
	nc.used = time.Now()
	reply, err := remote.Reply{}, nc.SetDeadline(time.Now().Add(wait))
	if err == nil {
		_, err = nc.Write(remote.AppendCommand(nil, words...))
	}
	if err == nil {
		reply, err = remote.ReadReply(nc.in)
	}
	if err != nil {
		_ = nc.Close() // the error is the one to tell
		delete(c.conns, addr)
	}
	return reply, err
}

var (
	errLost = errors.New("each host says that another one has the key")
	errDial = errors.New("the host takes no connection")
)

// do asks the host where the key was last, or any that takes a connection, and follows where it sends.
func (c *client) do(words ...string) (remote.Reply, error) {
	key, addr := words[1], c.homes[words[1]]
	for range 3 * len(c.ports) {
		if addr == "" {
			c.next++
			addr = address(c.ports[c.next%len(c.ports)])
		}
		reply, err := c.ask(addr, words...)
		if errors.Is(err, errDial) { // nothing was sent
			addr = ""
			delete(c.homes, key)
			continue
		}
		if err != nil {
			delete(c.homes, key)
			return reply, err
		}
		if to := strings.Fields(string(reply.Text)); reply.Kind == '-' && len(to) == 3 && to[0] == "MOVED" {
			addr = to[2]
			continue
		}
		c.homes[key] = addr
		return reply, reply.Err()
	}
	return remote.Reply{}, errLost
}

func (c *client) get(key string) ([]byte, error) {
	reply, err := c.do("GET", key)
	return reply.Bytes(), err
}

func (c *client) set(key, value string) error {
	_, err := c.do("SET", key, value)
	return err
}

// until does a command until it is answered.
func (c *client) until(ctx context.Context, words ...string) error {
	return spawn.Until(ctx, patience, strings.Join(words, " "), func() error {
		_, err := c.do(words...)
		return err
	})
}
