package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/google/uuid"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/vaultapi"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/keeper"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// devSecretsToken is the root token of dev's secrets, as Vault's users of dev mode expect one that they can type.
const devSecretsToken = "root"

// secretsPlane is the secrets plane of dev: unsealed, in memory, at the loopback address.
type secretsPlane struct {
	keeper *keeper.Keeper
	http   *httpx.Server
}

// buildSecrets makes it and opens its port.
func (p *Process) buildSecrets() error {
	if p.cfg.Listen.Secrets == "" {
		return nil
	}
	const cluster = "corbel-dev"
	k, err := keeper.New(keeper.Config{Storage: memstore.New(), Now: p.clock.Now, ClusterName: cluster, Log: p.log})
	if err != nil {
		return err
	}
	if _, err := unsealDev(k, devSecretsToken, "2"); err != nil {
		return fmt.Errorf("secrets: %w", err)
	}
	api := vaultapi.New(vaultapi.Config{Keeper: k, Version: version.VaultContract, ClusterName: cluster, ClusterID: uuid.NewString(), StorageType: "inmem"})
	for _, addr := range []string{p.cfg.Listen.Secrets, "127.0.0.1:0"} {
		server, err := httpx.NewServer(httpx.ServerConfig{Name: "secrets", Listen: []httpx.Listen{{Address: addr}}, Handler: api, Hot: api.Hot(), MaxConnsPerClient: -1,
			MaxHeaderBytes: p.cfg.HTTP.MaxHeaderBytes, Logger: p.log, Metrics: p.metrics})
		if err != nil {
			return err
		}
		err = server.Bind()
		if errors.Is(err, syscall.EADDRINUSE) && !p.cfg.Given("ports.secrets") && addr == p.cfg.Listen.Secrets {
			p.log.Warn("the port of the secrets plane is in use: another one is taken", "wanted", addr)
			continue
		}
		if err != nil {
			return fmt.Errorf("ports.secrets: %w", err)
		}
		p.secrets = &secretsPlane{keeper: k, http: server}
		return nil
	}
	return nil
}

// unsealDev makes the state that dev begins with: one key, used at once, and KV of a version at secret/.
func unsealDev(k *keeper.Keeper, token, kvVersion string) (*keeper.Initialized, error) {
	ctx := context.Background()
	first, err := k.Init(ctx, 1, 1, token)
	if err != nil {
		return nil, err
	}
	if _, err := k.Unseal(ctx, first.Shares[0]); err != nil {
		return nil, err
	}
	_, err = k.Handle(ctx, &secrets.Request{Op: secrets.Update, Path: "sys/mounts/secret", Token: first.RootToken,
		Body: []byte(`{"type":"kv","options":{"version":"` + kvVersion + `"},"description":"key/value secret storage"}`)})
	return first, err
}

func (s *secretsPlane) run(ctx context.Context) error {
	defer s.keeper.Seal()
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	background.Go(func() { s.keeper.Run(ctx) })
	return s.http.Run(ctx)
}

// SecretsAddr is where the secrets plane answers, or nil.
func (p *Process) SecretsAddr() net.Addr {
	if p.secrets == nil {
		return nil
	}
	return p.secrets.http.Addrs()[0]
}
