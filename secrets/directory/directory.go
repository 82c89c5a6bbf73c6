// Package directory reaches LDAP directories, for what logs in by them and what changes passwords in them.
//
// A connection has one deadline for all that is done on it (request_timeout), and a mount a bounded number of them:
// who finds none free waits for one within the deadline. Nothing is kept between uses. A session is one caller's.
package directory

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	client "github.com/go-ldap/ldap/v3"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/record"
)

// Place is where a directory is, how it is trusted, and the account that a mount has there.
type Place struct {
	URL      string        `json:"url"`
	BindDN   string        `json:"binddn,omitempty"`
	BindPass string        `json:"bindpass,omitempty"` // nobody reads it, nor the key
	StartTLS bool          `json:"starttls,omitempty"`
	Insecure bool          `json:"insecure_tls,omitempty"`
	CA       string        `json:"certificate,omitempty"` // PEM, as the two below
	Cert     string        `json:"client_tls_cert,omitempty"`
	Key      string        `json:"client_tls_key,omitempty"`
	TLSMin   string        `json:"tls_min_version"`
	TLSMax   string        `json:"tls_max_version"`
	Request  time.Duration `json:"request_timeout"`
	Connect  time.Duration `json:"connection_timeout"`
}

const longest = 90 * time.Second

// Fresh is what a place is by default.
func Fresh() Place {
	return Place{URL: "ldap://127.0.0.1", TLSMin: "tls12", TLSMax: "tls12", Request: longest, Connect: 30 * time.Second}
}

// Params are the parameters, but for what nobody reads.
func (p *Place) Params() record.Params {
	return record.Params{{Name: "url", At: &p.URL}, {Name: "binddn", At: &p.BindDN}, {Name: "starttls", At: &p.StartTLS},
		{Name: "insecure_tls", At: &p.Insecure}, {Name: "certificate", At: &p.CA}, {Name: "client_tls_cert", At: &p.Cert},
		{Name: "tls_min_version", At: &p.TLSMin}, {Name: "tls_max_version", At: &p.TLSMax},
		{Name: "request_timeout", At: &p.Request}, {Name: "connection_timeout", At: &p.Connect}}
}

// ReadHidden takes what Params have not.
func (p *Place) ReadHidden(f *secrets.Fields) {
	if f.Has("bindpass") {
		p.BindPass = f.String("bindpass")
	}
	if f.Has("client_tls_key") {
		p.Key = f.String("client_tls_key")
	}
}

var tlsVersions = map[string]uint16{"tls12": tls.VersionTLS12, "tls13": tls.VersionTLS13}

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

// Check refuses what cannot be.
func (p *Place) Check() error {
	switch {
	case tlsVersions[p.TLSMin] == 0 || tlsVersions[p.TLSMax] == 0 || p.TLSMin > p.TLSMax:
		return invalid("fields \"tls_min_version\", \"tls_max_version\": must be tls12 or tls13, the first not above " +
			"the second")
	case p.Request <= 0 || p.Request > longest || p.Connect <= 0 || p.Connect > longest:
		return invalid("fields \"request_timeout\", \"connection_timeout\": must be above 0 and at most %v", longest)
	case p.BindDN == "" && p.BindPass != "":
		return invalid("field \"binddn\": is missing, and bindpass is its password")
	}
	for _, text := range p.urls() {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || (u.Scheme != "ldap" && u.Scheme != "ldaps") {
			return invalid("field \"url\": %q is not like ldap://ldap.example.com or ldaps://ldap.example.com:636", text)
		}
		if p.StartTLS && u.Scheme == "ldaps" {
			return invalid("field \"starttls\": is for ldap:// alone: ldaps:// is TLS from its beginning")
		}
	}
	_, err := p.tls("ldap.example.com")
	return err
}

// Keeps refuses a change of a stored place that would show its password, which the writer need not know, to somebody
// else: f is the request that made p of have.
func (p *Place) Keeps(have *Place, f *secrets.Fields) error {
	same := slices.Equal(p.urls(), have.urls()) && p.StartTLS == have.StartTLS && p.Insecure == have.Insecure &&
		p.CA == have.CA
	if have.BindPass != "" && !f.Has("bindpass") && !same {
		return invalid("field \"bindpass\": must be given again, since url or the TLS settings differ from those that it " +
			"was stored for")
	}
	return nil
}

// urls are the directories, which are tried in turn.
func (p *Place) urls() (list []string) {
	for text := range strings.SplitSeq(p.URL, ",") {
		list = append(list, strings.TrimSpace(text))
	}
	return list
}

func (p *Place) tls(host string) (*tls.Config, error) {
	t := &tls.Config{ServerName: host, InsecureSkipVerify: p.Insecure, MinVersion: tlsVersions[p.TLSMin],
		MaxVersion: tlsVersions[p.TLSMax]}
	if p.CA != "" {
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM([]byte(p.CA)) {
			return nil, invalid("field \"certificate\": holds no certificate in PEM")
		}
	}
	if p.Cert != "" || p.Key != "" {
		own, err := tls.X509KeyPair([]byte(p.Cert), []byte(p.Key))
		if err != nil {
			return nil, invalid("fields \"client_tls_cert\", \"client_tls_key\": are no certificate with its key, in PEM")
		}
		t.Certificates = []tls.Certificate{own}
	}
	return t, nil
}

// sessions bounds the connections of a mount: who has one waits on the network, and takes little of this host.
const sessions = 64

// Desk bounds the connections of a mount. Made with New.
type Desk struct{ slots chan struct{} }

// New makes the desk of a mount.
func New() *Desk { return &Desk{make(chan struct{}, sessions)} }

// Session is one connection with a deadline.
type Session struct {
	Conn  *client.Conn
	place *Place
	end   func()
}

// End closes the connection.
func (s *Session) End() { s.end() }

// Open connects to the first directory that answers.
func (d *Desk) Open(ctx context.Context, p *Place) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, p.Request)
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		cancel()
		return nil, errkind.Errorf(errkind.Unavailable, "the directory: all %d connections are in use", sessions)
	}
	var last error
	for _, at := range p.urls() {
		conn, err := p.dial(ctx, at)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			return &Session{Conn: conn, place: p, end: func() {
				stop()
				cancel()
				_ = conn.Close()
				<-d.slots
			}}, nil
		}
		last = err
	}
	cancel()
	<-d.slots
	return nil, errkind.Errorf(errkind.Unavailable, "the directory cannot be reached: %v", last)
}

func (p *Place) dial(ctx context.Context, at string) (*client.Conn, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	t, err := p.tls(u.Hostname())
	if err != nil {
		return nil, err
	}
	within := p.Connect
	if end, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(end))
	}
	conn, err := client.DialURL(at, client.DialWithDialer(&net.Dialer{Timeout: within}),
		client.DialWithTLSConfig(t))
	if err != nil {
		return nil, err
	}
	conn.SetTimeout(within)
	if p.StartTLS {
		if err := conn.StartTLS(t); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("StartTLS: %w", err)
		}
	}
	conn.SetTimeout(p.Request)
	return conn, nil
}

// AsOwn logs the mount's own account in, or nobody where it has none.
func (s *Session) AsOwn() error {
	if s.place.BindDN == "" {
		return nil
	}
	var err error
	if s.place.BindPass == "" {
		err = s.Conn.UnauthenticatedBind(s.place.BindDN)
	} else {
		err = s.Conn.Bind(s.place.BindDN, s.place.BindPass)
	}
	if err != nil {
		return Judged("binding as binddn", err)
	}
	return nil
}

// Seconds is how long a search may take.
func (s *Session) Seconds() int { return max(int(s.place.Request/time.Second), 1) }

// Judged gives an error of the directory its kind: Unavailable, or Internal where it answered and refused.
func Judged(what string, err error) error {
	var refused *client.Error
	if errors.As(err, &refused) && refused.ResultCode < client.ErrorNetwork {
		switch refused.ResultCode {
		case client.LDAPResultBusy, client.LDAPResultUnavailable, client.LDAPResultTimeLimitExceeded:
		default:
			return errkind.Errorf(errkind.Internal, "ldap operation failed: %s: %s", what,
				client.LDAPResultCodeMap[refused.ResultCode])
		}
	}
	return errkind.Errorf(errkind.Unavailable, "the directory: %s: %v", what, err)
}
