package node

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/login"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
)

// methodResolve is the RPC that asks a server what a token allows.
const methodResolve = "acl.resolve"

// resetFile, in data_dir, holds the index that lets an operator bootstrap ACLs once more.
const resetFile = "acl-bootstrap-reset"

// access is what decides who may do what.
type access struct {
	tokens   rows.Authorizer
	resolver *grants.Resolver // nil on client agents and while ACLs are off
	keeper   *grants.Keeper   // the same
	agent    *grants.Agent    // on client agents alone
}

func (a *access) addParts(p *Process) {
	if a.keeper != nil {
		p.Parts.Add("acl", a.keeper.Run)
	}
	if a.agent != nil {
		p.Parts.Add("acl", a.agent.Run)
	}
}

// Grant resolves a token.
func (a *access) Grant(ctx context.Context, token string) (*acl.Grant, error) {
	return a.tokens.Grant(ctx, token)
}

// GrantWithin is Grant with what is known since age at most.
func (a *access) GrantWithin(ctx context.Context, token string, age time.Duration) (*acl.Grant, error) {
	return a.tokens.GrantWithin(ctx, token, age)
}

// allows tells whether a request's token has a right. What a server asks on its own behalf has been judged there.
func (a *access) allows(r *http.Request, right plane.Right) bool {
	if _, open := a.tokens.(rows.AllowAll); open || rows.IsJudged(r.Context()) {
		return true
	}
	grant, err := a.tokens.Grant(r.Context(), rows.Secret(r))
	return err == nil && grant.Allow(right.Resource, right.Name, right.Level)
}

// maySync judges on the leader what agents' anti-entropy asks for; nil allows everything.
func (a *access) maySync(reg *registry.Registry) func(token string, c catalog.Command) error {
	if a.resolver == nil {
		return nil
	}
	return func(token string, c catalog.Command) error {
		g, err := a.resolver.Grant(context.Background(), token) // reads the State: it does not wait
		if err != nil {
			return err
		}
		return grants.MaySync(g, reg.State(), c)
	}
}

// maySee leaves, of a node's registrations, what a token may see on the leader; nil shows everything.
func (a *access) maySee() func(token string, list []*catalog.Register) ([]*catalog.Register, error) {
	if a.resolver == nil {
		return nil
	}
	return func(token string, list []*catalog.Register) ([]*catalog.Register, error) {
		g, err := a.resolver.Grant(context.Background(), token) // reads the State: it does not wait
		if err != nil {
			return nil, err
		}
		return visible(g, list), nil
	}
}

// visible is the part of a node's registrations that g may read, as the API shows them.
func visible(g *acl.Grant, list []*catalog.Register) (out []*catalog.Register) {
	names := map[string]string{} // of services, by ID
	for _, r := range list {
		if r.Service != nil {
			names[r.Service.ID] = r.Service.Name
		}
	}
	for _, r := range list {
		if !g.Allow(acl.Node, r.Node.Name, acl.Read) || r.Service != nil && !g.Allow(acl.Service, r.Service.Name, acl.Read) {
			continue
		}
		seen := *r
		seen.Checks = nil
		for _, c := range r.Checks {
			if c.ServiceID == "" || g.Allow(acl.Service, cmp.Or(c.ServiceName, names[c.ServiceID]), acl.Read) {
				seen.Checks = append(seen.Checks, c)
			}
		}
		out = append(out, &seen)
	}
	return out
}

// buildAccess makes what resolves tokens: from the records on a server, by asking one on a client agent.
func (p *Process) buildAccess() {
	c := &p.Cfg.ACL
	if !c.Enabled {
		p.access.tokens = rows.AllowAll{}
		return
	}
	recovery := func() string { return p.Tokens.Get(base.TokenRecovery) }
	allow := c.DefaultPolicy == "allow"
	if p.registry == nil {
		p.access.agent = grants.NewAgent(grants.AgentConfig{Fetch: p.resolveRemotely, NodeName: p.Cfg.Node.Name,
			AllowByDefault: allow,
			DownPolicy:     c.DownPolicy, TTL: min(c.TokenTTL, c.PolicyTTL, c.RoleTTL), Recovery: recovery, Clock: p.Clock,
			Logger: p.Log})
		p.access.tokens = p.access.agent
		return
	}
	p.access.resolver = grants.NewResolver(grants.Config{
		Now: func() (uint64, *catalog.State) {
			generation := p.registry.Generation()
			return generation, p.registry.State()
		},
		Datacenter: p.Cfg.Node.Datacenter, NodeName: p.Cfg.Node.Name, AllowByDefault: allow, Recovery: recovery,
		InitialManagement: c.InitialManagement, Clock: p.Clock,
	})
	p.access.tokens = p.access.resolver
	p.access.keeper = grants.NewKeeper(grants.KeeperConfig{
		Store: p.registry, Leader: p.raft, Datacenter: p.Cfg.Node.Datacenter, InitialManagement: c.InitialManagement,
		ResetIndex: p.bootstrapReset, Verifier: login.New(p.Clock), Clock: p.Clock, Logger: p.Log,
	})
	p.RPCSrv.Handle(wire.Members, methodResolve, serveResolve(p.access.resolver))
}

// bootstrapReset reads the index in the reset file, or removes the file when it has done its duty.
func (p *Process) bootstrapReset(done bool) uint64 {
	if p.Cfg.DataDir == "" {
		return 0
	}
	path := filepath.Join(p.Cfg.DataDir, resetFile)
	if done {
		if err := p.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.Log.Warn("remove this file: it would allow another ACL bootstrap", "file", path, "err", err)
		}
		return 0
	}
	data, err := vfs.ReadFile(p.FS, path)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			p.Log.Warn("cannot read the ACL bootstrap reset file", "file", path, "err", err)
		}
		return 0
	}
	index, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		p.Log.Warn("the ACL bootstrap reset file holds no index", "file", path)
	}
	return index
}

// resolveRemotely asks a server about a token.
func (p *Process) resolveRemotely(ctx context.Context, secret string) (grants.Resolution, error) {
	reply, err := p.Others.Ask(ctx, methodResolve, pack.String(nil, secret))
	if err != nil {
		return grants.Resolution{}, err
	}
	return grants.ReadResolution(reply)
}

func serveResolve(r *grants.Resolver) rpc.Handler {
	return func(ctx context.Context, req []byte) ([]byte, error) {
		rd := pack.Read(req)
		secret := rd.String()
		if rd.Err() != nil {
			return nil, errkind.E(errkind.Invalid, "read a token to resolve", rd.Err())
		}
		res, err := r.Resolve(ctx, secret)
		if err != nil {
			return nil, err
		}
		return res.AppendPack(nil), nil
	}
}

// dnsAccess is what a token may read over DNS. nil allows everything.
func (p *Process) dnsAccess() func(token string) dnsapi.Access {
	if _, open := p.access.tokens.(rows.AllowAll); open {
		return nil
	}
	var last atomic.Pointer[dnsRights]
	return func(token string) dnsapi.Access {
		g, err := p.access.tokens.Grant(context.Background(), token) // an agent's Grant bounds its own waiting
		if err != nil {
			g = nobody
		}
		r := last.Load()
		if r == nil || r.grant != g {
			r = newDNSRights(g)
			last.Store(r)
		}
		return r.access
	}
}

// dnsToken is the token of this process's DNS clients: that for DNS, or else the default one.
func (p *Process) dnsToken() string {
	return cmp.Or(p.Tokens.Get(base.TokenDNS), p.Tokens.Get(base.TokenDefault))
}

// nobody may see nothing.
var nobody = &acl.Grant{Authorizer: acl.Compile(acl.Deny)}

// dnsRights is a grant as DNS looks at it.
type dnsRights struct {
	grant  *acl.Grant
	access dnsapi.Access
}

func newDNSRights(g *acl.Grant) *dnsRights {
	may := func(r acl.Resource) func(string) bool {
		return func(name string) bool { return g.Allow(r, name, acl.Read) }
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(g.Class())) // answers differ only between classes
	return &dnsRights{g, dnsapi.Access{Version: h.Sum64(), Node: may(acl.Node), Service: may(acl.Service)}}
}
