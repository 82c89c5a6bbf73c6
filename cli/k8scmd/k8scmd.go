// Package k8scmd holds the commands that run beside or in a Kubernetes cluster: sync-catalog, inject and sidecar.
package k8scmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/k8s/kubeapi"
	"github.com/spf13/cobra"
)

// Command builds k8s.
func Command(e *command.Env, c *cobra.Command) {
	c.Long = "Run the parts of Corbel that belong to a Kubernetes cluster. The Helm chart runs them as\ndeployments; " +
		"docs/kubernetes.md says how."
	command.Group(c, syncCatalog(e), injectCommand(e), besideCommand(e))
}

// cluster is how a command reaches the API server.
type cluster struct{ host, tokenFile, caFile string }

func (k *cluster) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&k.host, "kube-api", "", "the API server, https://host:port; default that of the pod's cluster")
	f.StringVar(&k.tokenFile, "kube-token-file", "", "with --kube-api: file that holds the account's token")
	f.StringVar(&k.caFile, "kube-ca-file", "", "with --kube-api: the server's authority, PEM")
}

func (k *cluster) client(e *command.Env) (*kubeapi.Client, error) {
	cfg := kubeapi.Config{Host: k.host, TokenFile: k.tokenFile, CAFile: k.caFile}
	if k.host == "" {
		if k.tokenFile != "" || k.caFile != "" {
			return nil, command.Usagef("--kube-token-file and --kube-ca-file need --kube-api")
		}
		var err error
		if cfg, err = kubeapi.InCluster(e.Getenv); err != nil {
			return nil, command.AsUsage(err)
		}
	}
	c, err := kubeapi.New(cfg)
	if err == nil {
		e.OnClose(c.Close)
	}
	return c, err
}

func logger(e *command.Env, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, command.Usagef("--log-level %q must be debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(e.Err, &slog.HandlerOptions{Level: l})), nil
}

// health answers the kubelet's probes, and a scrape, at addr until ctx ends; "" answers nobody.
func health(ctx context.Context, addr string, ready func() error, metrics func() map[string]int64) error {
	if addr == "" {
		<-ctx.Done()
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health/live", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /health/ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		m := metrics()
		for _, name := range command.SortedKeys(m) {
			fmt.Fprintf(w, "# TYPE %s counter\n%s %d\n", name, name, m[name])
		}
	})
	return serve(ctx, &http.Server{Addr: addr, Handler: mux})
}

// serve runs a server until ctx ends. One with a TLSConfig speaks TLS.
func serve(ctx context.Context, s *http.Server) error {
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout = 10*time.Second, 15*time.Second, 15*time.Second
	s.MaxHeaderBytes = 64 << 10
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Addr)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		if s.TLSConfig != nil {
			done <- s.ServeTLS(l, "", "")
			return
		}
		done <- s.Serve(l)
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = s.Shutdown(grace)
		<-done
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
