// Package kubesync keeps the catalog and a Kubernetes cluster in step: what catalogsync decides, it carries out.
//
// Services, EndpointSlices and (for node ports) nodes are mirrored from the API server; what the catalog has of the
// sync's node is followed with blocking queries, so an instance that somebody else removed comes back. After a change
// on either side, at most once each Config.Pace, everything is compared and the difference is written. The first
// comparison waits until all of it was read once: a list that is not there yet is not an empty one, and nothing is
// deleted for it. After a write that failed, nothing of the rest of that plan is carried out.
//
// A service whose instances the catalog refuses (a name or a tag that it does not take, a missing right) is held: its
// instances stay as they are, the others go on, and it is tried again with the next Config.Resync.
//
// New does no network. Run owns all goroutines. Nothing is queued but one note that something changed.
package kubesync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/k8s"
	"corbel.dev/corbel/k8s/catalogsync"
	"corbel.dev/corbel/k8s/kubeapi"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/life"
)

// Config says what is kept in step. With neither ToCatalog nor ToCluster there is nothing to do, and New refuses.
type Config struct {
	Kube    *kubeapi.Client
	Catalog *client.Client
	Log     *slog.Logger

	ToCatalog bool
	ToCluster bool
	Gateways  bool // write the cluster's gateways and routes as config entries; needs ToCatalog
	Options   catalogsync.Options
	Mirror    catalogsync.MirrorOptions

	Pace   time.Duration // between two comparisons; default 200 ms
	Resync time.Duration // after which everything is compared without a change; default 1 m
}

// Sync is one. New makes it.
type Sync struct {
	cfg     Config
	changed chan struct{} // of one place: something is to be compared
	Counts  Counts

	services *kubeapi.Mirror[k8s.Service]
	slices   *kubeapi.Mirror[k8s.EndpointSlice]
	nodes    *kubeapi.Mirror[k8s.Node]
	own      *kubeapi.Mirror[k8s.Service] // of the namespace in which mirrors are made
	gates    *gateways                    // nil: they are not asked for
	seen     seen
	said     map[string]string // problems that were logged; used by compare's goroutine alone
	held     map[string]bool   // services of the catalog that were refused; compare's goroutine alone
}

// Counts are what a Sync did.
type Counts struct{ Transactions, Registered, Deregistered, Refused, Failures, ClusterWrites atomic.Int64 }

// Metrics are the counts by their names.
func (s *Sync) Metrics() map[string]int64 {
	c := &s.Counts
	m := map[string]int64{"corbel_k8s_transactions_total": c.Transactions.Load(),
		"corbel_k8s_registered_total": c.Registered.Load(), "corbel_k8s_deregistered_total": c.Deregistered.Load(),
		"corbel_k8s_refused_total": c.Refused.Load(), "corbel_k8s_failures_total": c.Failures.Load(),
		"corbel_k8s_cluster_writes_total": c.ClusterWrites.Load()}
	if s.cfg.ToCatalog {
		m["corbel_k8s_lists_total"] = s.services.Lists.Load() + s.slices.Lists.Load() + s.nodes.Lists.Load()
		m["corbel_k8s_watch_failures_total"] = s.services.Failures.Load() + s.slices.Failures.Load() +
			s.nodes.Failures.Load()
	}
	return m
}

// seen is what the catalog was last known to have.
type seen struct {
	mu       sync.Mutex // guards what follows
	catalog  *catalogsync.Catalog
	services map[string][]string
}

// New checks cfg.
func New(cfg Config) (*Sync, error) {
	switch {
	case !cfg.ToCatalog && !cfg.ToCluster:
		return nil, errkind.New(errkind.Invalid, "nothing to keep in step: say to the catalog, to the cluster, or both")
	case cfg.ToCatalog && cfg.Options.Node == "":
		return nil, errkind.New(errkind.Invalid, "the catalog's node for instances has no name")
	case cfg.Gateways && !cfg.ToCatalog:
		return nil, errkind.New(errkind.Invalid, "gateways lead to services of the catalog: sync these to it too")
	case cfg.ToCluster && cfg.Mirror.Namespace == "":
		return nil, errkind.New(errkind.Invalid, "the namespace for services of the catalog has no name")
	}
	if cfg.Pace == 0 {
		cfg.Pace = 200 * time.Millisecond
	}
	if cfg.Resync == 0 {
		cfg.Resync = time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Sync{cfg: cfg, changed: make(chan struct{}, 1), said: map[string]string{}, held: map[string]bool{}}
	mirror := func(path string) kubeapi.MirrorConfig {
		return kubeapi.MirrorConfig{Client: cfg.Kube, Path: path, Log: cfg.Log, Changed: s.notify}
	}
	if cfg.ToCatalog {
		s.services = kubeapi.NewMirror[k8s.Service](mirror("/api/v1/services"))
		s.slices = kubeapi.NewMirror[k8s.EndpointSlice](mirror("/apis/discovery.k8s.io/v1/endpointslices"))
		s.nodes = kubeapi.NewMirror[k8s.Node](mirror("/api/v1/nodes"))
	}
	if cfg.ToCluster {
		s.own = kubeapi.NewMirror[k8s.Service](mirror(servicesOf(cfg.Mirror.Namespace)))
	}
	if cfg.Gateways {
		s.gates = newGateways(mirror)
	}
	return s, nil
}

func servicesOf(namespace string) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/services"
}

// notify notes that something is to be compared.
func (s *Sync) notify() {
	select {
	case s.changed <- struct{}{}:
	default: // it is noted already
	}
}

// Ready is nil once everything was read.
func (s *Sync) Ready() error {
	for _, in := range s.lacks() {
		return errkind.New(errkind.Unavailable, "not read yet: "+in)
	}
	return nil
}

func (s *Sync) lacks() (list []string) {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	if s.cfg.ToCatalog {
		if s.seen.catalog == nil {
			list = append(list, "the catalog's node "+s.cfg.Options.Node)
		}
		for _, m := range []struct {
			what  string
			lists int64
		}{{"services", s.services.Lists.Load()}, {"endpointslices", s.slices.Lists.Load()}, {"nodes", s.nodes.Lists.Load()}} {
			if m.lists == 0 {
				list = append(list, m.what+" of the cluster")
			}
		}
	}
	if s.cfg.ToCluster && (s.seen.services == nil || s.own.Lists.Load() == 0) {
		list = append(list, "services of the catalog, and of the namespace "+s.cfg.Mirror.Namespace)
	}
	if s.gates != nil && !s.gates.synced() {
		list = append(list, "gateways and routes of the cluster")
	}
	return list
}

// Run keeps both in step until ctx ends.
func (s *Sync) Run(ctx context.Context) error {
	var g life.Group
	if s.cfg.ToCatalog {
		g.Add("services", s.services.Run)
		g.Add("endpointslices", s.slices.Run)
		g.Add("nodes", s.nodes.Run)
		g.Add("catalog", func(ctx context.Context) error { return s.follow(ctx, s.readNode) })
	}
	if s.cfg.ToCluster {
		g.Add("own services", s.own.Run)
		g.Add("catalog services", func(ctx context.Context) error { return s.follow(ctx, s.readServices) })
	}
	if s.gates != nil {
		g.Add("gateway classes", s.gates.classes.Run)
		g.Add("gateways", s.gates.gateways.Run)
		g.Add("routes", s.gates.routes.Run)
	}
	g.Add("compare", s.compare)
	return g.Run(ctx)
}

// follow reads with blocking queries, from index on.
func (s *Sync) follow(ctx context.Context, read func(ctx context.Context, index uint64) (uint64, error)) error {
	retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second}
	var index uint64
	for ctx.Err() == nil {
		next, err := read(ctx, index)
		if err == nil {
			retry.Reset()
			if index = next; next < index {
				index = 0
			}
			s.notify()
			continue
		}
		if ctx.Err() != nil {
			break
		}
		s.Counts.Failures.Add(1)
		pause := retry.Next()
		s.cfg.Log.Warn("the catalog does not answer", "error", err, "retry_in", pause)
		index = 0
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

func (s *Sync) readServices(ctx context.Context, index uint64) (uint64, error) {
	list, meta, err := s.cfg.Catalog.Services(ctx, client.Query{Index: index})
	if err == nil {
		s.seen.mu.Lock()
		s.seen.services = list
		s.seen.mu.Unlock()
	}
	return meta.Index, err
}

// compare writes what differs, after each change and each Resync.
func (s *Sync) compare(ctx context.Context) error {
	retry := backoff.Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second}
	resync := time.NewTicker(s.cfg.Resync)
	defer resync.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-resync.C:
			clear(s.held)
			if s.cfg.ToCatalog {
				if _, err := s.reread(ctx); err != nil {
					s.cfg.Log.Warn("the catalog does not answer", "error", err)
				}
			}
		case <-s.changed:
		}
		pause := s.cfg.Pace
		if err := s.once(ctx); err == nil {
			retry.Reset()
		} else if ctx.Err() == nil {
			s.Counts.Failures.Add(1)
			pause = max(pause, retry.Next())
			s.cfg.Log.Warn("not in step", "error", err, "retry_in", pause)
			s.notify()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (s *Sync) once(ctx context.Context) error {
	if len(s.lacks()) > 0 {
		return nil
	}
	var errs []error
	if s.cfg.ToCatalog {
		errs = append(errs, s.toCatalog(ctx))
	}
	if s.cfg.ToCluster {
		errs = append(errs, s.toCluster(ctx))
	}
	if s.gates != nil {
		errs = append(errs, s.toGateways(ctx))
	}
	return errors.Join(errs...)
}

// tell logs problems that are new.
func (s *Sync) tell(direction string, problems []catalogsync.Problem) {
	for key := range s.said {
		if where, _, _ := strings.Cut(key, " "); where == direction &&
			!slices.ContainsFunc(problems, func(p catalogsync.Problem) bool { return key == direction+" "+p.Service }) {
			delete(s.said, key)
		}
	}
	for _, p := range problems {
		if key := direction + " " + p.Service; s.said[key] != p.Why {
			s.said[key] = p.Why
			s.cfg.Log.Warn("a service is not synced as it asks", "service", p.Service, "why", p.Why)
		}
	}
}

// toCluster carries out Mirrors.
func (s *Sync) toCluster(ctx context.Context) error {
	s.seen.mu.Lock()
	services := s.seen.services
	s.seen.mu.Unlock()
	have, _ := s.own.Items()
	writes, problems := catalogsync.Mirrors(services, have, &s.cfg.Mirror)
	s.tell("cluster", problems)
	path := servicesOf(s.cfg.Mirror.Namespace)
	for _, w := range writes {
		var err error
		switch {
		case w.Create != nil:
			err = s.cfg.Kube.Send(ctx, http.MethodPost, path, "", w.Create, nil)
		case w.Update != nil:
			err = s.cfg.Kube.Send(ctx, http.MethodPut, path+"/"+url.PathEscape(w.Update.Metadata.Name), "", w.Update, nil)
		default:
			// The precondition: that object, not one that somebody made in its place meanwhile.
			err = s.cfg.Kube.Send(ctx, http.MethodDelete, path+"/"+url.PathEscape(w.Delete.Metadata.Name), "",
				map[string]any{"apiVersion": "v1", "kind": "DeleteOptions",
					"preconditions": map[string]string{"uid": w.Delete.Metadata.UID}}, nil)
		}
		switch {
		case kubeapi.Is(err, http.StatusConflict) || kubeapi.Is(err, http.StatusNotFound):
			s.cfg.Log.Debug("the cluster changed meanwhile", "error", err) // its watch tells how
		case err != nil:
			return fmt.Errorf("write services of the cluster: %w", err)
		default:
			s.Counts.ClusterWrites.Add(1)
		}
	}
	return nil
}
