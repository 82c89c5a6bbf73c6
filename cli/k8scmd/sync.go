package k8scmd

import (
	"context"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"corbel.dev/corbel/k8s/catalogsync"
	"corbel.dev/corbel/k8s/kubesync"
	"corbel.dev/corbel/kit/life"
	"github.com/spf13/cobra"
)

// syncCatalog keeps the catalog and a cluster in step.
func syncCatalog(e *command.Env) *cobra.Command {
	var k cluster
	var cfg kubesync.Config
	var healthAddr, level string
	o, m := &cfg.Options, &cfg.Mirror
	c := command.Act(e, "sync-catalog", "Keep the catalog and the services of a Kubernetes cluster in step",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, _ []string) error {
			log, err := logger(e, level)
			if err != nil {
				return err
			}
			switch o.NodePorts {
			case catalogsync.ExternalOnly, catalogsync.InternalOnly, catalogsync.ExternalFirst:
			default:
				return command.Usagef("--node-port-sync-type %q must be ExternalOnly, InternalOnly or ExternalFirst", o.NodePorts)
			}
			cfg.Log, cfg.Catalog = log, cl
			if cfg.Kube, err = k.client(e); err != nil {
				return err
			}
			m.Tag = o.Tag
			s, err := kubesync.New(cfg)
			if err != nil {
				return command.AsUsage(err)
			}
			ctx, stop := command.Signals(ctx)
			defer stop()
			var g life.Group
			g.Add("health", func(ctx context.Context) error { return health(ctx, healthAddr, s.Ready, s.Metrics) })
			g.Add("sync", s.Run)
			return g.Run(ctx)
		})
	c.Long = `Keep the catalog and the services of a Kubernetes cluster in step. Names of flags and of annotations
are those of consul-k8s.

  ` + e.Program() + ` k8s sync-catalog --to-consul --to-k8s --k8s-write-namespace corbel

Services of the cluster become instances at one node of the catalog, by their EndpointSlices;
services of the catalog become services of type ExternalName.`
	k.flags(c)
	f := c.Flags()
	f.BoolVar(&cfg.ToCatalog, "to-consul", true, "register services of the cluster in the catalog")
	f.BoolVar(&cfg.ToCluster, "to-k8s", true, "make services of the catalog resolvable in the cluster")
	f.BoolVar(&cfg.Gateways, "gateways", false, "write Gateways and HTTPRoutes of the Gateway API as config entries")
	f.StringVar(&o.Node, "consul-node-name", "k8s-sync", "node of the catalog for instances: one for each cluster")
	f.StringVar(&o.Tag, "consul-k8s-tag", "k8s", "tag of instances; services with it are not brought back")
	f.StringVar(&o.Prefix, "consul-service-prefix", "", "before names of services in the catalog")
	f.BoolVar(&o.Suffix, "add-k8s-namespace-suffix", false, "end names in the catalog with -NAMESPACE")
	f.BoolVar(&o.Default, "k8s-default-sync", true, "sync services that have no annotation service-sync")
	f.BoolVar(&o.ClusterIPs, "sync-clusterip-services", true, "sync services of type ClusterIP, by their pods' addresses")
	f.StringVar(&o.NodePorts, "node-port-sync-type", catalogsync.ExternalOnly,
		"address of nodes for services of type NodePort: ExternalOnly, InternalOnly or ExternalFirst")
	f.StringArrayVar(&o.Allow, "allow-k8s-namespace", []string{"*"}, "sync services of this namespace, * is all (repeat)")
	f.StringArrayVar(&o.Deny, "deny-k8s-namespace", []string{"kube-system", "kube-public"},
		"sync no services of this namespace (repeat)")
	f.StringVar(&m.Namespace, "k8s-write-namespace", "default", "namespace for services of the catalog")
	f.StringVar(&m.Prefix, "k8s-service-prefix", "", "before names of services in the cluster")
	f.StringVar(&m.Domain, "consul-domain", "consul", "domain of the catalog's DNS")
	f.DurationVar(&cfg.Resync, "resync", 0, "compare everything this often, without a change (default 1m)")
	f.StringVar(&healthAddr, "health-addr", "", "host:port that answers /health/ready, /health/live and /metrics")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return c
}
