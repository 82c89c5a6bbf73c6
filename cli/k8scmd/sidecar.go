package k8scmd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/sidecar"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// beside is what a sidecar is told by the injector.
type beside struct {
	service, podIP, pod, namespace, method, tokenFile string
	port, listen                                      int
	upstreams, tags, meta                             []string
}

// besideCommand runs in each pod that the injector gave a sidecar.
func besideCommand(e *command.Env) *cobra.Command {
	var b beside
	var level string
	c := command.Act(e, "sidecar", "Register the service of a pod and run its proxy: what the injector adds",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, _ []string) error {
			log, err := logger(e, level)
			if err != nil {
				return err
			}
			definition, err := b.definition()
			if err != nil {
				return err
			}
			ctx, stop := command.Signals(ctx)
			defer stop()
			if b.method != "" {
				token, err := b.login(ctx, cl)
				if err != nil {
					return err
				}
				cl = cl.WithToken(token)
				defer logout(ctx, e, cl)
			}
			if err := cl.Register(ctx, definition); err != nil {
				return err
			}
			p, err := sidecar.New(sidecar.Config{Client: cl, Log: log, ProxyID: b.id() + "-sidecar-proxy"})
			if err != nil {
				return err
			}
			kept := make(chan struct{})
			ctx, cancel := context.WithCancel(ctx)
			go func() {
				defer close(kept)
				b.keep(ctx, e, cl, definition)
			}()
			err = p.Run(ctx)
			cancel()
			<-kept
			return err
		})
	f := c.Flags()
	f.StringVar(&b.service, "service", "", "name of the service")
	f.IntVar(&b.port, "port", 0, "port of the pod that the mesh leads to; 0: none")
	f.IntVar(&b.listen, "listen-port", 20000, "port for connections from the mesh")
	f.StringVar(&b.podIP, "pod-ip", "", "address of the pod")
	f.StringVar(&b.pod, "pod-name", "", "name of the pod")
	f.StringVar(&b.namespace, "pod-namespace", "", "namespace of the pod")
	f.StringArrayVar(&b.upstreams, "upstream", nil, "NAME:PORT, a local port that leads to another service (repeat)")
	f.StringArrayVar(&b.tags, "tag", nil, "tag of the service (repeat)")
	f.StringArrayVar(&b.meta, "meta", nil, "KEY=VALUE of the service (repeat)")
	f.StringVar(&b.method, "auth-method", "", "log in with the pod's account by this auth method")
	f.StringVar(&b.tokenFile, "account-token-file", "/var/run/secrets/kubernetes.io/serviceaccount/token",
		"with --auth-method: file that holds the account's token")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return c
}

// id is as consul-k8s has it.
func (b *beside) id() string { return b.pod + "-" + b.service }

// definition is the service with its proxy and the checks of both.
func (b *beside) definition() (map[string]any, error) {
	switch {
	case b.service == "" || b.pod == "":
		return nil, command.Usagef("--service and --pod-name are required")
	case net.ParseIP(b.podIP) == nil:
		return nil, command.Usagef("--pod-ip %q is no address", b.podIP)
	case b.port < 0 || b.port > 65535 || b.listen < 1 || b.listen > 65535:
		return nil, command.Usagef("--port and --listen-port must be ports")
	}
	meta, err := command.Pairs("meta", b.meta)
	if err != nil {
		return nil, err
	}
	if meta == nil {
		meta = map[string]string{}
	}
	meta["pod-name"], meta["k8s-namespace"] = b.pod, b.namespace
	var upstreams []map[string]any
	for _, text := range b.upstreams {
		u, err := sidecar.ParseUpstream(text)
		if err != nil {
			return nil, command.AsUsage(err)
		}
		_, port, err := net.SplitHostPort(u.Bind.Text)
		n, wrong := strconv.Atoi(port)
		if err != nil || wrong != nil {
			return nil, command.Usagef("--upstream %q must be NAME:PORT", text)
		}
		upstreams = append(upstreams, map[string]any{"DestinationName": u.Name, "LocalBindPort": n})
	}
	proxy := map[string]any{"Upstreams": upstreams, "LocalServiceAddress": "127.0.0.1"}
	if b.port > 0 {
		proxy["LocalServicePort"] = b.port
	}
	d := map[string]any{"ID": b.id(), "Name": b.service, "Address": b.podIP, "Port": b.port, "Tags": b.tags, "Meta": meta,
		"Connect": map[string]any{"SidecarService": map[string]any{"Port": b.listen, "Address": b.podIP, "Meta": meta,
			"Proxy": proxy, "Checks": []map[string]any{{"Name": "Sidecar listens",
				"TCP":      net.JoinHostPort(b.podIP, strconv.Itoa(b.listen)),
				"Interval": "10s", "Timeout": "5s", "DeregisterCriticalServiceAfter": forget}}}}}
	if b.port > 0 {
		d["Check"] = map[string]any{"Name": "Pod listens", "TCP": net.JoinHostPort(b.podIP, strconv.Itoa(b.port)),
			"Interval": "10s", "Timeout": "5s", "DeregisterCriticalServiceAfter": forget}
	}
	return d, nil
}

// forget is after how long a pod that was lost without a word is no longer in the catalog.
const forget = "10m"

func (b *beside) login(ctx context.Context, cl *client.Client) (string, error) {
	bearer, err := client.ReadToken(b.tokenFile)
	if err != nil {
		return "", err
	}
	var token client.Token
	err = cl.Send(ctx, http.MethodPost, "/v1/acl/login", nil, map[string]any{"AuthMethod": b.method, "BearerToken": bearer,
		"Meta": map[string]string{"pod": b.namespace + "/" + b.pod}}, &token)
	if err != nil {
		return "", fmt.Errorf("log in by %s: %w", b.method, err)
	}
	return token.SecretID, nil
}

func logout(ctx context.Context, e *command.Env, cl *client.Client) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := cl.Send(last, http.MethodPost, "/v1/acl/logout", nil, nil, nil); err != nil {
		e.Say("corbel: the token of the login stays: %v\n", err)
	}
}

// keepEvery is how often the agent is asked whether it still knows the pod: an agent that starts anew on a host does
// not.
const keepEvery = 10 * time.Second

// keep registers again what the agent lost, and deregisters when ctx ends.
func (b *beside) keep(ctx context.Context, e *command.Env, cl *client.Client, definition map[string]any) {
	for ctx.Err() == nil {
		_, err := cl.Get(ctx, "/v1/agent/service/"+client.Escape(b.id()), client.Query{}, nil)
		if client.IsNotFound(err) {
			err = cl.Register(ctx, definition)
		}
		if err != nil && ctx.Err() == nil {
			e.Say("corbel: the agent does not answer: %v\n", err)
		}
		command.Wait(ctx, keepEvery)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, id := range []string{b.id() + "-sidecar-proxy", b.id()} {
		if err := cl.Deregister(last, id); err != nil && !client.IsNotFound(err) {
			e.Say("corbel: %s stays registered: %v\n", id, err)
		}
	}
}
