package node

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
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/config"
)

// methodIntroduce is the RPC by which an agent that has a JWT alone gets what it needs to be one of the cluster
// (auto_config).
const methodIntroduce = "agent.introduce"

// introRequest is what an agent says of itself. JSON: it is asked once in an agent's life.
type introRequest struct{ Node, Datacenter, JWT, CSR string }

// introduction is what a server gives an agent. What the agent's own configuration sets wins over it.
type introduction struct {
	Node, Datacenter, PrimaryDatacenter string
	GossipKey                           string
	VerifyIncoming, VerifyOutgoing      bool
	Join                                []string // gossip addresses of servers
	ACL                                 introACL
	VerifyServerHostname                bool
	TLSMinVersion                       string
	CertPEM                             string
	KeyPEM                              string `json:",omitempty"` // never on the wire: the agent made it
}

type introACL struct {
	Enabled                      bool
	DefaultPolicy, DownPolicy    string
	TokenTTL, PolicyTTL, RoleTTL time.Duration
	KeyListPolicy                bool
	Token                        string // the agent's own
}

// introFile keeps the introduction in the data directory, key and token included.
const introFile = "auto-config.json"

// readIntroduction returns nil when there is none.
func readIntroduction(fsys vfs.FS, dir string) (*introduction, error) {
	path := filepath.Join(dir, introFile)
	data, err := vfs.ReadDurable(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	in := new(introduction)
	if err == nil {
		err = json.Unmarshal(data, in)
	}
	if err != nil {
		return nil, fmt.Errorf("read what the servers gave this agent (auto_config): %s: %w; delete the file to be "+
			"introduced again", path, err)
	}
	return in, nil
}

func (in *introduction) keep(fsys vfs.FS, dir string) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, introFile), data, 0o600)
}

// over lays the agent's own configuration over what it was given.
func (in *introduction) over(own *config.Config) *config.Config {
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

// certificate is the kept one, nil when it has ended.
func (in *introduction) certificate(now time.Time) *tls.Certificate {
	c, err := tls.X509KeyPair([]byte(in.CertPEM), []byte(in.KeyPEM))
	if err != nil || !now.Before(c.Leaf.NotAfter) {
		return nil
	}
	return &c
}

// introduced is cfg with what the servers gave this agent, for an agent of auto_config; else cfg itself.
func introduced(fsys vfs.FS, cfg *config.Config) (*config.Config, *introduction, error) {
	if !cfg.AutoConfig.Enabled {
		return cfg, nil, nil
	}
	in, err := readIntroduction(fsys, cfg.DataDir)
	if err == nil && in == nil {
		err = errors.New("auto_config: no server has introduced this agent yet")
	}
	if err != nil {
		return nil, nil, err
	}
	return in.over(cfg), in, nil
}

// Introduce has a server introduce this agent where its configuration wants that (auto_config) and it was not
// introduced before; New needs the result, which lies in data_dir. It tries the servers until ctx ends.
func Introduce(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	if !cfg.AutoConfig.Enabled {
		return nil
	}
	if cfg.DataDir == "" {
		return errNoData
	}
	faults, err := fault.FromEnv()
	if err != nil {
		return err
	}
	in, err := readIntroduction(faults.FS(), cfg.DataDir)
	if err != nil || in != nil && in.Node == cfg.Node.Name && in.Datacenter == cfg.Node.Datacenter {
		return err
	}
	client, done, err := strangersClient(cfg, faults, log)
	if err != nil {
		return err
	}
	defer done()
	pause := backoff.Backoff{Min: enrolRetryMin, Max: enrolRetryMax}
	for {
		in, err := askIntroduction(ctx, client, cfg)
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

// strangersClient calls servers without a certificate.
func strangersClient(cfg *config.Config, faults *fault.Injector, log *slog.Logger) (client *rpc.Client, done func(),
	err error) {
	id, err := new(base.Enrolled).Identity(&cfg.TLS.InternalRPC, cfg)
	if err != nil {
		return nil, nil, err
	}
	// Nobody is accepted here: the wire is for dialling alone.
	w, err := wire.New(wire.Config{Bind: "127.0.0.1:0", TLS: id, Faults: faults.Net(), Log: log})
	if err != nil {
		return nil, nil, err
	}
	client = enrolClient(w)
	return client, func() { _, _ = client.Close(), w.Close() }, nil
}

// askIntroduction asks the configured servers in random order until one answers.
func askIntroduction(ctx context.Context, client *rpc.Client, cfg *config.Config) (*introduction, error) {
	token, err := introToken(&cfg.AutoConfig)
	if err != nil {
		return nil, err
	}
	var errs []error
	list := cfg.AutoConfig.ServerAddresses
	for _, i := range rand.Perm(len(list)) {
		addr := list[i]
		if _, _, err := net.SplitHostPort(addr); err != nil {
			port := cfg.Ports.Server
			if port <= 0 {
				port = defaultServerPort
			}
			addr = net.JoinHostPort(strings.Trim(addr, "[]"), strconv.Itoa(port))
		}
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
	token string) (*introduction, error) {
	ctx, cancel := context.WithTimeout(ctx, enrolTimeout)
	defer cancel()
	id, key, csr, err := agentRequest(ctx, client, cfg, addr)
	if err != nil {
		return nil, err
	}
	req, err := json.Marshal(introRequest{Node: cfg.Node.Name, Datacenter: cfg.Node.Datacenter, JWT: token, CSR: csr})
	if err != nil {
		return nil, err
	}
	reply, err := client.Call(ctx, addr, methodIntroduce, req)
	if err != nil {
		return nil, err
	}
	in := new(introduction)
	if err := json.Unmarshal(reply, in); err != nil {
		return nil, errkind.E(errkind.Corrupt, "read an introduction", err)
	}
	in.Node, in.Datacenter, in.KeyPEM = cfg.Node.Name, cfg.Node.Datacenter, key
	if _, err := ownCertificate(in.CertPEM, key, id); err != nil {
		return nil, err
	}
	return in, nil
}

// askAsIntroduced gets the next certificate of an agent that was introduced: over RPC with its present one and its
// token, or, where these open nothing any more, by being introduced again.
func (p *Process) askAsIntroduced(ctx context.Context, client *rpc.Client) (*tls.Certificate, error) {
	in, err := readIntroduction(p.FS, p.Cfg.DataDir)
	if err != nil {
		return nil, err
	}
	var failed error
	if p.Certs.Enrolled.Now.Load() != nil && in != nil {
		cert, err := p.renewOverRPC(ctx, in)
		if err == nil {
			return cert, in.keep(p.FS, p.Cfg.DataDir)
		}
		failed = err
	}
	if in, err = askIntroduction(ctx, client, p.Cfg); err != nil {
		return nil, errors.Join(failed, err)
	}
	if err := in.keep(p.FS, p.Cfg.DataDir); err != nil {
		return nil, err
	}
	p.Tokens.Reload(&in.over(p.Current()).ACL)
	c, err := tls.X509KeyPair([]byte(in.CertPEM), []byte(in.KeyPEM))
	return &c, err
}

// renewOverRPC puts the next certificate in in.
func (p *Process) renewOverRPC(ctx context.Context, in *introduction) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, enrolTimeout)
	defer cancel()
	addr, err := p.anyServer()
	if err != nil {
		return nil, err
	}
	id, key, csr, err := agentRequest(ctx, p.RPC, p.Cfg, addr)
	if err != nil {
		return nil, err
	}
	req := issue.Request{Token: p.agentToken(), CSR: csr}
	reply, err := p.RPC.Call(ctx, addr, issue.Method, req.AppendPack(nil))
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
