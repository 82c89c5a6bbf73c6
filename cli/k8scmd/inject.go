package k8scmd

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/k8s"
	"corbel.dev/corbel/k8s/inject"
	"corbel.dev/corbel/kit/life"
	"github.com/spf13/cobra"
)

// injector answers the API server. Safe for concurrent use.
type injector struct {
	options inject.Options
	log     *slog.Logger
	cert    certificate
	asked   atomic.Int64
	patched atomic.Int64
	refused atomic.Int64
}

// maxReviews bounds the reviews that are read at once, each of up to 8 MiB.
const maxReviews = 16

// injectCommand runs the webhook.
func injectCommand(e *command.Env) *cobra.Command {
	var i injector
	var listen, healthAddr, level, resources string
	o := &i.options
	c := &cobra.Command{Use: "inject", Short: "Answer a Kubernetes cluster's webhook: give pods their sidecars",
		Args: command.Between(0, 0, "flags only")}
	c.Long = `Answer a Kubernetes cluster's MutatingWebhookConfiguration at /mutate, over TLS: pods with the annotation
consul.hashicorp.com/connect-inject: "true" get a sidecar. The certificate's files are read again
when they change.

  ` + e.Program() + ` k8s inject --tls-cert-file tls.crt --tls-key-file tls.key --image corbel:0.1.0`
	c.RunE = func(c *cobra.Command, _ []string) error {
		var err error
		if i.log, err = logger(e, level); err != nil {
			return err
		}
		if o.Image == "" || i.cert.certFile == "" || i.cert.keyFile == "" {
			return command.Usagef("inject needs --image, --tls-cert-file and --tls-key-file")
		}
		if resources != "" {
			if o.Resources = json.RawMessage(resources); !json.Valid(o.Resources) {
				return command.Usagef("--resources is no JSON")
			}
		}
		if _, err := i.cert.get(nil); err != nil {
			return err
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		var g life.Group
		g.Add("health", func(ctx context.Context) error {
			return health(ctx, healthAddr, func() error { return nil }, i.metrics)
		})
		g.Add("webhook", func(ctx context.Context) error { return i.run(ctx, listen) })
		return g.Run(ctx)
	}
	f := c.Flags()
	f.StringVar(&listen, "listen", ":8443", "host:port of the webhook")
	f.StringVar(&i.cert.certFile, "tls-cert-file", "", "the webhook's certificate, PEM")
	f.StringVar(&i.cert.keyFile, "tls-key-file", "", "its private key, PEM")
	f.StringVar(&o.Image, "image", "", "image of sidecars")
	f.StringVar(&o.Agent, "agent", "$(HOST_IP):8500", "address of the host's agent, as sidecars reach it")
	f.StringVar(&o.CAFile, "agent-ca-file", "", "the agent's authority, a file of the image")
	f.StringVar(&o.AuthMethod, "auth-method", "", "auth method by which the pods' accounts log in; without it, no token")
	f.BoolVar(&o.Default, "default-inject", false, "inject into pods without the annotation connect-inject")
	f.StringArrayVar(&o.Deny, "deny-k8s-namespace", []string{"kube-system", "kube-public"},
		"inject into no pod of this namespace (repeat)")
	f.StringVar(&resources, "resources", "", "resources of sidecars, JSON as Kubernetes has them")
	f.StringVar(&healthAddr, "health-addr", "", "host:port that answers /health/ready, /health/live and /metrics")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return c
}

func (i *injector) metrics() map[string]int64 {
	return map[string]int64{"corbel_k8s_reviews_total": i.asked.Load(), "corbel_k8s_injected_total": i.patched.Load(),
		"corbel_k8s_reviews_refused_total": i.refused.Load()}
}

func (i *injector) run(ctx context.Context, listen string) error {
	turns := make(chan struct{}, maxReviews)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mutate", func(w http.ResponseWriter, r *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-r.Context().Done():
			return
		}
		i.answer(w, r)
	})
	return serve(ctx, &http.Server{Addr: listen, Handler: mux,
		ErrorLog:  slog.NewLogLogger(i.log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{GetCertificate: i.cert.get, MinVersion: tls.VersionTLS12}})
}

func (i *injector) answer(w http.ResponseWriter, r *http.Request) {
	i.asked.Add(1)
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/json" {
		http.Error(w, "the body must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, k8s.MaxObjectBytes))
	if err != nil {
		http.Error(w, fmt.Sprintf("a review has at most %d bytes", k8s.MaxObjectBytes), http.StatusRequestEntityTooLarge)
		return
	}
	answer, err := inject.Review(text, &i.options)
	if err != nil {
		i.refused.Add(1)
		i.log.Warn("no review", "error", err, "from", r.RemoteAddr)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch patched, refusal := inject.Said(answer); {
	case refusal != "":
		i.refused.Add(1)
		i.log.Warn("a pod is refused", "why", refusal)
	case patched:
		i.patched.Add(1)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // who asked is gone, or has it
}

// certificate is a pair of files that is read again once a minute: who renews it replaces them.
type certificate struct {
	certFile, keyFile string

	mu   sync.Mutex // guards what follows
	kept *tls.Certificate
	read time.Time
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept != nil && time.Since(c.read) < time.Minute {
		return c.kept, nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	c.read = time.Now()
	switch {
	case err == nil:
		c.kept = &pair
	case c.kept == nil:
		return nil, err
	} // else half of it is replaced: the former serves until the next minute
	return c.kept, nil
}
