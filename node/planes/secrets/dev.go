package secretsplane

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/node/admission"
	"corbel.dev/corbel/node/logs"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/secrets/keeper"
)

// DevConfig says how a server of Vault's dev mode is: the secrets plane alone, in memory.
type DevConfig struct {
	Address   string // default 127.0.0.1:8200
	RootToken string // default a random one
	KVv1      bool   // secret/ is a KV store of version 1
	TLSDir    string // where it leaves the certificates that it makes for itself; "": plain HTTP
	LogLevel  string
	LogOutput io.Writer
}

// DevServer is one. It is unsealed once it is made; Run serves.
type DevServer struct {
	RootToken string
	UnsealKey string // base64
	CAFile    string // with TLS: whom clients are to trust

	// Page is what its port serves beside the API. It is set before Run.
	Page *plane.Front

	plane *secretsPlane
}

// API answers what its port answers.
func (s *DevServer) API() http.Handler { return s.plane.api }

// NewDevServer makes it and opens its port.
func NewDevServer(cfg DevConfig) (*DevServer, error) {
	level, ok := logs.ParseLevel(cfg.LogLevel)
	if !ok {
		return nil, fmt.Errorf("log-level: %q must be trace, debug, info, warn or error", cfg.LogLevel)
	}
	if cfg.Address == "" {
		cfg.Address = "127.0.0.1:8200"
	}
	kvVersion := "2"
	if cfg.KVv1 {
		kvVersion = "1"
	}
	lines := logs.New(cfg.LogOutput, level, false)
	port := httpx.Listen{Address: cfg.Address}
	if cfg.TLSDir != "" {
		host, _, err := net.SplitHostPort(cfg.Address)
		if err != nil {
			return nil, fmt.Errorf("dev-listen-address: %w", err)
		}
		if port.TLS, err = devTLS(cfg.TLSDir, host); err != nil {
			return nil, err
		}
	}
	page := &plane.Front{}
	made, first, err := newDevSecrets(secretsConfig{ports: []secretsPort{{listen: port}}, clock: clock.Real{},
		admits: &admission.Ports{}, log: lines.Logger(), front: page.Before,
		keeper: keeper.Config{Local: keeper.Local{Follow: lines.Follow, Level: lines,
			LevelAtStart: lines.Level()}}}, cfg.RootToken, kvVersion)
	if err != nil {
		return nil, err
	}
	if err := made.http.Bind(); err != nil {
		made.keeper.Seal()
		return nil, fmt.Errorf("dev-listen-address: %w", err)
	}
	s := &DevServer{RootToken: first.RootToken, UnsealKey: base64.StdEncoding.EncodeToString(first.Shares[0]),
		Page: page, plane: made}
	if cfg.TLSDir != "" {
		s.CAFile = filepath.Join(cfg.TLSDir, devCAFile)
	}
	return s, nil
}

// Addr is where it listens.
func (s *DevServer) Addr() net.Addr { return s.plane.http.Addrs()[0] }

// Run serves until ctx ends, and seals then.
func (s *DevServer) Run(ctx context.Context) error { return s.plane.run(ctx) }
