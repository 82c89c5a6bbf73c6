package meshcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/spawn"
	"github.com/spf13/cobra"
)

// envoyOptions are the flags of `connect envoy`.
type envoyOptions struct {
	proxyID, sidecarFor, gateway, nodeName            string
	adminBind, adminLog, grpcAddr, grpcCA, grpcCAPath string
	binary, version                                   string
	bootstrap, register, noCentral, ignoreCompat      bool
	address, wanAddress, service, deregisterAfter     string
	promScrapePath                                    string
	promBackendPort                                   uint16
}

func (o *envoyOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.proxyID, "proxy-id", "", "id of the proxy's service on this agent (CONNECT_PROXY_ID)")
	f.StringVar(&o.nodeName, "node-name", "", "node of the proxy, where no agent is near")
	f.StringVar(&o.sidecarFor, "sidecar-for", "", "id of the service whose only sidecar this is (CONNECT_SIDECAR_FOR)")
	f.StringVar(&o.gateway, "gateway", "", "kind of gateway: mesh, terminating, ingress or api")
	f.BoolVar(&o.register, "register", false, "with --gateway: register the gateway first")
	f.StringVar(&o.service, "service", "", "with --register: name of the gateway's service")
	f.StringVar(&o.address, "address", "", "with --register: host:port of the gateway's listener")
	f.StringVar(&o.wanAddress, "wan-address", "", "with --register: host:port as other datacenters see it")
	f.StringVar(&o.deregisterAfter, "deregister-after-critical", "6h",
		"with --register: forget the gateway when it failed this long")
	f.StringVar(&o.adminBind, "admin-bind", "localhost:19000", "host:port of Envoy's own interface")
	f.StringVar(&o.adminLog, "admin-access-log-path", os.DevNull, "where Envoy logs requests to that interface")
	f.StringVar(&o.grpcAddr, "grpc-addr", "",
		"address of the agent's gRPC port (CONSUL_GRPC_ADDR; default what the agent says)")
	f.StringVar(&o.grpcCA, "grpc-ca-file", "", "CA certificates to trust at that port, PEM (CONSUL_GRPC_CACERT)")
	f.StringVar(&o.grpcCAPath, "grpc-ca-path", "", "folder of such files (CONSUL_GRPC_CAPATH)")
	f.BoolVar(&o.bootstrap, "bootstrap", false, "print Envoy's configuration instead of running Envoy")
	f.StringVar(&o.binary, "envoy-binary", "envoy", "the Envoy to run")
	f.StringVar(&o.version, "envoy-version", "", "no effect: one form fits all supported versions")
	f.BoolVar(&o.noCentral, "no-central-config", false, "use only the proxy's own settings")
	f.BoolVar(&o.ignoreCompat, "ignore-envoy-compatibility", false, "no effect: the version is not checked here")
	f.Uint16Var(&o.promBackendPort, "prometheus-backend-port", 0,
		"local port that answers scrapes at envoy_prometheus_bind_addr, instead of Envoy itself")
	f.StringVar(&o.promScrapePath, "prometheus-scrape-path", "/metrics", "path of scrapes at envoy_prometheus_bind_addr")
	for _, name := range []string{"envoy-version", "ignore-envoy-compatibility"} {
		_ = f.MarkHidden(name) // fails for an unknown flag only
	}
}

// proxyService is what the agent says of the proxy's service.
type proxyService struct {
	Kind, ID, Service, Datacenter string
	Proxy                         struct {
		DestinationServiceName, DestinationServiceID string
		Config                                       map[string]any
	}
}

// envoy prints Envoy's bootstrap, or runs Envoy with it.
func envoy(e *command.Env) *cobra.Command {
	var o envoyOptions
	c := command.Act(e, "envoy [-- ENVOY-ARGUMENT...]",
		"Run Envoy as the proxy of a service, or print its configuration with --bootstrap", cobra.ArbitraryArgs,
		func(ctx context.Context, d *command.Dial, cl *client.Client, args []string) error {
			o.proxyID = cmp.Or(o.proxyID, e.Getenv("CONNECT_PROXY_ID"))
			o.sidecarFor = cmp.Or(o.sidecarFor, e.Getenv("CONNECT_SIDECAR_FOR"))
			o.grpcAddr = cmp.Or(o.grpcAddr, e.Getenv("CORBEL_GRPC_ADDR"), e.Getenv("CONSUL_GRPC_ADDR"))
			o.grpcCA = cmp.Or(o.grpcCA, e.Getenv("CORBEL_GRPC_CACERT"), e.Getenv("CONSUL_GRPC_CACERT"))
			b, err := o.prepare(ctx, e, d, cl)
			if err != nil {
				return err
			}
			text, err := json.MarshalIndent(b, "", "  ")
			if err != nil {
				return err
			}
			if o.bootstrap {
				return e.Printf("%s\n", text)
			}
			return o.run(ctx, e, text, args)
		})
	o.flags(c)
	return c
}

// prepare finds the proxy and fills in the bootstrap.
func (o *envoyOptions) prepare(ctx context.Context, e *command.Env, d *command.Dial, cl *client.Client) (map[string]any,
	error) {
	if o.register {
		if err := o.registerGateway(ctx, cl); err != nil {
			return nil, err
		}
	}
	id, err := o.findProxy(ctx, cl)
	if err != nil {
		return nil, err
	}
	proxy, err := o.registered(ctx, cl, id)
	if err != nil {
		return nil, err
	}
	server, err := o.xdsServer(ctx, e, cl)
	if err != nil {
		return nil, err
	}
	cfg, err := d.Config()
	if err != nil {
		return nil, err
	}
	adminHost, adminPort, err := resolved(o.adminBind)
	if err != nil {
		return nil, command.Usagef("--admin-bind %s: %v", o.adminBind, err)
	}
	b := bootstrap{
		proxyID: id, cluster: cmp.Or(proxy.Proxy.DestinationServiceName, proxy.Service), datacenter: proxy.Datacenter,
		node:      o.nodeName,
		adminHost: adminHost, adminPort: adminPort, adminLog: o.adminLog, server: server, token: cfg.Token,
		config: proxy.Proxy.Config, getenv: e.Getenv,
		promPath: o.promScrapePath, promPort: int(o.promBackendPort),
	}
	if b.server.tls {
		if b.roots, err = o.authorities(cfg); err != nil {
			return nil, err
		}
	}
	return b.object()
}

// registered is the proxy's registration: at this agent, or in the catalog when a node is named.
func (o *envoyOptions) registered(ctx context.Context, cl *client.Client, id string) (proxy proxyService, err error) {
	if o.nodeName == "" {
		if _, err := cl.Get(ctx, "/v1/agent/service/"+client.Escape(id), client.Query{}, &proxy); err != nil {
			return proxy, fmt.Errorf("the proxy %s: %w; is it registered on this agent?", id, err)
		}
		return proxy, nil
	}
	var all struct {
		Node     struct{ Datacenter string }
		Services []proxyService
	}
	if _, err := cl.Get(ctx, "/v1/catalog/node-services/"+client.Escape(o.nodeName)+"?merge-central-config",
		client.Query{}, &all); err != nil {
		return proxy, fmt.Errorf("the services of the node %s: %w", o.nodeName, err)
	}
	for _, s := range all.Services {
		if s.ID == id {
			s.Datacenter = cmp.Or(s.Datacenter, all.Node.Datacenter)
			return s, nil
		}
	}
	return proxy, fmt.Errorf("the node %s has no service %s in the catalog: register the proxy there first",
		o.nodeName, id)
}

// findProxy is the id of the proxy's service.
func (o *envoyOptions) findProxy(ctx context.Context, cl *client.Client) (string, error) {
	switch {
	case o.proxyID != "":
		return o.proxyID, nil
	case o.gateway != "":
		var all map[string]proxyService
		if _, err := cl.Get(ctx, "/v1/agent/services", client.Query{Filter: `Kind == "` + o.gateway + `-gateway"`},
			&all); err != nil {
			return "", err
		}
		if len(all) != 1 {
			return "", fmt.Errorf("the agent has %d services of kind %s-gateway: name one with --proxy-id, or make one with "+
				"--register", len(all), o.gateway)
		}
		return command.SortedKeys(all)[0], nil
	case o.sidecarFor == "":
		return "", command.Usagef("connect envoy needs --sidecar-for, --proxy-id or --gateway")
	}
	return findSidecar(ctx, cl, o.sidecarFor)
}

// findSidecar is the id of the only sidecar of a service on this agent.
func findSidecar(ctx context.Context, cl *client.Client, service string) (string, error) {
	var all map[string]proxyService
	if _, err := cl.Get(ctx, "/v1/agent/services", client.Query{}, &all); err != nil {
		return "", err
	}
	var found []string
	for _, id := range command.SortedKeys(all) {
		if s := all[id]; s.Kind == "connect-proxy" && s.Proxy.DestinationServiceID == service {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("no sidecar proxy registered for %s: register the service with connect { sidecar_service {} }",
			service)
	}
	return "", fmt.Errorf("%s has more than one sidecar: name one of %s with --proxy-id", service,
		strings.Join(found, ", "))
}

// registerGateway registers the service of --gateway on the agent.
func (o *envoyOptions) registerGateway(ctx context.Context, cl *client.Client) error {
	if o.gateway == "" {
		return command.Usagef("--register needs --gateway")
	}
	kind := o.gateway + "-gateway"
	name := cmp.Or(o.service, kind)
	o.proxyID = cmp.Or(o.proxyID, name)
	host, port := "", 8443
	if o.address != "" {
		h, p, err := hostPort(o.address)
		if err != nil {
			return command.Usagef("--address %s: %v", o.address, err)
		}
		host, port = h, p
	}
	def := map[string]any{"Kind": kind, "Name": name, "ID": o.proxyID, "Address": host, "Port": port,
		"Check": map[string]any{"Name": kind + " listening", "TCP": net.JoinHostPort(cmp.Or(host, "127.0.0.1"),
			strconv.Itoa(port)), "Interval": "10s", "DeregisterCriticalServiceAfter": o.deregisterAfter}}
	if o.wanAddress != "" {
		h, p, err := hostPort(o.wanAddress)
		if err != nil {
			return command.Usagef("--wan-address %s: %v", o.wanAddress, err)
		}
		def["TaggedAddresses"] = map[string]any{"wan": map[string]any{"Address": h, "Port": p},
			"lan": map[string]any{"Address": host, "Port": port}}
	}
	return cl.Register(ctx, def)
}

// run becomes Envoy, or starts it as a child that ends with this process. Its configuration holds a token, which no
// file and no process list shall show.
func (o *envoyOptions) run(ctx context.Context, e *command.Env, text []byte, args []string) error {
	path, err := exec.LookPath(o.binary)
	if err != nil {
		return fmt.Errorf("%w; install Envoy, name it with --envoy-binary, or print its configuration with --bootstrap", err)
	}
	if err := become(e, path, args, text); err != nil {
		return err
	}
	ctx, stop := command.Signals(ctx)
	defer stop()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.CommandContext(ctx, path, envoyArguments("/dev/fd/3", args)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = e.In, e.Out, e.Err, []*os.File{r}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.SysProcAttr = spawn.DieWithParent()
	runtime.LockOSThread() // to the kernel the parent is the thread that starts the child
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		w.Close()
		return err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = w.Write(text) // an Envoy that does not read has ended, which Wait tells
		w.Close()
	}()
	err = cmd.Wait()
	r.Close()
	<-written
	if code := cmd.ProcessState.ExitCode(); err != nil && code > 0 {
		return command.ExitCode(code)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// hotRestart are Envoy's flags about it.
var hotRestart = regexp.MustCompile(`^--(disable-hot-restart|base-id(-path)?|use-dynamic-base-id|restart-epoch)(=|$)`)

// envoyArguments are Envoy's own. Unless told otherwise it runs without hot restart: two of them on a host would
// share one piece of memory, in which the second one finds the first and ends.
func envoyArguments(config string, args []string) []string {
	all := []string{"--config-path", config}
	if !slices.ContainsFunc(args, hotRestart.MatchString) {
		all = append(all, "--disable-hot-restart")
	}
	return append(all, args...)
}
