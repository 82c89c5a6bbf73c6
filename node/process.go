package node

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"corbel.dev/corbel/api/consulapi"
	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/notify"
	"corbel.dev/corbel/kit/vivaldi"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/forward"
	"corbel.dev/corbel/node/plane"
	catalogplane "corbel.dev/corbel/node/planes/catalog"
	meshplane "corbel.dev/corbel/node/planes/mesh"
)

// Process is a server or a client agent as whoever starts it sees it. dev is a server that serves its own host's agent
// API like every server does.
type Process interface {
	// Run runs the process until ctx ends or it was asked to leave.
	Run(ctx context.Context) error
	Drain(ctx context.Context, leaves bool)
	Leave(ctx context.Context) error
	Reload(cfg *config.Config) error
	OnReload(fn func(context.Context) error)
	SecretsAddr() net.Addr
	MonitorAddrs() (api, agents string)
	Health() notify.Health
}

// role is what servers do otherwise than client agents. It is made before the parts of its localAgent, and knows those
// only when it is called.
type role interface {
	// servers is the catalog for this host's anti-entropy.
	servers() *catalogplane.Servers
	// meshSource is where the mesh of this host comes from.
	meshSource() meshplane.Source
	// What the role adds: to how requests are passed on, to the API, to DNS, to what RPC answers, and to what runs.
	passOn(c *forward.Config)
	configureAPI(c *consulapi.Config)
	configureDNS(c *dnsapi.Config)
	answers(servers *catalogplane.Servers)
	runs()
	// roleOf is by which role an address is known on a plain network.
	roleOf(addr netip.Addr, proto wire.Protocol) wire.Role
	// place has the coordinate of this node written.
	place(ctx context.Context, at vivaldi.Coord) error
	// leader is the catalog's, and changes tells of the next one; nil where that is not known.
	leader() (addr string, changes <-chan struct{})
	// missing is what the role waits for before the process is ready; announceReady says that it is.
	missing() []string
	announceReady(ctx context.Context)
	// handOver gives to other servers what they can have.
	handOver(ctx context.Context)
	// leaving and gone are what is to do before and after the pool was told that the process leaves.
	leaving(ctx context.Context)
	gone(ctx context.Context)
	// stop answers what is parked for other processes.
	stop()
	// addStats adds what tools read.
	addStats(stats map[string]map[string]string)
}

// New builds the process that cfg describes. It opens files and sockets and
// starts nothing; Run does.
func New(cfg *config.Config, more ...plane.Kind) (Process, error) {
	a, err := newLocalAgent(cfg)
	if err != nil {
		return nil, err
	}
	var p Process
	if a.Cfg.Server {
		p, err = newServer(a)
	} else {
		p, err = newAgent(a)
	}
	if err == nil {
		err = a.build(more)
	}
	if err != nil {
		return nil, errors.Join(err, a.abandon())
	}
	return p, nil
}

var errNoData = errors.New("data_dir: is required")

// errLeft ends a process that was asked to leave over the API.
var errLeft = errors.New("left the cluster on request")
