package database

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine/record"
)

// redis is the plug-in for Redis and Valkey: users of their access control lists. Statements are rules, as in
// ["~app:*", "+@read"].
type redis struct{}

const redisPlugin = "redis-database-plugin"

// redisRules hold for a role that names none.
var redisRules = []string{"~*", "+@read"}

func (redis) params(cfg *config) record.Params {
	return record.Params{{Name: "host", At: &cfg.Host}, {Name: "port", At: &cfg.Port}, {Name: "username", At: &cfg.User},
		{Name: "tls", At: &cfg.TLS}, {Name: "insecure_tls", At: &cfg.Insecure}, {Name: "ca_cert", At: &cfg.CA},
		{Name: "max_open_connections", At: &cfg.Open}, {Name: "max_idle_connections", At: &cfg.Idle},
		{Name: "max_connection_lifetime", At: &cfg.Lifetime}, {Name: "username_template", At: &cfg.Template}}
}

func (redis) longest() int { return nameBytes }

func (redis) check(cfg *config) error {
	switch {
	case cfg.Host == "":
		return invalid("host cannot be empty")
	case cfg.Port < 1 || cfg.Port > 65535:
		return invalid("field \"port\": must be 1 to 65535")
	case cfg.User == "" || cfg.Password == "":
		return invalid("username and password cannot be empty")
	}
	_, err := cfg.redisTLS()
	return err
}

func (redis) rotates(*config) bool { return true }

// redisTLS is nil for plain text.
func (cfg *config) redisTLS() (*tls.Config, error) {
	if !cfg.TLS {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cfg.Host, InsecureSkipVerify: cfg.Insecure}
	if cfg.CA != "" {
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM([]byte(cfg.CA)) {
			return nil, invalid("field \"ca_cert\": holds no certificate in PEM")
		}
	}
	return t, nil
}

func (redis) reaches(cfg *config) ([]reach, error) {
	t, err := cfg.redisTLS()
	r := reach{host: cfg.Host, port: uint16(cfg.Port), secured: t != nil}
	if t != nil {
		r.known, r.name, r.roots = !t.InsecureSkipVerify, t.ServerName, t.RootCAs
	}
	return []reach{r}, err
}

func (redis) connect(ctx context.Context, cfg *config, password string) (s session, again bool, err error) {
	t, err := cfg.redisTLS()
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port)))
	if err != nil {
		return nil, false, err
	}
	if t != nil {
		secured := tls.Client(conn, t)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, false, err
		}
		conn = secured
	}
	r := &redisSession{conn: conn, in: bufio.NewReader(conn)}
	if _, err := r.ask(ctx, "AUTH", cfg.User, password); err != nil {
		_ = conn.Close()
		var no redisError
		return nil, errors.As(err, &no) && strings.HasPrefix(string(no), "WRONGPASS"), err
	}
	return r, false, nil
}

func (redis) judged(name string, err error) error {
	var refused redisError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && strings.HasPrefix(string(refused), "LOADING"):
		return errkind.Errorf(errkind.Unavailable, "the database %s: %s", name, refused)
	case errors.As(err, &refused):
		return errkind.Errorf(errkind.Invalid, "the database %s refused: %s", name, refused)
	case errkind.Of(err) != errkind.Internal:
		return err
	}
	return errkind.Errorf(errkind.Unavailable, "the database %s cannot be reached", name)
}

// redisError is what a server answered in the place of a result.
type redisError string

// Error implements error.
func (e redisError) Error() string { return string(e) }

// redisSession is one connection.
type redisSession struct {
	conn   net.Conn
	in     *bufio.Reader
	broken bool // the next answer may be another question's
}

// ask sends a command and reads its answer: a text, or a list of answers; nil is none.
func (r *redisSession) ask(ctx context.Context, words ...string) (answer any, err error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(workWithin)
	}
	if err := r.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	out := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err = r.conn.Write(out); err == nil {
		answer, err = readRedis(r.in, 0)
	}
	var refused redisError
	r.broken = err != nil && !errors.As(err, &refused)
	return answer, err
}

// The bounds of an answer: those of ACL commands are short.
const (
	redisBytes = 1 << 20
	redisItems = 4096
	redisDepth = 4
)

var errRedisForm = errors.New("redis: the answer is not of the protocol")

// readRedis reads one answer of RESP2.
func readRedis(in *bufio.Reader, depth int) (any, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' || depth > redisDepth {
		return nil, errRedisForm
	}
	kind, text := line[0], string(line[1:len(line)-2])
	switch kind {
	case '+', ':':
		return text, nil
	case '-':
		return nil, redisError(text)
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < -1:
		return nil, errRedisForm
	case n == -1:
		return nil, nil
	case kind == '$' && n <= redisBytes:
		b := make([]byte, n+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		if b[n] != '\r' || b[n+1] != '\n' {
			return nil, errRedisForm
		}
		return string(b[:n]), nil
	case kind == '*' && n <= redisItems:
		var list []any
		for range n {
			one, err := readRedis(in, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, one)
		}
		return list, nil
	}
	return nil, errRedisForm
}

func (r *redisSession) ping(ctx context.Context) error {
	_, err := r.ask(ctx, "PING")
	return err
}

func (r *redisSession) close(context.Context) error { return r.conn.Close() }
func (r *redisSession) clean() bool                 { return !r.broken }

// rules are the statements of a role: lists in JSON, or one rule each.
func rules(how []string) (out []string, err error) {
	for _, text := range how {
		if text = strings.TrimSpace(text); !strings.HasPrefix(text, "[") {
			out = append(out, strings.Fields(text)...)
			continue
		}
		var list []string
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, invalid("creation_statements: %q is no list of rules in JSON, as in [\"~app:*\", \"+@read\"]", text)
		}
		out = append(out, list...)
	}
	for _, rule := range out {
		if strings.HasPrefix(rule, ">") || strings.HasPrefix(rule, "#") || rule == "nopass" || rule == "reset" {
			return nil, invalid("creation_statements: %q: the password is the engine's to set", rule)
		}
	}
	if len(out) == 0 {
		out = redisRules
	}
	return out, nil
}

func (r *redisSession) create(ctx context.Context, how []string, v values) error {
	list, err := rules(how)
	if err != nil {
		return err
	}
	_, err = r.ask(ctx, append([]string{"ACL", "SETUSER", v.user, "reset", "on", ">" + v.password}, list...)...)
	return err
}

// renew has nothing to do: users of Redis do not end by themselves.
func (r *redisSession) renew(context.Context, []string, values) error { return nil }

func (r *redisSession) setPassword(ctx context.Context, _ []string, v values) error {
	_, err := r.ask(ctx, "ACL", "SETUSER", v.user, "resetpass", ">"+v.password)
	return err
}

func (r *redisSession) end(ctx context.Context, _ []string, v values) error {
	_, err := r.ask(ctx, "ACL", "DELUSER", v.user)
	return err
}

func (r *redisSession) exists(ctx context.Context, user string) (bool, error) {
	got, err := r.ask(ctx, "ACL", "GETUSER", user)
	return got != nil, err
}
