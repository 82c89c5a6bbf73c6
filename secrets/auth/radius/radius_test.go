package radius

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"encoding/binary"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

type body = map[string]any

const secret = "hidden-shared-secret"

// server is a RADIUS server, by the RFCs and not by what is tested.
type server struct {
	conn net.PacketConn
	port string

	mu    sync.Mutex
	users map[string]string
	bare  bool // answers have no Message-Authenticator
	lose  int  // requests that get lost
	forge bool // an answer of somebody else comes first
	code  byte // in place of accept and reject
	asked int
}

func newServer(t *testing.T) *server {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{conn: conn, port: strconv.Itoa(conn.LocalAddr().(*net.UDPAddr).Port),
		users: map[string]string{"ann": "ann-word", "long": strings.Repeat("0123456789", 10)}}
	done := make(chan struct{})
	go func() { defer close(done); s.serve(t) }()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return s
}

func (s *server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *server) serve(t *testing.T) {
	in := make([]byte, 4096)
	for {
		n, from, err := s.conn.ReadFrom(in)
		if err != nil {
			return
		}
		for _, out := range s.answers(t, append([]byte(nil), in[:n]...)) {
			_, _ = s.conn.WriteTo(out, from)
		}
	}
}

func (s *server) answers(t *testing.T, p []byte) (out [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.lose > 0 {
		s.lose--
		return nil
	}
	attrs := map[byte][]byte{}
	zeroed := append([]byte(nil), p...)
	for at := 20; at < len(p); at += int(p[at+1]) {
		attrs[p[at]] = p[at+2 : at+int(p[at+1])]
		if p[at] == 80 {
			clear(zeroed[at+2 : at+18])
		}
	}
	mac := hmac.New(md5.New, []byte(secret))
	mac.Write(zeroed)
	switch {
	case p[0] != 1 || int(binary.BigEndian.Uint16(p[2:])) != len(p):
		t.Errorf("no Access-Request: %x", p)
		return nil
	case !hmac.Equal(mac.Sum(nil), attrs[80]):
		return nil // of nobody who knows the secret
	case !bytes.Equal(attrs[5], []byte{0, 0, 0, 10}) || string(attrs[32]) != "corbel":
		t.Errorf("NAS-Port %x, NAS-Identifier %q", attrs[5], attrs[32])
	}
	word, last := []byte{}, p[4:20]
	for hidden := attrs[2]; len(hidden) > 0; hidden = hidden[16:] {
		sum := md5.Sum(append([]byte(secret), last...))
		for i := range sum {
			word = append(word, hidden[i]^sum[i])
		}
		last = hidden[:16]
	}
	code := byte(3)
	if want, ok := s.users[string(attrs[1])]; ok && string(bytes.TrimRight(word, "\x00")) == want {
		code = 2
	}
	if s.code != 0 {
		code = s.code
	}
	good := s.reply(code, p)
	if s.forge {
		forged := append([]byte(nil), good...)
		forged[0] = 2
		out = append(out, forged, good[:10], []byte{2, p[1], 255, 255})
	}
	return append(out, good)
}

func (s *server) reply(code byte, p []byte) []byte {
	b := append([]byte{code, p[1], 0, 0}, p[4:20]...)
	if !s.bare {
		b = append(append(b, 80, 18), make([]byte, 16)...)
	}
	b = append(b, 18, 4, 'h', 'i')
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	if !s.bare {
		mac := hmac.New(md5.New, []byte(secret))
		mac.Write(b)
		copy(b[22:], mac.Sum(nil))
	}
	sum := md5.Sum(append(append([]byte(nil), b...), secret...))
	copy(b[4:], sum[:])
	return b
}

func desk(t *testing.T, port string) *enginetest.Desk {
	t.Helper()
	d := enginetest.New(t, New(&auth.Lockout{}, auth.LockoutRules{After: 3, For: time.Minute,
		Reset: time.Minute}, "m"), "auth/radius/")
	d.Refused(errkind.Invalid, "not configured", secrets.Update, "login/ann", body{"password": "ann-word"})
	d.OK(secrets.Update, "config", body{"host": "127.0.0.1", "port": port, "secret": secret, "dial_timeout": "1s",
		"read_timeout": "4s", "nas_identifier": "corbel", "unregistered_user_policies": "guests", "token_ttl": "20m"})
	return d
}

// TestLogin: users log in by their password, with policies of their name here, or with those of strangers.
func TestLogin(t *testing.T) {
	s := newServer(t)
	d := desk(t, s.port)
	got := d.OK(secrets.Read, "config", nil)
	if got["secret"] != nil || got["nas_port"] != 10.0 || got["dial_timeout"] != 1.0 || got["token_ttl"] != 1200.0 {
		t.Errorf("%v", got)
	}
	d.OK(secrets.Update, "users/ann", body{"policies": "Ops,dev"})
	for path, c := range map[string]struct {
		body     body
		policies string
	}{
		"login/ann":  {body{"password": "ann-word"}, "dev,ops"},
		"login":      {body{"username": "ann", "password": "ann-word"}, "dev,ops"},
		"login/long": {body{"password": s.users["long"]}, "guests"},
	} {
		resp, err := d.Ask(secrets.Update, path, c.body)
		if err != nil {
			t.Fatal(path, err)
		}
		a := resp.Auth
		if strings.Join(a.Policies, ",") != c.policies || a.Metadata["policies"] != c.policies ||
			strings.Contains(string(a.Login), "word") {
			t.Errorf("%s: %+v", path, a)
		}
	}
	d.Refused(errkind.Invalid, "access denied by the authentication server", secrets.Update, "login/ann",
		body{"password": "wrong"})
	for word, want := range map[string]string{"": "password cannot be empty", strings.Repeat("x", 129): "128 bytes"} {
		d.Refused(errkind.Invalid, want, secrets.Update, "login/ann", body{"password": word})
	}
	of := engine.Login{Data: []byte(`{"user":"ann"}`), Policies: []string{"default", "dev", "ops"}}
	renewer := d.Engine.(engine.Renewer)
	if terms, err := renewer.Renewable(t.Context(), d.Store, nil, of); err != nil || terms.TTL != 20*time.Minute {
		t.Errorf("%+v, %v", terms, err)
	}
	d.OK(secrets.Delete, "users/ann", nil)
	if _, err := renewer.Renewable(t.Context(), d.Store, nil, of); err == nil {
		t.Error("other policies, and it is renewed")
	}
}

// TestGuessesEnd: who guesses is locked out, with the right password too.
func TestGuessesEnd(t *testing.T) {
	s := newServer(t)
	d := desk(t, s.port)
	for range 3 {
		d.Refused(errkind.Invalid, "access denied", secrets.Update, "login/ann", body{"password": "guess"})
	}
	before, after := 0, 0
	s.set(func() { before = s.asked })
	d.Refused(errkind.Denied, "", secrets.Update, "login/ann", body{"password": "ann-word"})
	s.set(func() { after = s.asked })
	if after != before {
		t.Error("the server was asked about who is locked out")
	}
}

// TestNetwork: packets get lost and are forged; an answer without a Message-Authenticator counts where the mount says
// so alone, and a server that does not answer holds nobody up for long.
func TestNetwork(t *testing.T) {
	s := newServer(t)
	d := desk(t, s.port)
	s.set(func() { s.lose = 1 })
	d.OK(secrets.Update, "login/ann", body{"password": "ann-word"})
	s.set(func() { s.forge = true })
	d.OK(secrets.Update, "login/ann", body{"password": "ann-word"})
	d.Refused(errkind.Invalid, "access denied", secrets.Update, "login/ann", body{"password": "wrong"})
	s.set(func() { s.forge, s.code = false, 11 })
	d.Refused(errkind.Invalid, "Access-Challenge", secrets.Update, "login/ann", body{"password": "ann-word"})
	s.set(func() { s.code = 5 })
	d.Refused(errkind.Unavailable, "code 5", secrets.Update, "login/ann", body{"password": "ann-word"})
	s.set(func() { s.code, s.bare = 0, true })
	d.Refused(errkind.Unavailable, "CVE-2024-3596", secrets.Update, "login/ann", body{"password": "ann-word"})
	d.OK(secrets.Update, "config", body{"require_message_authenticator": false})
	d.OK(secrets.Update, "login/ann", body{"password": "ann-word"})

	d.OK(secrets.Update, "config", body{"secret": "another"})
	begun := time.Now()
	d.Refused(errkind.Unavailable, "look at host, port, secret", secrets.Update, "login/ann", body{"password": "ann-word"})
	if took := time.Since(begun); took > 15*time.Second {
		t.Error("it took", took)
	}
}

func TestConfigRefuses(t *testing.T) {
	d := enginetest.New(t, New(&auth.Lockout{}, auth.LockoutRules{}, "m"), "auth/radius/")
	good := body{"host": "radius.example", "secret": secret}
	for want, change := range map[string]body{
		`"host": is required`:               {"host": ""},
		`"secret": is required, what`:       {"secret": ""},
		`"port": must be`:                   {"port": 70000},
		`"nas_port": must be`:               {"nas_port": -1},
		`"nas_identifier": must`:            {"nas_identifier": strings.Repeat("x", 254)},
		`"dial_timeout" and "read_timeout"`: {"dial_timeout": "10m"},
		`must not have root`:                {"unregistered_user_policies": "root"},
	} {
		with := body{}
		for key, value := range good {
			with[key] = value
		}
		for key, value := range change {
			with[key] = value
		}
		d.Refused(errkind.Invalid, want, secrets.Update, "config", with)
	}
	d.OK(secrets.Update, "config", good)
	d.Refused(errkind.Invalid, "with another host", secrets.Update, "config", body{"host": "evil.example"})
	d.OK(secrets.Update, "users/ann", body{"policies": "a"})
	if got := d.OK(secrets.List, "users/", nil); !slices.Equal(got["keys"].([]any), []any{"ann"}) {
		t.Errorf("%v", got)
	}
	d.OK(secrets.Delete, "users/ann", nil)
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{2, 1, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, packet []byte) {
		q := &question{secret: secret}
		if code, err := q.read(packet, 1, [16]byte{}, true); err == nil {
			t.Fatalf("%x is an answer of code %d", packet, code)
		}
	})
}
