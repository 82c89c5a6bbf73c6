package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"corbel.dev/corbel/api/consulapi"
	"corbel.dev/corbel/api/consulapi/agentrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/consulapi/short"
	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/promapi"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/catalog/drainwatch"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/enroll"
	"corbel.dev/corbel/node/forward"
	"corbel.dev/corbel/node/leadership"
	"corbel.dev/corbel/node/plane"
	doctorplane "corbel.dev/corbel/node/planes/doctor"
	meshplane "corbel.dev/corbel/node/planes/mesh"
	"corbel.dev/corbel/node/raftgroup"
	"corbel.dev/corbel/node/spool"
	"corbel.dev/corbel/node/watch"
)

// Process is one Corbel process: a server, a client agent, or dev, which is a
// server that serves its own host's agent API like every server does.
type Process struct {
	*base.Base
	registry *registry.Registry // nil on client agents
	meshes   *meshplane.Server  // nil on client agents
	raft     *raftgroup.Group   // nil on client agents
	reigns   *leadership.Terms  // nil on client agents
	wan      *wan.WAN           // nil on client agents and with ports.serf_wan = -1
	uploads  *spool.Bodies
	beginning
	access access
	mesh   *meshplane.Host
	// introducer is nil but on servers with auto_config.authorization.
	introducer *enroll.Introducer
	local      *local.Local
	api        *consulapi.API
	dns        *dnsapi.Server
	places     places
	http       *httpx.Server
	doors      *plane.Doors
	doctor     *doctorplane.Doctor
	hot        *short.Path                // nil where each request goes through net/http
	https      atomic.Pointer[tls.Config] // of the HTTPS port; replaced by Reload
	watches    *watch.Watches
	serverUp   chan struct{}
	left       chan struct{}   // told when the process left on request: it ends
	warmed     atomic.Bool     // it was ready once, with all planes
	parting    context.Context // ends when parked queries of other processes are to be answered
	part       context.CancelFunc
	reload     func(context.Context) error
}

// New builds the process that cfg describes. It opens files and sockets and
// starts nothing; Run does.
func New(cfg *config.Config, more ...plane.Kind) (*Process, error) {
	if cfg.DataDir == "" && !cfg.Dev {
		return nil, errNoData
	}
	in, err := fault.FromEnv()
	if err != nil {
		return nil, err
	}
	cfg, known, err := enroll.Introduced(in.FS(), cfg)
	if err != nil {
		return nil, err
	}
	b, err := base.New(in, cfg)
	if err != nil {
		return nil, err
	}
	if known != nil {
		b.Certs.Enrolled.Now.Store(known.Certificate(b.Clock.Now()))
	}
	p := &Process{Base: b, serverUp: make(chan struct{}, 1), left: make(chan struct{}, 1),
		uploads: &spool.Bodies{Dir: cfg.DataDir}}
	p.parting, p.part = context.WithCancel(context.Background())
	if err := p.build(more); err != nil {
		p.part()
		p.mesh.Close()
		if p.doors != nil {
			err = errors.Join(err, p.doors.Planes.Close())
		}
		return nil, errors.Join(err, b.Wire.Close())
	}
	return p, nil
}

// build makes the graph, in the order in which its parts start.
func (p *Process) build(more []plane.Kind) (err error) {
	promapi.Declare(p.Metrics)
	p.watches = watch.New(watch.Config{
		API: p.late(), Clock: p.Clock, Log: p.Log, Token: func() string { return p.Tokens.Get(base.TokenDefault) },
	})
	servers := &catalogServers{client: p.RPC, own: func() applier { return nil }, target: p.AnyServer}
	passOn := forward.Config{Client: p.RPC, Leader: func() string { return "" }, Others: p.Others, Changes: p.Pool.Changes,
		Hold: p.Cfg.Raft.RPCHold, Limits: forwardLimits(p.Cfg)}
	if p.Cfg.Server {
		if err := p.buildRegistry(); err != nil {
			return err
		}
		servers.own = func() applier {
			if p.raft.IsLeader() {
				return p.registry
			}
			return nil
		}
		servers.target = p.raft.Target
		p.reigns = &leadership.Terms{Leader: p.raft.LeaderAddr, Changes: p.raft.LeaderChanges}
		passOn.Leader, passOn.Changes, passOn.Terms = p.raft.LeaderAddr, p.raft.LeaderChanges, p.reigns
		var err error
		if p.wan, err = newWAN(p.Base); err != nil {
			return err
		}
	}
	p.doors = plane.NewDoors(p.Base, p.raft, p.access.allows)
	p.buildAccess()
	servers.allow, servers.sees = p.access.maySync(p.registry), p.access.maySee()
	if err := p.buildLocal(servers); err != nil {
		return err
	}
	if err := p.buildIntroducer(); err != nil {
		return err
	}
	if err := p.buildMesh(); err != nil {
		return err
	}
	p.places = newPlaces(p)
	if err := p.buildAPI(forward.New(passOn)); err != nil {
		return err
	}
	if err = plane.Open(append(kinds(), more...), p.doors); err != nil {
		return err
	}
	if p.doctor, err = doctorplane.New(p.doors, &p.access, p.api); err != nil {
		return err
	}
	if err := p.buildHTTP(); err != nil {
		return err
	}
	if err := p.buildDNS(); err != nil {
		return err
	}
	p.answerRPC(servers)
	p.meter()
	p.addParts()
	return nil
}

func forwardLimits(cfg *config.Config) forward.Limits {
	return forward.Limits{Call: cfg.Limits.RPCClient, Block: cfg.Queries.MaxTime * 9 / 8}
}

func (p *Process) buildRegistry() (err error) {
	if p.entries, err = bootstrapEntries(p.Cfg.Definitions.ConfigEntries); err != nil {
		return err
	}
	p.registry, err = registry.New(registry.Config{
		Members: poolMembers{p.Pool}, NodeName: p.Cfg.Node.Name, Datacenter: p.Cfg.Node.Datacenter,
		Version: version.Contract, Clock: p.Clock, Logger: p.Log, Metrics: p.Metrics,
		Fsyncs: func() uint64 { return p.raft.Fsyncs() },
	})
	if err != nil {
		return err
	}
	if _, p.identity, err = meshplane.FirstAuthority(&p.Cfg.Connect); err != nil {
		return err
	}
	p.raft = raftgroup.New(p.Base, p.registry)
	p.registry.SetProposer(p.raft)
	p.meshes, err = meshplane.NewServer(p.raft, &p.access)
	return err
}

// buildMesh makes what this host's services and proxies need.
func (p *Process) buildMesh() (err error) {
	var source meshplane.Source = p.meshes
	if p.meshes == nil {
		if source, err = meshplane.NewClient(p.Base, p.late()); err != nil {
			return err
		}
	}
	p.mesh, err = meshplane.NewHost(meshplane.HostConfig{Base: p.Base, Source: source, Access: &p.access,
		Local: p.local, Sides: p.sides()})
	return err
}

// askMember asks a member with GET, as a server; the doctor is built later.
func (p *Process) askMember(ctx context.Context, node, path string) (int, []byte, error) {
	return p.doctor.Ask(ctx, node, path)
}

// late is the API, which is built later.
func (p *Process) late() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.api.ServeHTTP(w, r) })
}

func (p *Process) buildLocal(servers local.Servers) (err error) {
	cfg := p.Cfg
	interval := cfg.Checks.UpdateInterval
	if interval == 0 {
		interval = -1 // configured as 0s: at once
	}
	p.local, err = local.New(local.Config{
		Node: catalog.Node{ID: p.ID, Name: cfg.Node.Name, Address: cfg.Advertise.Addr, Datacenter: cfg.Node.Datacenter,
			TaggedAddresses: p.taggedAddresses(), Meta: p.nodeMeta(), Locality: locality(&cfg.Node)},
		SidecarMinPort: cfg.Ports.SidecarMin, SidecarMaxPort: cfg.Ports.SidecarMax,
		MayRead: p.mayReadLocal, ReadNode: p.readNode, Servers: servers, Tokens: p.Tokens.Sync,
		ClusterSize: func() int { return len(p.Pool.Members(member.ActShow)) }, ServerUp: p.serverUp,
		FS: p.FS, DataDir: cfg.DataDir, Clock: p.Clock, Log: p.Log, Metrics: p.Metrics, Checks: check.Config{},
		EnableScriptChecks: cfg.Checks.EnableScript, EnableLocalScriptChecks: cfg.Checks.EnableLocalScript,
		CheckUpdateInterval: interval, DiscardCheckOutput: cfg.Checks.DiscardOutput,
		OutputMaxSizeBytes: cfg.Checks.OutputMaxBytes,
	})
	if err != nil {
		return err
	}
	return p.loadDefinitions(cfg)
}

// locality is where the configuration says that this host runs, nil when it does not.
func locality(n *config.Node) *catalog.Locality {
	if n.Region == "" {
		return nil
	}
	return &catalog.Locality{Region: n.Region, Zone: n.Zone}
}

// nodeMeta is what the catalog tells about this node: exactly this on servers.
func (p *Process) nodeMeta() map[string]string {
	meta := map[string]string{"consul-network-segment": "", "consul-version": version.Contract}
	for k, v := range p.Cfg.Node.Meta {
		meta[k] = v
	}
	return meta
}

func (p *Process) taggedAddresses() map[string]string {
	addr, wan := p.Cfg.Advertise.Addr, p.Cfg.Advertise.AddrWAN
	if wan == "" {
		wan = addr
	}
	family := "_ipv4"
	if strings.Contains(addr, ":") {
		family = "_ipv6"
	}
	tagged := map[string]string{"lan": addr, "lan" + family: addr, "wan": wan, "wan" + family: wan}
	for k, v := range p.Cfg.Addresses.Tagged {
		tagged[k] = v
	}
	return tagged
}

// loadDefinitions takes the services and checks of the configuration files.
func (p *Process) loadDefinitions(cfg *config.Config) error {
	services, checks, err := parseDefinitions(&cfg.Definitions)
	list, failed := watch.Parse(cfg.Definitions.Watches)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if err := p.local.SetFileDefinitions(services, checks); err != nil {
		return err
	}
	p.watches.Set(list)
	return nil
}

// Check names every wrong key and value of what the configuration's own package leaves undecoded.
func Check(cfg *config.Config) error {
	_, _, err := meshplane.FirstAuthority(&cfg.Connect)
	return errors.Join(CheckDefinitions(&cfg.Definitions), err, plane.Check(kinds(), cfg),
		enroll.Check(&cfg.AutoConfig))
}

// CheckDefinitions names every wrong key and value of the definitions.
func CheckDefinitions(d *config.Definitions) error {
	_, _, err := parseDefinitions(d)
	_, failed := watch.Parse(d.Watches)
	_, wrong := bootstrapEntries(d.ConfigEntries)
	return errors.Join(err, failed, wrong)
}

func parseDefinitions(d *config.Definitions) ([]*definition.Service, []*definition.Check, error) {
	var services []*definition.Service
	var checks []*definition.Check
	var wrong []error
	for i, m := range d.Services {
		s, err := definition.ServiceFromMap(fmt.Sprintf("services[%d]", i), m)
		services, wrong = append(services, s), append(wrong, err)
	}
	for i, m := range d.Checks {
		c, err := definition.CheckFromMap(fmt.Sprintf("checks[%d]", i), m)
		checks, wrong = append(checks, c), append(wrong, err)
	}
	return services, checks, errors.Join(wrong...)
}

func (p *Process) buildAPI(passOn *forward.Forwarder) (err error) {
	cfg, build := p.Cfg, version.Of()
	grpc, secure := p.mesh.Ports()
	c := consulapi.Config{
		Config: rows.Config{
			Identity: rows.Identity{Datacenter: cfg.Node.Datacenter, PrimaryDatacenter: cfg.Node.PrimaryDatacenter,
				NodeName: cfg.Node.Name, NodeID: p.ID, NodeMeta: p.nodeMeta(), Version: version.Contract, Server: cfg.Server,
				Revision: build.Revision, BuildDate: build.Date, GRPCPort: grpc, GRPCTLSPort: secure},
			Forward: passOn, Authorizer: p.access.tokens, DefaultACLPolicy: cfg.ACL.Policy(),
			DefaultToken: func() string { return p.Tokens.Get(base.TokenDefault) }, RequestLimits: requestLimitsOf(cfg),
			Limits: rows.Limits{KVValueBytes: int64(cfg.Limits.KVMaxValueBytes), TxnBytes: int64(cfg.Limits.TxnMaxBytes)},
			Wait:   httpx.WaitLimits{Default: cfg.Queries.DefaultTime, Max: cfg.Queries.MaxTime}, Clock: p.Clock,
			DiscoveryMaxStale: cfg.Queries.DiscoveryMaxStale, NoCache: !cfg.HTTP.UseCache, Pretty: cfg.Dev,
			TranslateWAN: cfg.Addresses.TranslateWAN, Logger: p.Log, Metrics: p.Metrics},
		Agent: agentrows.Config{Local: p.local, Members: apiMembers{p.Pool}, Events: poolEvents{p.Pool}, Info: info{p},
			Place: p.places.Own, MetricsHandler: promapi.New(p.Metrics), Connections: connections, Lacks: p.lacks, Logs: p.Logs},
		AllowUnprintable: cfg.Limits.AllowUnprintable, BlockEndpoints: cfg.HTTP.BlockEndpoints,
		AllowWriteFrom: cfg.HTTP.AllowWriteFrom, ResponseHeaders: cfg.HTTP.ResponseHeaders,
	}
	c.KV.SessionTTLMin, c.KV.KeyListPolicy = cfg.Queries.SessionTTLMin, cfg.ACL.KeyListPolicy
	c.ACL.Keeper, c.ACL.DownACLPolicy = p.access.keeper, cfg.ACL.DownPolicy
	c.Entries.DefaultIntentionPolicy, c.Entries.ConnectOff = cfg.Connect.DefaultIntentionPolicy, !cfg.Connect.Enabled
	c.Entries.TrustDomain, c.Mesh.Leaves = p.mesh.TrustDomain, meshplane.APILeaves{Leaves: p.mesh.Leaves}
	c.Operator.Coordinates = p.places
	if cfg.ACL.Enabled {
		c.Agent.SetToken = p.setToken
	}
	if p.registry != nil {
		c.Registry, c.LeaderChanges = p.registry, p.raft.LeaderChanges
		c.KV.Sessions, c.Catalog.Leases, c.Mesh.CA = p.registry, p.registry, meshplane.APIAuthority{Authority: p.meshes.CA}
		c.Operator.Group, c.Operator.Snapshots = newOperator(p), snapshots{p.raft, p.Cfg.DataDir}
	}
	if cfg.Connect.Enabled {
		c.Mesh.Proxies = meshplane.View{Host: p.mesh, Ask: p.askMember}
	}
	keys := keyrings{lan: p.Pool}
	if p.wan != nil {
		keys.wan, c.Agent.WAN, c.Remote = p.wan.Pool, apiMembers{p.wan.Pool},
			remote{forward.Datacenters{Paths: p.wan.Paths, Limits: forwardLimits(p.Cfg)}, p.wan}
	}
	if p.Cfg.Server && p.Pool.Encrypted() {
		c.Operator.Keyring = keys
	}
	p.Pool.KeepEvents(p.concerns)
	if p.api, err = consulapi.New(c); err != nil {
		return err
	}
	p.api.SetForwardRate(cfg.Limits.RPCRate, cfg.Limits.RPCMaxBurst)
	return nil
}

// setToken sets one of the agent's own tokens; what it lacked a right for so far is tried again.
func (p *Process) setToken(kind, token string) error {
	err := p.Tokens.Change(kind, token)
	if err == nil {
		p.local.SyncNow()
	}
	return err
}

func (p *Process) addParts() {
	p.AddCommon()
	if p.raft != nil {
		p.Parts.Add("catalog raft", p.raft.Run)
		p.Parts.Add("catalog", p.registry.Run)
		p.Parts.Add("mesh board", p.meshes.Board.Run)
		p.Parts.Add("reigns", p.reigns.Run)
		p.Parts.Add("founding", p.founding)
	}
	switch {
	case p.Cfg.AutoEncrypt.AllowTLS || p.Cfg.AutoConfig.Authorize:
		p.welcome()
	case p.Cfg.AutoEncrypt.TLS:
		p.Parts.Add("auto encrypt", enrolled(p).Run)
	}
	if p.wan != nil {
		addWAN(p.Base, p.wan)
	}
	p.Parts.Add("uploads", func(ctx context.Context) error {
		<-ctx.Done()
		p.uploads.Close()
		return nil
	})
	p.access.addParts(p)
	p.Parts.Add("server watch", p.watchServers)
	p.Parts.Add("local", p.local.Run)
	p.Parts.Add("watches", p.watches.Run)
	p.mesh.AddParts(&p.Parts)
	p.places.addParts(&p.Parts)
	if len(p.Cfg.Listen.DNS) > 0 {
		p.Parts.Add("dns", p.dns.Run)
	}
	if c := p.api.Cache(); c != nil {
		p.Parts.Add("agent cache", c.Run)
	}
	p.doors.Planes.Add(&p.Parts)
	if p.http != nil {
		p.Parts.Add("http", p.http.Run)
		if p.hot != nil { // stops first: parked queries are answered before their connections end
			p.Parts.Add("hot path", p.hot.Run)
		}
	}
	p.Parts.Add("doctor", p.doctor.Run)
	p.Parts.Add("drain watch",
		drainwatch.New(drainwatch.Config{Local: p.local, Told: p.api.Agent.Told, Metrics: p.Metrics}).Run)
	p.Parts.Add("ready", p.announce)
	p.Parts.Add("warm", p.warm)
}

// announce says what was opened, and waits.
func (p *Process) announce(ctx context.Context) error {
	args := []any{"node", p.Cfg.Node.Name, "id", p.ID, "server", p.Cfg.Server, "rpc", p.Wire.Addr().String()}
	if p.http != nil {
		for _, a := range p.http.Addrs() {
			args = append(args, "http", a.String())
		}
	}
	if a := p.dns.Addr(); a.IsValid() {
		args = append(args, "dns", a.String())
	}
	p.Log.Info("corbel "+version.Number+" runs", args...)
	select {
	case <-ctx.Done():
		return nil
	case <-p.left:
		return errLeft
	}
}

var errNoData = errors.New("data_dir: is required")

// errLeft ends a process that was asked to leave over the API.
var errLeft = errors.New("left the cluster on request")

// Run runs the process until ctx ends or it was asked to leave.
func (p *Process) Run(ctx context.Context) error {
	err := p.Base.Run(ctx, errLeft)
	if errors.Is(err, errLeft) {
		return nil
	}
	return err
}

// watchServers tells the agent's anti-entropy when servers appear or a leader is elected.
func (p *Process) watchServers(ctx context.Context) error {
	last := ""
	for {
		changed := p.Pool.Changes()
		var leads <-chan struct{}
		now := strings.Join(p.LivingServers(), " ")
		if p.raft != nil {
			leads = p.raft.LeaderChanges()
			now += " leader " + p.raft.LeaderAddr()
		}
		if now != last && now != "" {
			last = now
			select {
			case p.serverUp <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-leads:
		}
	}
}

// Reload applies a fresh configuration: definitions, log level, TLS, tokens,
// telemetry and DNS. All or nothing as far as the configuration can be wrong.
func (p *Process) Reload(cfg *config.Config) error {
	cfg, _, err := enroll.Introduced(p.FS, cfg)
	if err != nil {
		return err
	}
	var https *tls.Config
	if p.https.Load() != nil {
		if https, err = p.HTTPSTLS(cfg); err != nil {
			return err
		}
	}
	applyMesh, err := p.mesh.Reload(cfg)
	if err != nil {
		return err
	}
	applyPlanes, err := p.doors.Planes.Reload(cfg)
	if err != nil {
		return err
	}
	if err := p.loadDefinitions(cfg); err != nil {
		return err
	}
	if err := p.dns.Reload(dnsSettings(cfg)); err != nil {
		return errors.Join(err, p.loadDefinitions(p.Current()))
	}
	if err := p.Base.Reload(cfg); err != nil {
		return errors.Join(err, p.loadDefinitions(p.Current()))
	}
	if https != nil {
		p.https.Store(https)
	}
	applyMesh()
	applyPlanes()
	p.Ports.Reload(&cfg.Limits)
	p.api.SetRequestLimits(requestLimitsOf(cfg))
	p.api.SetDiscoveryMaxStale(cfg.Queries.DiscoveryMaxStale)
	p.local.SetDiscardOutput(cfg.Checks.DiscardOutput)
	p.api.SetForwardRate(cfg.Limits.RPCRate, cfg.Limits.RPCMaxBurst)
	p.Keep(cfg)
	p.Log.Info("reloaded the configuration")
	return nil
}

func requestLimitsOf(cfg *config.Config) rows.RequestLimits {
	l := &cfg.Limits
	return rows.RequestLimits{Mode: l.RequestMode, ReadRate: l.RequestReadRate, WriteRate: l.RequestWriteRate}
}

// OnReload says how to read the configuration again when the API asks for it.
func (p *Process) OnReload(fn func(context.Context) error) { p.reload = fn }

// callLeader asks the server that leads, from a server.
func (p *Process) callLeader(ctx context.Context, method string, req []byte) ([]byte, error) {
	addr, err := p.raft.Target()
	if err != nil {
		return nil, err
	}
	return p.RPC.Call(ctx, addr, method, req)
}

func memberStatus(pool *member.Pool, id string) string {
	for _, m := range pool.Members(member.ActShow) {
		if m.Tags["id"] == id {
			return m.Status.String()
		}
	}
	return "none"
}
