package meshcmd

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/sidecar"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// proxyOptions are the flags of `connect proxy`.
type proxyOptions struct {
	proxyID, sidecarFor, service, listen, serviceAddr, registerID, logLevel string
	upstreams                                                               []string
	register                                                                bool
}

// proxy runs the built-in proxy.
func proxy(e *command.Env) *cobra.Command {
	var o proxyOptions
	c := command.Act(e, "proxy", "Run the built-in proxy of a service: connections under mutual TLS, without Envoy",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, _ []string) error {
			o.proxyID = cmp.Or(o.proxyID, e.Getenv("CONNECT_PROXY_ID"))
			o.sidecarFor = cmp.Or(o.sidecarFor, e.Getenv("CONNECT_SIDECAR_FOR"))
			var level slog.Level
			if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
				return command.Usagef("--log-level %q must be debug, info, warn or error", o.logLevel)
			}
			cfg, err := o.config(ctx, cl)
			if err != nil {
				return err
			}
			cfg.Client = cl
			cfg.Log = slog.New(slog.NewTextHandler(e.Err, &slog.HandlerOptions{Level: level}))
			p, err := sidecar.New(cfg)
			if err != nil {
				return command.AsUsage(err)
			}
			ctx, stop := command.Signals(ctx)
			defer stop()
			return p.Run(ctx)
		})
	c.Long = `Run the built-in proxy of a service. It forwards TCP connections, verifies certificates
and asks the agent for each connection whether an intention allows it. For HTTP routing
and load balancing, run Envoy: see connect envoy.

  ` + e.Program() + ` connect proxy -sidecar-for web
  ` + e.Program() + ` connect proxy -service web -upstream db:8181`
	f := c.Flags()
	f.StringVar(&o.proxyID, "proxy-id", "", "id of the proxy's service on this agent (CONNECT_PROXY_ID)")
	f.StringVar(&o.sidecarFor, "sidecar-for", "", "id of the service whose only sidecar this is (CONNECT_SIDECAR_FOR)")
	f.StringVar(&o.service, "service", "", "without a registration: name of the service for which this stands")
	f.StringArrayVar(&o.upstreams, "upstream", nil,
		"with --service: NAME:[HOST:]PORT, a local port that leads to another service (repeat)")
	f.StringVar(&o.listen, "listen", "", "with --service: host:port for connections from the mesh")
	f.StringVar(&o.serviceAddr, "service-addr", "", "with --listen: host:port of the local service")
	f.BoolVar(&o.register, "register", false, "with --listen: register the proxy while it runs")
	f.StringVar(&o.registerID, "register-id", "",
		"with --register: what the proxy's id ends with, if the host has several")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

// config is what the flags ask for.
func (o *proxyOptions) config(ctx context.Context, cl *client.Client) (c sidecar.Config, err error) {
	switch {
	case o.service != "" && (o.proxyID != "" || o.sidecarFor != ""):
		return c, command.Usagef("--service stands for itself: leave out --proxy-id and --sidecar-for")
	case o.service == "" && (o.listen != "" || o.serviceAddr != "" || o.register || len(o.upstreams) > 0):
		return c, command.Usagef("--listen, --service-addr, --upstream and --register need --service")
	case o.proxyID != "":
		c.ProxyID = o.proxyID
		return c, nil
	case o.sidecarFor != "":
		c.ProxyID, err = findSidecar(ctx, cl, o.sidecarFor)
		return c, err
	case o.service == "":
		return c, command.Usagef("connect proxy needs --sidecar-for, --proxy-id or --service")
	case (o.listen == "") != (o.serviceAddr == ""):
		return c, command.Usagef("--listen and --service-addr go together")
	case o.register && o.listen == "":
		return c, command.Usagef("--register needs --listen: there is nothing else to reach the proxy at")
	}
	c.Spec.Service = o.service
	for _, text := range o.upstreams {
		u, err := sidecar.ParseUpstream(text)
		if err != nil {
			return c, command.AsUsage(err)
		}
		c.Spec.Upstreams = append(c.Spec.Upstreams, u)
	}
	if o.listen == "" {
		return c, nil
	}
	host, port, err := hostPort(o.listen)
	if err != nil {
		return c, command.Usagef("--listen %s: %v", o.listen, err)
	}
	if _, _, err := hostPort(o.serviceAddr); err != nil {
		return c, command.Usagef("--service-addr %s: %v", o.serviceAddr, err)
	}
	c.Spec.Public = sidecar.NewPublic(o.listen, o.serviceAddr)
	if o.register {
		id := strings.TrimSuffix(o.service+"-proxy-"+o.registerID, "-")
		if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
			host = "" // the node's address
		}
		c.Registration = sidecar.Registration(o.service, id, host, port)
	}
	return c, nil
}
