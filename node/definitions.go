package node

import (
	"errors"
	"fmt"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/enroll"
	"corbel.dev/corbel/node/plane"
	meshplane "corbel.dev/corbel/node/planes/mesh"
	"corbel.dev/corbel/node/watch"
)

func (p *localAgent) buildLocal(servers local.Servers) (err error) {
	cfg := p.Cfg
	interval := cfg.Checks.UpdateInterval
	if interval == 0 {
		interval = -1 // configured as 0s: at once
	}
	p.local, err = local.New(local.Config{
		Node: catalog.Node{ID: p.ID, Name: cfg.Node.Name, Address: cfg.Advertise.Addr, Datacenter: cfg.Node.Datacenter,
			TaggedAddresses: p.taggedAddresses(), Meta: p.nodeMeta(), Locality: locality(&cfg.Node)},
		SidecarMinPort: cfg.Ports.SidecarMin, SidecarMaxPort: cfg.Ports.SidecarMax,
		ExposeMinPort: cfg.Ports.ExposeMin, ExposeMaxPort: cfg.Ports.ExposeMax,
		MayRead: p.mayReadLocal, ReadNode: p.readNode, Servers: servers, Tokens: p.Tokens.Sync,
		ClusterSize: clusterSize(p), ServerUp: p.serverUp,
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
func (p *localAgent) nodeMeta() map[string]string {
	meta := map[string]string{"consul-network-segment": "", "consul-version": version.Contract}
	for k, v := range p.Cfg.Node.Meta {
		meta[k] = v
	}
	return meta
}

func (p *localAgent) taggedAddresses() map[string]string {
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

// clusterSize tells how many members the pool of p knows.
func clusterSize(p *localAgent) func() int {
	return func() int { return len(p.Pool.Members(member.ActShow)) }
}

// loadDefinitions takes the services and checks of the configuration files.
func (p *localAgent) loadDefinitions(cfg *config.Config) error {
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
		enroll.Check(&cfg.AutoConfig), base.CheckTLS(cfg))
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
