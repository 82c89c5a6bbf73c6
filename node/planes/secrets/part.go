// Package secretsplane wires the secrets plane: its storage, seal, keeper, cluster, listeners and doctor, by a
// configuration in Vault's words. It runs as a process of its own (Server), in memory (DevServer), or as a Part of a
// process that does other things too.
package secretsplane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/vaultconf"
	"corbel.dev/corbel/secrets/keeper"
	"corbel.dev/corbel/telemetry"
)

// devToken is the root token of dev's secrets, as Vault's users of dev mode expect one that they can type.
const devToken = "root"

// Part is the secrets plane of a process that does other things too: a server's, or dev's in memory.
type Part struct {
	plane.Idle
	server *Server       // by a secrets block; else nil
	dev    *secretsPlane // of dev; else nil
}

// Kind is the plane as a process lists it.
func Kind() plane.Kind {
	return plane.Kind{Name: "secrets", Check: check, Open: func(d *plane.Doors) (plane.Plane, error) {
		p, err := newPart(d)
		if p == nil || err != nil {
			return nil, err
		}
		d.Evidence(p.registry())
		d.Depends(p.depends)
		return p, nil
	}}
}

// newPart makes the plane that the configuration asks for and opens its ports; nil when it asks for none.
func newPart(d *plane.Doors) (*Part, error) {
	cfg := d.Cfg
	if len(cfg.Secrets) > 0 {
		own, err := settingsOf(cfg)
		if err != nil {
			return nil, err
		}
		own.Sockets = cfg.Sockets
		s, err := newServer(own, os.Stderr, nil, d.Faults, shared{admits: d.Ports, front: d.Front})
		if err != nil {
			return nil, err
		}
		return &Part{server: s}, nil
	}
	if cfg.Listen.Secrets == "" {
		return nil, nil
	}
	for _, addr := range []string{cfg.Listen.Secrets, "127.0.0.1:0"} {
		dev, _, err := newDevSecrets(secretsConfig{
			ports: []secretsPort{{listen: httpx.Listen{Address: addr}}}, headerBytes: cfg.HTTP.MaxHeaderBytes,
			clock: d.Clock, log: d.Log, metrics: d.Metrics, admits: d.Ports, front: d.Front,
			keeper: keeper.Config{Local: keeper.Local{Follow: d.Logs.Follow}},
		}, devToken, "2")
		if err != nil {
			return nil, fmt.Errorf("secrets: %w", err)
		}
		err = dev.http.Bind()
		if neterr.InUse(err) && !cfg.Given("ports.secrets") && addr == cfg.Listen.Secrets {
			d.Log.Warn("the port of the secrets plane is in use; using another one", "wanted", addr)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("ports.secrets: %w", err)
		}
		return &Part{dev: dev}, nil
	}
	return nil, nil
}

// check tells what is wrong with the block of the plane.
func check(cfg *config.Config) error {
	if len(cfg.Secrets) == 0 {
		return nil
	}
	_, err := settingsOf(cfg)
	return err
}

// settingsOf reads the block of the secrets plane.
func settingsOf(cfg *config.Config) (*vaultconf.Config, error) {
	own, err := vaultconf.FromTrees(cfg.Secrets, os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	if own.LogLevel == "" {
		own.LogLevel = cfg.Logging.Level
	}
	return own, nil
}

// LocksMemory tells whether a server's memory is to be kept out of swap: it has keys, and disable_mlock does not say
// otherwise.
func LocksMemory(cfg *config.Config) bool {
	if len(cfg.Secrets) == 0 {
		return false
	}
	own, err := settingsOf(cfg)
	return err == nil && !own.DisableMlock // New tells what is wrong with it
}

// Run serves until ctx ends.
func (p *Part) Run(ctx context.Context) error {
	if p.server != nil {
		return p.server.Run(ctx)
	}
	return p.dev.run(ctx)
}

// Close implements plane.Plane.
func (p *Part) Close() error {
	if p.server != nil {
		p.server.close()
	}
	return nil
}

// Reload implements plane.Plane. A server judges and applies in one step.
func (p *Part) Reload(cfg *config.Config) (func(), error) {
	if p.server == nil {
		return nil, nil
	}
	own, err := settingsOf(cfg)
	if err != nil {
		return nil, err
	}
	return nil, p.server.Reload(own)
}

// Addr is where dev's plane answers; nil for others, whose configuration says so.
func (p *Part) Addr() net.Addr {
	if p.dev == nil {
		return nil
	}
	return p.dev.http.Addrs()[0]
}

// APIAddr is the URL at which clients reach the plane.
func (p *Part) APIAddr() string {
	if p.server != nil {
		return p.server.apiAddr
	}
	return "http://" + p.Addr().String()
}

func (p *Part) registry() *telemetry.Registry {
	if p.server != nil {
		return p.server.metrics
	}
	return p.dev.metrics
}

// depends are the systems that the plane stores in.
func (p *Part) depends() []doctor.Dependency {
	if p.server == nil {
		return nil
	}
	return p.server.depends()
}

// API answers what the plane's ports answer.
func (p *Part) API() http.Handler {
	if p.server != nil {
		return p.server.plane.api
	}
	return p.dev.api
}

// SealText encrypts what another plane stores: keeper.Keeper has the rules.
func (p *Part) SealText(name string, plain []byte) ([]byte, error) {
	return p.keeper().SealText(name, plain)
}

// OpenText gives what SealText encrypted, on any server of the cluster.
func (p *Part) OpenText(ctx context.Context, name string, text []byte) ([]byte, error) {
	return p.keeper().OpenText(ctx, name, text)
}

func (p *Part) keeper() *keeper.Keeper {
	if p.server != nil {
		return p.server.plane.keeper
	}
	return p.dev.keeper
}

// DevToken is the root token of dev's plane, "" elsewhere.
func (p *Part) DevToken() string {
	if p.dev == nil {
		return ""
	}
	return devToken
}
