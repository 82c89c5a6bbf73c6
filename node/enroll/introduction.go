package enroll

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/node/cloudjoin"
	"corbel.dev/corbel/node/config"
)

// MethodIntroduce is the RPC by which an agent that has a JWT alone gets what it needs to be one of the cluster
// (auto_config).
const MethodIntroduce = "agent.introduce"

// Request is what an agent says of itself. JSON: it is asked once in an agent's life.
type Request struct{ Node, Datacenter, JWT, CSR string }

// Introduction is what a server gives an agent. What the agent's own configuration sets wins over it.
type Introduction struct {
	Node, Datacenter, PrimaryDatacenter string
	GossipKey                           string
	VerifyIncoming, VerifyOutgoing      bool
	Join                                []string // gossip addresses of servers
	ACL                                 ACL
	VerifyServerHostname                bool
	TLSMinVersion                       string
	CertPEM                             string
	KeyPEM                              string `json:",omitempty"` // never on the wire: the agent made it
}

type ACL struct {
	Enabled                      bool
	DefaultPolicy, DownPolicy    string
	TokenTTL, PolicyTTL, RoleTTL time.Duration
	KeyListPolicy                bool
	Token                        string // the agent's own
}

// File keeps the introduction in the data directory, key and token included.
const File = "auto-config.json"

// Read returns what was kept, nil when there is none.
func Read(fsys vfs.FS, dir string) (*Introduction, error) {
	path := filepath.Join(dir, File)
	data, err := vfs.ReadDurable(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	in := new(Introduction)
	if err == nil {
		err = json.Unmarshal(data, in)
	}
	if err != nil {
		return nil, fmt.Errorf("read what the servers gave this agent (auto_config): %s: %w; delete the file to be "+
			"introduced again", path, err)
	}
	return in, nil
}

func (in *Introduction) keep(fsys vfs.FS, dir string) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, File), data, 0o600)
}

// over lays the agent's own configuration over what it was given.
func (in *Introduction) over(own *config.Config) *config.Config {
	c := *own
	c.Node.PrimaryDatacenter = cmp.Or(c.Node.PrimaryDatacenter, in.PrimaryDatacenter)
	if c.Gossip.Encrypt == "" {
		c.Gossip.Encrypt, c.Gossip.VerifyIncoming, c.Gossip.VerifyOutgoing = in.GossipKey, in.VerifyIncoming,
			in.VerifyOutgoing
	}
	if len(c.Gossip.RetryJoin)+len(c.Gossip.StartJoin) == 0 {
		c.Gossip.RetryJoin = in.Join
	}
	if given := in.ACL; given.Enabled && !c.ACL.Enabled {
		c.ACL.Enabled, c.ACL.DefaultPolicy, c.ACL.DownPolicy, c.ACL.KeyListPolicy = true, given.DefaultPolicy,
			given.DownPolicy, given.KeyListPolicy
		c.ACL.TokenTTL, c.ACL.PolicyTTL, c.ACL.RoleTTL = given.TokenTTL, given.PolicyTTL, given.RoleTTL
	}
	c.ACL.Agent = cmp.Or(c.ACL.Agent, in.ACL.Token)
	for _, b := range []*config.TLSBlock{&c.TLS.InternalRPC, &c.TLS.HTTPS, &c.TLS.GRPC} {
		b.MinVersion = cmp.Or(in.TLSMinVersion, b.MinVersion)
	}
	c.TLS.InternalRPC.VerifyServerHostname = c.TLS.InternalRPC.VerifyServerHostname || in.VerifyServerHostname
	return &c
}

// Certificate is the kept one, nil when it has ended.
func (in *Introduction) Certificate(now time.Time) *tls.Certificate {
	c, err := tls.X509KeyPair([]byte(in.CertPEM), []byte(in.KeyPEM))
	if err != nil || !now.Before(c.Leaf.NotAfter) {
		return nil
	}
	return &c
}

// Introduced is cfg with what the servers gave this agent, for an agent of auto_config; else cfg itself.
func Introduced(fsys vfs.FS, cfg *config.Config) (*config.Config, *Introduction, error) {
	if !cfg.AutoConfig.Enabled {
		return cfg, nil, nil
	}
	in, err := Read(fsys, cfg.DataDir)
	if err == nil && in == nil {
		err = errors.New("auto_config: no server has introduced this agent yet")
	}
	if err != nil {
		return nil, nil, err
	}
	return in.over(cfg), in, nil
}

// Introduce has a server introduce this agent (auto_config) where it was not
// introduced before; the result lies in data_dir. It tries the servers, as a stranger with id, until ctx ends.
func Introduce(ctx context.Context, cfg *config.Config, id *wire.TLS, faults *fault.Injector, log *slog.Logger) error {
	in, err := Read(faults.FS(), cfg.DataDir)
	if err != nil || in != nil && in.Node == cfg.Node.Name && in.Datacenter == cfg.Node.Datacenter {
		return err
	}
	client, done, err := Stranger(id, faults, log)
	if err != nil {
		return err
	}
	defer done()
	pause := backoff.Backoff{Min: retryMin, Max: retryMax}
	for {
		in, err := Ask(ctx, client, cfg)
		if err == nil {
			return in.keep(faults.FS(), cfg.DataDir)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		log.Warn("no server has introduced this agent yet (auto_config)", "error", err)
		t := time.NewTimer(pause.Next())
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// Stranger calls servers without a certificate.
func Stranger(id *wire.TLS, faults *fault.Injector, log *slog.Logger) (client *rpc.Client, done func(), err error) {
	// Nobody is accepted here: the wire is for dialling alone.
	w, err := wire.New(wire.Config{Bind: "127.0.0.1:0", TLS: id, Faults: faults.Net(), Log: log})
	if err != nil {
		return nil, nil, err
	}
	client = Client(w)
	return client, func() { _, _ = client.Close(), w.Close() }, nil
}

// Ask asks the configured servers in random order until one answers.
func Ask(ctx context.Context, client *rpc.Client, cfg *config.Config) (*Introduction, error) {
	token, err := introToken(&cfg.AutoConfig)
	if err != nil {
		return nil, err
	}
	var errs []error
	var clouds cloudjoin.Asker
	list, err := clouds.Resolve(ctx, cfg.AutoConfig.ServerAddresses)
	if err != nil {
		errs = append(errs, err)
	}
	for _, i := range rand.Perm(len(list)) {
		port := cfg.Ports.Server
		if port <= 0 {
			port = defaultServerPort
		}
		addr := cloudjoin.WithPort(list[i], port)
		in, err := introduceAt(ctx, client, cfg, addr, token)
		if err == nil {
			return in, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, err))
	}
	return nil, errors.Join(errs...)
}

const defaultServerPort = 8300

func introToken(c *config.AutoConfig) (string, error) {
	if c.IntroToken != "" {
		return c.IntroToken, nil
	}
	text, err := os.ReadFile(c.IntroTokenFile)
	if err != nil {
		return "", fmt.Errorf("auto_config.intro_token_file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func introduceAt(ctx context.Context, client *rpc.Client, cfg *config.Config, addr,
	token string) (*Introduction, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	id, key, csr, err := agentRequest(ctx, client, cfg, addr)
	if err != nil {
		return nil, err
	}
	req, err := json.Marshal(Request{Node: cfg.Node.Name, Datacenter: cfg.Node.Datacenter, JWT: token, CSR: csr})
	if err != nil {
		return nil, err
	}
	reply, err := client.Call(ctx, addr, MethodIntroduce, req)
	if err != nil {
		return nil, err
	}
	in := new(Introduction)
	if err := json.Unmarshal(reply, in); err != nil {
		return nil, errkind.E(errkind.Corrupt, "read an introduction", err)
	}
	in.Node, in.Datacenter, in.KeyPEM = cfg.Node.Name, cfg.Node.Datacenter, key
	if _, err := ownCertificate(in.CertPEM, key, id); err != nil {
		return nil, err
	}
	return in, nil
}

// AskAsIntroduced gets the next certificate of an agent that was introduced: over RPC with its present one and its
// token, or, where these open nothing any more, by being introduced again.
func (a *Agent) AskAsIntroduced(ctx context.Context, client *rpc.Client) (*tls.Certificate, error) {
	in, err := Read(a.FS, a.Config.DataDir)
	if err != nil {
		return nil, err
	}
	var failed error
	if a.Certificate() != nil && in != nil {
		cert, err := a.Renew(ctx, in)
		if err == nil {
			return cert, in.keep(a.FS, a.Config.DataDir)
		}
		failed = err
	}
	if in, err = Ask(ctx, client, a.Config); err != nil {
		return nil, errors.Join(failed, err)
	}
	if err := in.keep(a.FS, a.Config.DataDir); err != nil {
		return nil, err
	}
	a.SetTokens(&in.over(a.Current()).ACL)
	c, err := tls.X509KeyPair([]byte(in.CertPEM), []byte(in.KeyPEM))
	return &c, err
}

// Renew puts the next certificate in in.
func (a *Agent) Renew(ctx context.Context, in *Introduction) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addr, err := a.Server()
	if err != nil {
		return nil, err
	}
	id, key, csr, err := agentRequest(ctx, a.RPC, a.Config, addr)
	if err != nil {
		return nil, err
	}
	req := issue.Request{Token: a.Token(), CSR: csr}
	reply, err := a.RPC.Call(ctx, addr, issue.Method, req.AppendPack(nil))
	if err != nil {
		return nil, err
	}
	signed, err := issue.ReadCertificate(reply)
	if err != nil {
		return nil, err
	}
	in.CertPEM, in.KeyPEM = signed.CertPEM, key
	return ownCertificate(in.CertPEM, key, id)
}
