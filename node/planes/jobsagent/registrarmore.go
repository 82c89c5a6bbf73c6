package jobsagentplane

import (
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/services"
	"corbel.dev/corbel/jobs/noderpc"
)

// definitionOf is a service as this host registers it.
func definitionOf(s *services.Service) *definition.Service {
	d := &definition.Service{ID: s.ID, Name: s.Name, Tags: s.Tags, Meta: s.Meta, EnableTagOverride: s.EnableTagOverride,
		Endpoint: definition.Endpoint{Address: s.Address, Port: s.Port}}
	for i := range s.Checks {
		c := &s.Checks[i]
		out := &definition.Check{ID: c.ID, Name: c.Name, Notes: c.Notes, ServiceID: s.ID, Status: c.Status,
			Interval: c.Interval, Timeout: c.Timeout,
			Thresholds: check.Thresholds{SuccessBeforePassing: c.SuccessBefore, FailuresBeforeCritical: c.FailBefore}}
		out.TLS = definition.TLS{TLSServerName: c.TLS.ServerName, TLSSkipVerify: c.TLS.SkipVerify}
		switch c.Type {
		case "http":
			out.HTTP, out.HTTPRequest = c.Target, check.HTTPRequest{Method: c.HTTP.Method, Body: c.HTTP.Body,
				Header: c.HTTP.Header}
		case "grpc":
			out.GRPC, out.GRPCUseTLS = c.Target, c.TLS.Use
		case "script": // it runs inside of the task, and says how it is
			out.Interval, out.Timeout, out.TTL = 0, 0, 3*c.Interval+c.Timeout
		default:
			out.TCP = c.Target
		}
		d.Checks = append(d.Checks, out)
	}
	d.Connect = connectOf(s)
	return d
}

// connectOf is its part in the mesh; nil without one.
func connectOf(s *services.Service) *definition.Connect {
	if s.Mesh.Sidecar == nil {
		if s.Mesh.Native {
			return &definition.Connect{Native: true}
		}
		return nil
	}
	from := s.Mesh.Sidecar
	proxy := &definition.Service{Tags: from.Tags, Meta: from.Meta, Endpoint: definition.Endpoint{Address: from.Address,
		Port: from.Port}, Mesh: definition.Mesh{Proxy: from.Proxy}}
	listens := &definition.Check{Name: "Connect Sidecar Listening", Interval: proxyCheckInterval,
		Timeout: proxyCheckInterval, Probe: definition.Probe{TCP: net.JoinHostPort(from.Address, strconv.Itoa(from.Port))}}
	stands := &definition.Check{Name: "Connect Sidecar Aliasing " + s.ID,
		Probe: definition.Probe{Alias: definition.Alias{AliasService: s.ID}}}
	if proxy.Checks = []*definition.Check{stands}; !from.Unchecked {
		proxy.Checks = []*definition.Check{listens, stands}
	}
	return &definition.Connect{SidecarService: proxy}
}

// proxyCheckInterval is how often the port of a proxy is tried.
const proxyCheckInterval = 10 * time.Second

// specOf is a check that is run here.
func specOf(c *services.Check, script check.Probe) check.Spec {
	s := check.Spec{Target: c.Target, Interval: c.Interval, Timeout: c.Timeout, UseTLS: c.TLS.Use,
		TLSServerName: c.TLS.ServerName, TLSSkipVerify: c.TLS.SkipVerify,
		Thresholds: check.Thresholds{SuccessBeforePassing: c.SuccessBefore, FailuresBeforeCritical: c.FailBefore},
		Start:      check.Start{Status: catalog.Critical}}
	switch c.Type {
	case "http":
		s.Kind, s.HTTPRequest = check.KindHTTP, check.HTTPRequest{Method: c.HTTP.Method, Body: c.HTTP.Body,
			Header: c.HTTP.Header}
	case "grpc":
		s.Kind = check.KindGRPC
	case "script":
		s.Kind, s.Probe = check.KindAlias, script
	default:
		s.Kind = check.KindTCP
	}
	return s
}

// restarts restarts the task of a check that failed Limit times in a row. failing has since when checks do.
func (r *registrar) restarts(alloc jobs.ID, list []services.Service, failing map[string]time.Time) {
	now := r.d.Clock.Now()
	for i := range list {
		for j := range list[i].Checks {
			c := &list[i].Checks[j]
			if c.Restart.Limit <= 0 {
				continue
			}
			is := r.statusOf(&list[i], c)
			if is == catalog.Passing || is == catalog.Warning && c.Restart.IgnoreWarnings {
				delete(failing, c.ID)
				continue
			}
			since, known := failing[c.ID]
			if !known {
				failing[c.ID] = now.Add(c.Restart.Grace)
				continue
			}
			if now.Sub(since) >= time.Duration(c.Restart.Limit)*c.Interval {
				delete(failing, c.ID)
				_ = r.client.Restart(alloc, c.Task, "check "+c.Name+" unhealthy") // one that does not run needs none
			}
		}
	}
}

// prune forgets checks that are gone.
func (r *registrar) prune(failing map[string]time.Time) {
	known := map[string]bool{}
	r.mu.Lock()
	for _, list := range r.want {
		for i := range list {
			for j := range list[i].Checks {
				known[list[i].Checks[j].ID] = true
			}
		}
	}
	r.mu.Unlock()
	for id := range failing {
		if !known[id] {
			delete(failing, id)
		}
	}
}

// setNative wants a native registration, or with nil none.
func (r *registrar) setNative(id string, s *noderpc.Registration) {
	r.mu.Lock()
	if s == nil {
		delete(r.native, id)
	} else {
		r.native[id] = *s
	}
	r.mu.Unlock()
	select {
	case r.fresh <- struct{}{}:
	default:
	}
}

const (
	// publishLimit bounds a call.
	publishLimit = 10 * time.Second
	// doubtful is how long a call may take before another server may have been asked too, and lateAfter how long after
	// it one of them may still hold what it was given.
	doubtful  = time.Second
	lateAfter = 2 * time.Minute
)

// publish keeps the servers' native registrations of this node what they are to be. What it sent last it compares with
// what is wanted; the first message of a life is whole. So is one some time after a call without an answer, or with a
// late one: a server that held it may have had it stored after what is newer.
func (r *registrar) publish(ctx context.Context) {
	var sent map[string]noderpc.Registration
	select {
	case <-r.client.Ready():
	case <-ctx.Done():
		return
	}
	var whole time.Time // when a message is to be whole; zero: none
	for {
		r.mu.Lock()
		want := maps.Clone(r.native)
		r.mu.Unlock()
		wait, now := time.Hour, r.d.Clock.Now()
		if !whole.IsZero() && !now.Before(whole) {
			sent, whole = nil, time.Time{}
		}
		m := &noderpc.Services{Key: r.client.Key(), All: sent == nil}
		for _, id := range slices.Sorted(maps.Keys(want)) {
			if old, ok := sent[id]; !ok || !sameRegistration(&old, want[id]) {
				m.Upsert = append(m.Upsert, want[id])
			}
		}
		for _, id := range slices.Sorted(maps.Keys(sent)) {
			if _, ok := want[id]; !ok {
				m.Delete = append(m.Delete, id)
			}
		}
		if sent == nil || len(m.Upsert)+len(m.Delete) > 0 {
			limited, cancel := context.WithTimeout(ctx, publishLimit)
			_, err := r.servers.Call(limited, noderpc.MethodServices, noderpc.Bytes(m))
			cancel()
			if err != nil || r.d.Clock.Since(now) >= doubtful {
				whole = now.Add(lateAfter + rand.N(lateAfter/2))
			}
			if err == nil {
				sent = want
			} else {
				r.d.Log.Debug("the servers do not take native services", "error", err)
				wait = retryAfter
			}
		}
		if !whole.IsZero() {
			wait = max(min(wait, whole.Sub(r.d.Clock.Now())), 0)
		}
		timer := r.d.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.fresh:
		case <-r.client.Replaced():
			sent = nil
		case <-timer.C:
		}
		timer.Stop()
	}
}

func sameRegistration(a *noderpc.Registration, b noderpc.Registration) bool {
	return a.Name == b.Name && a.Address == b.Address && a.Port == b.Port && slices.Equal(a.Tags, b.Tags)
}
