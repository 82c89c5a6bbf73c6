package registration

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/k8s/kubeapi"
	"corbel.dev/corbel/k8s/kubetest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/vaultconf"
)

// TestPodLabels: the pod's labels are what the server is, and its own labels stay; a cluster that refuses is told
// later.
func TestPodLabels(t *testing.T) {
	const pods = "/api/v1/namespaces/vault/pods"
	s := kubetest.New(t)
	s.Put(pods, kubetest.Object{"metadata": kubetest.Object{"name": "vault-0", "namespace": "vault",
		"labels": kubetest.Object{"app": "vault"}}})
	api, err := kubeapi.New(kubeapi.Config{Host: s.URL, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	e := &Entry{&pod{api: api, namespace: "vault", name: "vault-0", reads: true}}
	var mu sync.Mutex
	now := State{}
	is := func(state State) {
		mu.Lock()
		defer mu.Unlock()
		now = state
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	parts := e.Parts("http://10.0.0.1:8200", slog.New(slog.DiscardHandler), func(context.Context) (State, error) {
		mu.Lock()
		defer mu.Unlock()
		return now, nil
	})
	go func() { ended <- parts[0].Run(ctx) }()
	sees := func(what, active, initialized, reads, sealed string) {
		t.Helper()
		want := map[string]string{"app": "vault", "vault-active": active, "vault-initialized": initialized,
			"vault-perf-standby": reads, "vault-sealed": sealed, "vault-version": version.VaultContract}
		got := map[string]string{}
		polltest.Until(t, func() bool {
			text, _ := json.Marshal(s.Object(pods + "/vault-0")["metadata"])
			var meta struct{ Labels map[string]string }
			_ = json.Unmarshal(text, &meta)
			got = meta.Labels
			return reflect.DeepEqual(got, want)
		}, "%s: %v", what, want)
	}
	sees("a server that is not initialized", "false", "false", "false", "true")
	is(State{Initialized: true, Sealed: true})
	sees("a sealed server", "false", "true", "false", "true")
	is(State{Initialized: true, Standby: true})
	sees("a standby that reads", "false", "true", "true", "false")
	s.Refuse(pods+"/vault-0", 403)
	is(State{Initialized: true})
	asked := len(s.Asked())
	polltest.Until(t, func() bool { return len(s.Asked()) > asked }, "another try")
	s.Refuse(pods+"/vault-0", 0)
	sees("the active server", "true", "true", "false", "false")
	cancel()
	if err := polltest.Get(t, ended, "the end"); err != nil {
		t.Error(err)
	}
	sees("a server that ended", "false", "true", "false", "true")
}

// TestPodLabelsAfterFailures: labels that could not be written are right at the next success, whatever the server was
// meanwhile, and a server that ends takes back what it said before the failure.
func TestPodLabelsAfterFailures(t *testing.T) {
	const path = "/api/v1/namespaces/vault/pods/vault-0"
	s := kubetest.New(t)
	s.Put("/api/v1/namespaces/vault/pods", kubetest.Object{"metadata": kubetest.Object{"name": "vault-0",
		"namespace": "vault"}})
	api, err := kubeapi.New(kubeapi.Config{Host: s.URL, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	lost := &lostAnswers{pod: pod{api: api, namespace: "vault", name: "vault-0"}}
	var mu sync.Mutex
	now := State{Initialized: true}
	is := func(state State) {
		mu.Lock()
		defer mu.Unlock()
		now = state
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	parts := (&Entry{lost}).Parts("http://10.0.0.1:8200", slog.New(slog.DiscardHandler),
		func(context.Context) (State, error) {
			mu.Lock()
			defer mu.Unlock()
			return now, nil
		})
	go func() { ended <- parts[0].Run(ctx) }()
	active := func(want string) {
		t.Helper()
		polltest.Until(t, func() bool {
			text, _ := json.Marshal(s.Object(path)["metadata"])
			var meta struct{ Labels map[string]string }
			_ = json.Unmarshal(text, &meta)
			return meta.Labels["vault-active"] == want
		}, "vault-active is %s", want)
	}
	active("true")
	lost.lose.Store(true) // the labels are written, and the server does not hear of it
	is(State{Initialized: true, Standby: true})
	active("false")
	is(State{Initialized: true}) // what it was when it last heard
	lost.lose.Store(false)
	active("true")
	lost.beatEvery.Store(1)
	lost.lose.Store(true) // from here on the beats fail
	failed := lost.failed.Load()
	polltest.Until(t, func() bool { return lost.failed.Load() > failed }, "a beat fails")
	cancel()
	if err := polltest.Get(t, ended, "the end"); err != nil {
		t.Error(err)
	}
	active("false")
}

// lostAnswers is a pod whose cluster does what it is asked for, and whose answers are lost at times.
type lostAnswers struct {
	pod
	lose              atomic.Bool
	beatEvery, failed atomic.Int64
}

func (l *lostAnswers) put(ctx context.Context, at string, s State) (string, error) {
	name, err := l.pod.put(ctx, at, s)
	if err == nil && l.lose.Load() {
		l.failed.Add(1)
		return "", errors.New("the answer is lost")
	}
	return name, err
}

func (l *lostAnswers) beat(ctx context.Context, s State) error {
	_, err := l.put(ctx, "", s)
	return err
}

func (l *lostAnswers) every() time.Duration {
	if l.beatEvery.Load() > 0 {
		return time.Duration(l.beatEvery.Load())
	}
	return l.pod.every()
}

func TestReadPod(t *testing.T) {
	env := map[string]string{}
	getenv := func(name string) string { return env[name] }
	for _, step := range []struct{ name, value, want string }{
		{"", "", "namespace: is missing"},
		{"VAULT_K8S_NAMESPACE", "vault", "pod_name: is missing"},
		{"BAO_K8S_POD_NAME", "vault-0", "runs in no pod"},
		{"KUBERNETES_SERVICE_HOST", "10.0.0.1", "KUBERNETES_SERVICE_HOST"},
		{"KUBERNETES_SERVICE_PORT", "443", "authority"}, // no file of it on this host
	} {
		env[step.name] = step.value
		if _, err := readPod(vaultconf.NewKeys(map[string]any{}), getenv, false); err == nil ||
			!strings.Contains(err.Error(), step.want) {
			t.Errorf("with %s: %v, want %q", step.name, err, step.want)
		}
	}
}
