package jobsagentplane

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/jobs/client/services"
	"corbel.dev/corbel/jobs/meshtask"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/plane"
)

// envoyStep writes the first configuration of a proxy, once its service is registered on this host. What it says is
// what `connect envoy --bootstrap` prints: the command is asked, so that there is one of it.
type envoyStep struct {
	d     *plane.Doors
	token string
}

const (
	// registeredWithin is how long a proxy waits for its registration, and bootstrapWithin for its configuration.
	registeredWithin = 30 * time.Second
	bootstrapWithin  = 30 * time.Second
)

// proxyMeta are the pairs of a node's meta that start proxies, where operators give no others.
var proxyMeta = map[string]string{meshtask.MetaEnvoy: "envoy", meshtask.MetaImage: "docker.io/envoyproxy/envoy:v1.36.4",
	meshtask.MetaLogLevel: "info", meshtask.MetaConcurrency: "1"}

// withProxies adds what proxies need to a node's meta.
func withProxies(given map[string]string) map[string]string {
	all := map[string]string{}
	for name, value := range proxyMeta {
		all[name] = value
	}
	for name, value := range given {
		all[name] = value
	}
	return all
}

// Prepare implements allocrunner.Step.
func (s *envoyStep) Prepare(ctx context.Context, w *allocrunner.Work) error {
	of := meshtask.ServiceOf(w.Workload.Group, w.Task)
	if of == nil || w.Dirs.Task == "" {
		return nil
	}
	id := services.IDOf(w.Workload, of, w.Env) + definition.SidecarSuffix
	if err := s.await(ctx, id); err != nil {
		return err
	}
	text, err := s.bootstrap(ctx, id)
	if err != nil {
		return err
	}
	if w.Apart {
		var network, address string
		if text, network, address, err = throughSocket(text, socketOf(w)); err != nil {
			return err
		}
		if err := s.relay(w, network, address); err != nil {
			return errkind.E(errkind.Unavailable, "", err)
		}
	}
	root, err := os.OpenRoot(filepath.Join(w.Dirs.Task, "secrets"))
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Remove(meshtask.Bootstrap); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Envoy may be another user than the agent; nobody but the allocation's tasks gets to the folder.
	return root.WriteFile(meshtask.Bootstrap, text, 0o644)
}

func isProxy(w *allocrunner.Work) bool { return meshtask.ServiceOf(w.Workload.Group, w.Task) != nil }

// await waits until a service is registered on this host.
func (s *envoyStep) await(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, registeredWithin)
	defer cancel()
	var version uint64
	for {
		view := s.d.Local.Await(ctx, version)
		if view.Services[id] != nil {
			return nil
		}
		if ctx.Err() != nil {
			return errkind.Errorf(errkind.Unavailable, "the proxy %s is not registered on this host yet: the agent's log "+
				"says why", id)
		}
		version = view.Version
	}
}

// bootstrap asks the binary for a proxy's configuration.
func (s *envoyStep) bootstrap(ctx context.Context, id string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, bootstrapWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "connect", "envoy", "--bootstrap", "--proxy-id", id, "--admin-bind",
		"127.0.0.1:0")
	cmd.Env = []string{"CONSUL_HTTP_ADDR=http://" + hostAPI(s.d), "CONSUL_HTTP_TOKEN=" + s.token,
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, errkind.Errorf(errkind.Unavailable, "Envoy's configuration for %s: %w: %.400s", id, err,
			strings.TrimSpace(stderr.String()))
	}
	return text, nil
}
