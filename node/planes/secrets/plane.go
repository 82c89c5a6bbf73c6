package secretsplane

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/vaultapi"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/notify"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/admission"
	"corbel.dev/corbel/node/planes/secrets/joinfrom"
	"corbel.dev/corbel/node/planes/secrets/registration"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/cluster"
	"corbel.dev/corbel/secrets/keeper"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/telemetry"
)

// secretsPlane is the secrets plane of a process: storage, keeper, its part in a cluster, and the ports.
type secretsPlane struct {
	store   secretsStore
	keeper  *keeper.Keeper
	cluster *cluster.Cluster // nil where one server has the storage for itself
	api     *vaultapi.API
	http    *secretsPorts
	log     *slog.Logger
	metrics *telemetry.Registry // of the plane alone; nil where the process has one in Vault's names
	auto    bool                // nobody is needed to unseal
}

// secretsConfig is what a plane is made of.
type secretsConfig struct {
	store       secretsStore
	keeper      keeper.Config // but Storage, Log and Leads
	api         vaultapi.Config
	self        cluster.Server
	wire        *wire.Wire // the cluster's; nil without one
	encrypted   bool
	standbys    bool          // answer reads
	evidence    func() []byte // for other servers; nil without a doctor
	clock       clock.Clock
	log         *slog.Logger
	metrics     *telemetry.Registry
	admits      *admission.Ports
	ports       []secretsPort
	headerBytes int
	front       func(http.Handler) http.Handler // what is at each port beside the API; nil is nothing
	sockets     *notify.Sockets
}

// withFront is the handler of a port.
func (c *secretsConfig) withFront(api http.Handler) http.Handler {
	if c.front == nil {
		return api
	}
	return c.front(api)
}

// newSecretsPlane builds a plane. It opens no port; bind does.
func newSecretsPlane(c secretsConfig) (*secretsPlane, error) {
	p := &secretsPlane{store: c.store, log: c.log, auto: c.keeper.Seal != nil}
	c.keeper.Storage, c.keeper.Log, c.keeper.Now = c.store.backend, c.log, c.clock.Now
	c.keeper.APIAddr = c.address()
	c.api.Version, c.api.StorageType = version.VaultContract, c.store.backend.Info().Name
	if c.keeper.Metrics == nil {
		p.metrics = vaultMetrics(c.clock, c.metrics.Traces())
		c.keeper.Metrics = p.metrics
	}
	if c.store.lock != nil {
		p.cluster = cluster.New(cluster.Config{Self: c.self, Storage: c.store.backend, Lock: c.store.lock, Raft: c.store.raft,
			Wire: c.wire, Encrypted: c.encrypted,
			Authority: c.store.raft == nil, StandbyReads: c.standbys, Evidence: c.evidence, Metrics: c.keeper.Metrics,
			Clock: c.clock, Log: c.log})
		c.keeper.Leads, c.keeper.StepDown, c.keeper.System = p.cluster.Leads, p.cluster.StepDown, p.cluster.System
		if c.store.raft != nil {
			c.keeper.Joining = c.store.raft.Joining
		}
	} else {
		c.keeper.System = cluster.Alone(cluster.Server{Hostname: hostname(), APIAddr: c.address(),
			Version: version.VaultContract})
	}
	if c.keeper.Local.Settings == nil {
		c.keeper.Local.Settings = c.settings
	}
	if c.api.Doctor != nil {
		c.keeper.System = withDoctor(c.keeper.System)
	}
	c.keeper.Local.Metrics, c.keeper.Local.Version = metricsOf(c.keeper.Metrics), version.VaultContract
	var err error
	if p.keeper, err = keeper.New(c.keeper); err != nil {
		return nil, err
	}
	c.api.Keeper, c.api.Cluster = p.keeper, p.cluster
	c.api.Traces = c.keeper.Metrics.Traces()
	c.api.Bytes = c.admits.Bytes
	p.api = vaultapi.New(c.api)
	if p.cluster != nil {
		p.cluster.Attach(p.keeper, p.api)
	}
	p.http, err = newSecretsPorts(p.api, &c)
	return p, err
}

// run serves until ctx ends, and seals then. The storage is closed by whoever opened it.
func (p *secretsPlane) run(ctx context.Context) error {
	defer p.keeper.Seal()
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	if p.metrics != nil {
		background.Go(func() { _ = p.metrics.Run(ctx) }) // it ends with ctx alone
	}
	background.Go(func() { p.begin(ctx) })
	if p.cluster != nil {
		background.Go(func() { _ = p.cluster.Run(ctx) }) // it ends with ctx alone
	} else {
		background.Go(func() { p.keeper.Run(ctx) })
	}
	return p.http.Run(ctx)
}

// state is what a catalog is told. A sealed keeper asks the storage, which may hang.
func (p *secretsPlane) state(ctx context.Context) (registration.State, error) {
	if !p.keeper.Sealed() {
		return registration.State{Initialized: true, Standby: p.keeper.Standby()}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	st, err := p.keeper.SealStatus(ctx)
	return registration.State{Initialized: st.Initialized, Sealed: st.Sealed}, err
}

// begin joins the cluster that the configuration names, and unseals where nobody is needed for it. What an operator
// seals later stays sealed.
func (p *secretsPlane) begin(ctx context.Context) {
	pause := backoff.Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}
	for n := 0; ctx.Err() == nil && !p.began(ctx, n); n++ {
		t := time.NewTimer(pause.Next())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// began does what is left to do; true when that is nothing.
func (p *secretsPlane) began(ctx context.Context, tries int) bool {
	tell := slog.LevelDebug
	if tries%10 == 1 {
		tell = slog.LevelWarn
	}
	if raft := p.store.raft; raft != nil && len(p.store.retry) > 0 && !raft.Member() && !raft.Invited() {
		if !p.join(ctx, raft, tell) {
			return false
		}
	}
	if !p.auto {
		return true
	}
	st, err := p.keeper.SealStatus(ctx)
	done := false
	if err == nil {
		if st.Migration {
			p.log.Warn("secrets: the configuration names another seal than the storage uses: unseal with -migrate to change it",
				"storage", st.Config.Type)
			return true
		}
		done, err = p.keeper.FirstUnseal(ctx)
	}
	if err != nil {
		p.log.Log(ctx, tell, "secrets: cannot unseal by the automatic seal yet: tried again", "error", err)
		return false
	}
	return done // else it is not initialized: another server may do it
}

// join asks the servers that the configuration names, one after another, and passes by this one, which may be among
// them.
func (p *secretsPlane) join(ctx context.Context, raft *cluster.Node, tell slog.Level) bool {
	targets, err := joinfrom.Targets(ctx, p.store.retry)
	if err != nil {
		p.log.Log(ctx, tell, "secrets: cannot ask a cloud for servers to join: tried again", "error", err)
	}
	for _, target := range targets {
		if p.cluster != nil && strings.TrimSuffix(target.APIAddr, "/") == strings.TrimSuffix(p.cluster.Self().APIAddr, "/") {
			continue
		}
		err := raft.Join(ctx, target)
		if err == nil {
			p.log.Info("secrets: this server may join a cluster once it is unsealed", "server", target.APIAddr)
			return true
		}
		p.log.Log(ctx, tell, "secrets: cannot join the cluster yet: tried again", "server", target.APIAddr, "error", err)
	}
	return false
}

// address is where clients reach the plane: as it was configured, else its first listener.
func (c *secretsConfig) address() string {
	if c.self.APIAddr != "" {
		return c.self.APIAddr
	}
	if len(c.ports) == 0 || strings.HasPrefix(c.ports[0].listen.Address, "unix:") {
		return ""
	}
	scheme := "http://"
	if c.ports[0].listen.TLS != nil {
		scheme = "https://"
	}
	return scheme + c.ports[0].listen.Address
}

// settings is what sys/config/state/sanitized tells of a plane without a configuration in Vault's words.
func (c *secretsConfig) settings() map[string]any {
	listeners := []any{}
	for _, p := range c.ports {
		listeners = append(listeners, map[string]any{"type": "tcp", "config": map[string]any{"address": p.listen.Address,
			"tls_disable": p.listen.TLS == nil}})
	}
	return map[string]any{"storage": map[string]any{"type": c.store.backend.Info().Name}, "listeners": listeners,
		"seals": []any{}, "api_addr": c.address(),
		"cluster_name": c.keeper.ClusterName, "default_lease_ttl": int64(c.keeper.DefaultTTL / time.Second),
		"max_lease_ttl": int64(c.keeper.MaxTTL / time.Second)}
}

// newDevSecrets makes a plane in memory, unsealed with one key, and with KV of a version at secret/.
func newDevSecrets(c secretsConfig, token, kvVersion string) (*secretsPlane, *keeper.Initialized, error) {
	c.store, c.keeper.ClusterName = secretsStore{backend: memstore.New()}, "corbel-dev"
	p, err := newSecretsPlane(c)
	if err != nil {
		return nil, nil, err
	}
	ctx := context.Background()
	first, err := p.keeper.Init(ctx, 1, 1, token)
	if err != nil {
		return nil, nil, err
	}
	if _, err := p.keeper.Unseal(ctx, first.Shares[0]); err != nil {
		return nil, nil, err
	}
	_, err = p.keeper.Handle(ctx, &secrets.Request{Op: secrets.Update, Path: "sys/mounts/secret",
		Caller: secrets.Caller{Token: first.RootToken},
		Body:   []byte(`{"type":"kv","options":{"version":"` + kvVersion + `"},"description":"key/value secret storage"}`)})
	return p, first, err
}

// hostname is this machine's, for people.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
