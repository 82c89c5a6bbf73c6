package node

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/vaultapi"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/secrets/keeper"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// SecretsDev says how a server of Vault's dev mode is: the secrets plane alone, in memory.
type SecretsDev struct {
	Address   string // default 127.0.0.1:8200
	RootToken string // default a random one
	KVv1      bool   // secret/ is a KV store of version 1
	LogLevel  string
	LogOutput io.Writer
}

// SecretsServer is one. It is unsealed once it is made; Run serves.
type SecretsServer struct {
	RootToken string
	UnsealKey string // base64

	plane *secretsPlane
}

// NewSecretsServer makes it and opens its port.
func NewSecretsServer(cfg SecretsDev) (*SecretsServer, error) {
	level, ok := ParseLevel(cfg.LogLevel)
	if !ok {
		return nil, fmt.Errorf("log-level: %q must be trace, debug, info, warn or error", cfg.LogLevel)
	}
	if cfg.Address == "" {
		cfg.Address = "127.0.0.1:8200"
	}
	const cluster = "corbel-dev"
	log := NewLogs(cfg.LogOutput, level, false).Logger()
	k, err := keeper.New(keeper.Config{Storage: memstore.New(), Now: time.Now, ClusterName: cluster, Log: log})
	if err != nil {
		return nil, err
	}
	kvVersion := "2"
	if cfg.KVv1 {
		kvVersion = "1"
	}
	first, err := unsealDev(k, cfg.RootToken, kvVersion)
	if err != nil {
		return nil, err
	}
	api := vaultapi.New(vaultapi.Config{Keeper: k, Version: version.VaultContract, ClusterName: cluster, ClusterID: uuid.NewString(), StorageType: "inmem"})
	server, err := httpx.NewServer(httpx.ServerConfig{Name: "secrets", Listen: []httpx.Listen{{Address: cfg.Address}}, Handler: api, Hot: api.Hot(), MaxConnsPerClient: -1,
		Logger: log})
	if err != nil {
		return nil, err
	}
	if err := server.Bind(); err != nil {
		k.Seal()
		return nil, fmt.Errorf("dev-listen-address: %w", err)
	}
	return &SecretsServer{RootToken: first.RootToken, UnsealKey: base64.StdEncoding.EncodeToString(first.Shares[0]), plane: &secretsPlane{keeper: k, http: server}}, nil
}

// Addr is where it listens.
func (s *SecretsServer) Addr() net.Addr { return s.plane.http.Addrs()[0] }

// Run serves until ctx ends, and seals then.
func (s *SecretsServer) Run(ctx context.Context) error { return s.plane.run(ctx) }
