// Package crl says which certificates their authorities have revoked.
//
// Lists are files or URLs, read at the start and every few minutes. A list counts only when one of the trusted
// authorities signed it. What was read last holds while a source does not answer; a source of which nothing was ever
// read makes Check refuse every certificate, since it cannot say who is still trusted.
//
// Check is a look-up in memory, from any goroutine. Run owns the reading.
package crl

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

const (
	readEvery = 10 * time.Minute
	retryIn   = 10 * time.Second // while a source has not been read
	readTime  = 10 * time.Second
	maxBytes  = 32 << 20
)

// Config of Lists.
type Config struct {
	// Sources are paths, file:// or http(s):// URLs.
	Sources []string
	// Authorities are the certificates of those who may sign, in PEM.
	Authorities []byte
	Client      *http.Client // nil is one of its own
	Log         *slog.Logger
}

// Lists are the lists of all sources.
type Lists struct {
	cfg         Config
	authorities []*x509.Certificate
	sources     []source
}

type source struct {
	at   string
	read atomic.Pointer[map[key]struct{}] // nil before it was read once
}

// key is a certificate: who issued it, and its number.
type key struct{ issuer, serial string }

// New returns lists that refuse everybody until their sources were read. Errors name what is wrong with cfg.
func New(cfg Config) (*Lists, error) {
	l := &Lists{cfg: cfg, sources: make([]source, len(cfg.Sources))}
	for i, at := range cfg.Sources {
		if scheme, _, found := strings.Cut(at, "://"); at == "" ||
			found && scheme != "file" && scheme != "http" && scheme != "https" {
			return nil, fmt.Errorf("%q is neither a file nor a URL", at)
		}
		l.sources[i].at = at
	}
	if l.cfg.Client == nil {
		l.cfg.Client = &http.Client{Timeout: readTime}
	}
	for rest := cfg.Authorities; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("authorities: %w", err)
		}
		l.authorities = append(l.authorities, c)
	}
	if len(l.authorities) == 0 && len(cfg.Sources) > 0 {
		return nil, errors.New("authorities: there is no certificate")
	}
	return l, nil
}

// Run reads the sources until ctx ends.
func (l *Lists) Run(ctx context.Context) error {
	for {
		wait := readEvery
		for i := range l.sources {
			s := &l.sources[i]
			if err := l.load(ctx, s); err != nil && ctx.Err() == nil {
				l.cfg.Log.Warn("cannot read a certificate revocation list", "source", s.at, "refuses_everybody",
					s.read.Load() == nil, "error", err)
			}
			if s.read.Load() == nil {
				wait = retryIn
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// Check returns an error for a certificate that was revoked, or of which that cannot be told.
func (l *Lists) Check(c *x509.Certificate) error {
	k := key{string(c.RawIssuer), c.SerialNumber.String()}
	for i := range l.sources {
		list := l.sources[i].read.Load()
		if list == nil {
			return fmt.Errorf("the list of revoked certificates %s could not be read yet", l.sources[i].at)
		}
		if _, revoked := (*list)[k]; revoked {
			return errors.New("the certificate was revoked")
		}
	}
	return nil
}

func (l *Lists) load(ctx context.Context, s *source) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	b, err := l.fetch(ctx, s.at)
	if err != nil {
		return err
	}
	if block, _ := pem.Decode(b); block != nil {
		b = block.Bytes
	}
	list, err := x509.ParseRevocationList(b)
	if err != nil {
		return err
	}
	signed := errors.New("none of the authorities signed it")
	for _, a := range l.authorities {
		if signed = list.CheckSignatureFrom(a); signed == nil {
			break
		}
	}
	if signed != nil {
		return signed
	}
	if !list.NextUpdate.IsZero() && list.NextUpdate.Before(time.Now()) {
		l.cfg.Log.Warn("a certificate revocation list is overdue", "source", s.at, "next_update", list.NextUpdate)
	}
	out := make(map[key]struct{}, len(list.RevokedCertificateEntries))
	for _, e := range list.RevokedCertificateEntries {
		out[key{string(list.RawIssuer), e.SerialNumber.String()}] = struct{}{}
	}
	s.read.Store(&out)
	return nil
}

func (l *Lists) fetch(ctx context.Context, at string) ([]byte, error) {
	var in io.ReadCloser
	if strings.HasPrefix(at, "http://") || strings.HasPrefix(at, "https://") {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
		if err != nil {
			return nil, err
		}
		resp, err := l.cfg.Client.Do(req)
		if err != nil {
			return nil, err
		}
		in = resp.Body
		if resp.StatusCode != http.StatusOK {
			_ = in.Close()
			return nil, fmt.Errorf("it answers %s", resp.Status)
		}
	} else {
		f, err := os.Open(strings.TrimPrefix(at, "file://"))
		if err != nil {
			return nil, err
		}
		in = f
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxBytes+1))
	if err == nil && len(b) > maxBytes {
		err = fmt.Errorf("it is larger than %d bytes", maxBytes)
	}
	return b, err
}
