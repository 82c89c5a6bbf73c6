package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"corbel.dev/corbel/k8s/kubeapi"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/vaultconf"
)

// The labels of a pod, as Vault's documentation names them.
const (
	labelActive      = "vault-active"
	labelInitialized = "vault-initialized"
	labelPerfStandby = "vault-perf-standby"
	labelSealed      = "vault-sealed"
	labelVersion     = "vault-version"
)

// again is how often the labels are written although nothing has changed: somebody may have taken them away.
const again = 5 * time.Minute

// pod is the pod that this server runs in.
type pod struct {
	api       *kubeapi.Client
	namespace string
	name      string
	reads     bool // standbys answer reads
}

func readPod(k *vaultconf.Keys, getenv func(string) string, reads bool) (*pod, error) {
	p := &pod{reads: reads,
		namespace: k.String("namespace", ""), name: k.String("pod_name", "")}
	k.Done()
	for _, variable := range []string{"VAULT_K8S_NAMESPACE", "BAO_K8S_NAMESPACE"} {
		p.namespace = cmp.Or(getenv(variable), p.namespace)
	}
	for _, variable := range []string{"VAULT_K8S_POD_NAME", "BAO_K8S_POD_NAME"} {
		p.name = cmp.Or(getenv(variable), p.name)
	}
	switch {
	case k.Err() != nil:
		return nil, k.Err()
	case p.namespace == "":
		return nil, errors.New("namespace: is missing; the variable VAULT_K8S_NAMESPACE says it too")
	case p.name == "":
		return nil, errors.New("pod_name: is missing; the variable VAULT_K8S_POD_NAME says it too")
	case getenv("KUBERNETES_SERVICE_HOST") == "":
		return nil, errors.New("this process runs in no pod: KUBERNETES_SERVICE_HOST is not set")
	}
	cfg, err := kubeapi.InCluster(getenv)
	if err != nil {
		return nil, err
	}
	cfg.Timeout = most
	p.api, err = kubeapi.New(cfg)
	return p, err
}

// labels are what tells a state.
func (p *pod) labels(s State) map[string]string {
	up := s.Initialized && !s.Sealed
	return map[string]string{
		labelActive:      strconv.FormatBool(up && !s.Standby),
		labelInitialized: strconv.FormatBool(s.Initialized),
		labelPerfStandby: strconv.FormatBool(up && s.Standby && p.reads),
		labelSealed:      strconv.FormatBool(!up),
		labelVersion:     version.VaultContract,
	}
}

func (p *pod) put(ctx context.Context, _ string, s State) (string, error) {
	name := p.namespace + "/" + p.name
	if err := p.label(ctx, p.labels(s)); err != nil {
		return "", fmt.Errorf("labels of the pod %s: %w; the pod's account needs get and patch on it", name, err)
	}
	return name, nil
}

func (p *pod) label(ctx context.Context, labels map[string]string) error {
	return p.api.Send(ctx, http.MethodPatch, "/api/v1/namespaces/"+url.PathEscape(p.namespace)+"/pods/"+
		url.PathEscape(p.name), "application/merge-patch+json",
		map[string]any{"metadata": map[string]any{"labels": labels}}, nil)
}

func (p *pod) beat(ctx context.Context, s State) error {
	_, err := p.put(ctx, "", s)
	return err
}

func (p *pod) every() time.Duration { return again }

// leave tells that the server is sealed: it has no keys any more.
func (p *pod) leave(ctx context.Context) error {
	labels := p.labels(State{Initialized: true, Sealed: true})
	delete(labels, labelInitialized) // as it was
	return p.label(ctx, labels)
}

func (p *pod) close() { p.api.Close() }

func (p *pod) where() string { return "kubernetes" }
