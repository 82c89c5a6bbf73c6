package consulapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
)

// DrainStatus says how far an instance's draining is.
type DrainStatus struct {
	Service string // name of the service
	ID      string // of the instance
	Done    bool
	Waiting string // what for, in words; "" when done
	// Proxies are those that were told of the instance; Pending some of those that have not acknowledged that it drains.
	Proxies int
	Pending []string
	Silent  []string // hosts that did not answer: what their proxies know is not known
	// Open are the connections to the instance and its sidecar; Busy those of them in use.
	Open, Busy int
}

// Connections tells how many connections the ports of this host have, and how many of them are in use.
type Connections func(ports []uint16, quiet time.Duration) (open, busy int, err error)

// The defaults and bounds of draining.
const (
	drainWait    = 30 * time.Second
	maxDrainWait = time.Hour
	drainQuiet   = 2 * time.Second
	drainAgain   = 250 * time.Millisecond
	// serversWait is for how long no server may answer before a process that ends gives up draining.
	serversWait = 2 * time.Second
	maxPending  = 20
)

const (
	settlePattern  = "/v1/internal/mesh/settle/"
	settledPattern = "/v1/internal/mesh/settled"
)

var drainRoutes = []route{
	{"PUT", "/v1/agent/service/drain/", own, acl.Service, onLocal(agentServiceDrain)},
	{"GET", settledPattern, own, acl.Service, meshSettled},
	{"GET", settlePattern, read, acl.Service, meshSettle},
}

// duration reads a parameter that is a duration.
func (q *request) duration(name string, def, most time.Duration) (time.Duration, error) {
	text := q.q.Value(name)
	if text == "" {
		return def, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return 0, answer.Invalidf("Invalid value for %s: %q is no duration from 0 to %v", name, text, most)
	}
	return d, nil
}

// agentServiceDrain marks an instance as draining, so that it gets no new work, and waits until nobody sends it any:
// every proxy has acknowledged, and no connection is in use. ?enable=false takes the mark away.
func agentServiceDrain(q *request, l Local) error {
	if q.rest == "" {
		return answer.Invalidf("Missing service ID")
	}
	enable := true
	if q.q.Has("enable") {
		var err error
		if enable, err = q.enable(); err != nil {
			return err
		}
	}
	wait, err := q.duration("wait", drainWait, maxDrainWait)
	if err != nil {
		return err
	}
	quiet, err := q.duration("quiet", drainQuiet, time.Minute)
	if err != nil {
		return err
	}
	if err := q.serviceRight(l, q.rest); err != nil {
		return err
	}
	if err := l.SetServiceDrain(q.r.Context(), q.rest, enable, q.q.Value("reason")); err != nil {
		return err
	}
	if !enable {
		return q.replyEmpty()
	}
	d := q.api.draining(l, q.rest, q.token())
	d.wait(q.r.Context(), wait, quiet)
	return q.replyValue(&d.st)
}

// draining is one instance on its way out of use.
type draining struct {
	api   *API
	token string // what the servers are asked with
	ports []uint16
	told  bool // every proxy has acknowledged
	// unheard: no server answered the last question about the proxies.
	unheard bool
	st      DrainStatus
}

// draining begins to look at an instance that is marked.
func (a *API) draining(l Local, id, token string) *draining {
	d := &draining{api: a, token: token, told: a.cfg.Mesh == nil} // without a mesh there is nobody to tell
	d.st = DrainStatus{ID: id, Pending: []string{}, Silent: []string{}}
	view := l.View()
	if s := view.Services[id]; s != nil {
		d.st.Service = s.Service.Name
		d.ports = append(d.ports, uint16(s.Service.Port))
	}
	for _, s := range view.Services {
		if behind(s.Service) == id {
			d.ports = append(d.ports, uint16(s.Service.Port))
		}
	}
	return d
}

// behind is the instance that a sidecar stands for, "" for everything else.
func behind(s *catalog.Service) string {
	var proxy struct{ DestinationServiceID string }
	if s.Kind != catalog.KindConnectProxy || len(s.Proxy) == 0 || json.Unmarshal(s.Proxy, &proxy) != nil {
		return ""
	}
	return proxy.DestinationServiceID
}

// wait looks until the instance has no work left or the time is over.
func (d *draining) wait(ctx context.Context, most, quiet time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		d.look(ctx, quiet)
		if d.st.Done || !pauseFor(ctx, drainAgain) {
			return
		}
	}
}

// look finds out how far it is.
func (d *draining) look(ctx context.Context, quiet time.Duration) {
	st := &d.st
	if !d.told {
		d.told = d.settled(ctx)
	}
	var err error
	st.Open, st.Busy, err = d.api.cfg.Connections(d.ports, quiet)
	st.Done, st.Waiting = d.told && err == nil && st.Busy == 0, ""
	switch {
	case !d.told:
		st.Waiting = fmt.Sprintf("%d of %d proxies have not acknowledged, %d hosts do not answer", len(st.Pending), st.Proxies, len(st.Silent))
	case err != nil:
		st.Waiting = "open connections cannot be told: " + err.Error()
	case st.Busy > 0:
		st.Waiting = fmt.Sprintf("%d of %d connections are in use", st.Busy, st.Open)
	}
}

// HasServices tells whether this host registered any.
func (a *API) HasServices() bool { return len(a.cfg.Local.View().Services) > 0 }

// serversAnswer tells whether a server that knows a leader answers: without one nobody can be told that an instance
// drains.
func (a *API) serversAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serversWait)
	defer cancel()
	answer, err := a.askServers(ctx, http.MethodGet, "/v1/status/leader", nil, a.cfg.DefaultToken())
	if err == nil && string(answer) == `""` {
		err = errkind.New(errkind.Unavailable, "no leader")
	}
	if err != nil {
		return errkind.E(errkind.Unavailable, "no server answers, so nobody can be told", err)
	}
	return nil
}

// Told tells, of an instance that drains, which ports of this host it and its sidecar have, and whether every proxy
// knows that it goes.
func (a *API) Told(ctx context.Context, id string) (ports []uint16, told bool) {
	s := a.cfg.Local.View().Services[id]
	if s == nil {
		return nil, false
	}
	d := a.draining(a.cfg.Local, id, cmp.Or(s.Definition.Token, a.cfg.DefaultToken()))
	return d.ports, d.told || d.settled(ctx)
}

// DrainAll marks every instance of this host as draining, as long as the process runs, and waits until none has work
// left or ctx ends. said hears, by an instance's id, what is waited for, whenever that changes; "" is that nothing is.
// It returns those that still have work. When no server answers, at the beginning or later, it gives up: kind
// Unavailable.
func (a *API) DrainAll(ctx context.Context, reason string, said func(id, waiting string)) ([]string, error) {
	var ids []string
	var left []*draining
	for id, s := range a.cfg.Local.View().Services {
		if behind(s.Service) != "" {
			continue // drains with what is behind it
		}
		ids = append(ids, id)
		token := cmp.Or(s.Definition.Token, a.cfg.DefaultToken())
		left = append(left, a.draining(a.cfg.Local, id, token))
	}
	slices.Sort(ids)
	slices.SortFunc(left, func(x, y *draining) int { return cmp.Compare(x.st.ID, y.st.ID) })
	if len(ids) == 0 {
		return nil, nil
	}
	if err := a.serversAnswer(ctx); err != nil {
		return ids, err
	}
	if err := a.cfg.Local.DrainServices(ctx, ids, reason); err != nil {
		return ids, err
	}
	last := map[string]string{}
	var silent error
	for {
		left = slices.DeleteFunc(left, func(d *draining) bool {
			if ctx.Err() != nil || silent != nil {
				return false
			}
			d.look(ctx, drainQuiet)
			if d.unheard {
				silent = a.serversAnswer(ctx)
			}
			if before, heard := last[d.st.ID]; !heard || before != d.st.Waiting {
				last[d.st.ID] = d.st.Waiting
				said(d.st.ID, d.st.Waiting)
			}
			return d.st.Done
		})
		if len(left) == 0 || silent != nil || !pauseFor(ctx, drainAgain) {
			break
		}
	}
	if ctx.Err() != nil {
		silent = nil // the time was over before a server could answer
	}
	ids = ids[:0]
	for _, d := range left {
		ids = append(ids, d.st.ID)
	}
	return ids, silent
}

func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// settled asks the servers whether every proxy knows that the instance drains.
func (d *draining) settled(ctx context.Context) bool {
	st := &d.st
	path := settlePattern + url.PathEscape(st.Service) + "?" + url.Values{"node": {d.api.cfg.Identity.NodeName}, "id": {st.ID}}.Encode()
	answer, err := d.api.askServers(ctx, http.MethodGet, path, nil, d.token)
	var found struct {
		Settled         bool
		Proxies         int
		Pending, Silent []string
	}
	if err == nil {
		err = json.Unmarshal(answer, &found)
	}
	if d.unheard = err != nil; d.unheard {
		st.Silent = []string{"servers: " + errkind.Text(err)}
		return false
	}
	st.Proxies, st.Pending, st.Silent = found.Proxies, found.Pending, found.Silent
	return found.Settled
}

// askServers asks with a token: this process where it is a server, else one of them.
func (a *API) askServers(ctx context.Context, method, path string, body []byte, token string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.RequestURI, r.RemoteAddr = path, "127.0.0.1:0"
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	told := &capture{kept{header: http.Header{}}}
	if a.cfg.Registry != nil {
		a.ServeHTTP(told, r)
	} else if a.cfg.Forward == nil {
		return nil, answer.ErrNoServers
	} else if err := a.cfg.Forward.Forward(told, r, false); err != nil {
		return nil, err
	}
	if told.status != http.StatusOK {
		return nil, answer.FailAs(told.status, told.header, told.body)
	}
	return bytes.TrimSpace(told.body), nil
}

// settledState is how the proxies of one host stand to a service's instances.
type settledState struct {
	Known   bool // the host has heard of everything up to the index
	Proxies int
	Pending []string
}

// meshSettled answers for this host alone.
func meshSettled(q *request) error {
	m := q.api.cfg.Mesh
	if m == nil {
		return errNoMesh
	}
	service := q.q.Value("service")
	if !q.mayReadProxy(service) {
		return q.allow(acl.Service, service, acl.Read)
	}
	index, err := strconv.ParseUint(q.q.Value("index"), 10, 64)
	if err != nil {
		return answer.Invalidf("Invalid value for index: %q", q.q.Value("index"))
	}
	var out settledState
	out.Known, out.Proxies, out.Pending = m.Settled(service, index)
	if out.Pending = out.Pending[:min(len(out.Pending), maxPending)]; out.Pending == nil {
		out.Pending = []string{}
	}
	return q.replyValue(out)
}

// meshSettle gathers from all hosts with proxies whether they know that an instance drains, and their proxies have
// acknowledged it.
func meshSettle(q *request) error {
	service := q.rest
	if !q.mayReadProxy(service) {
		return q.allow(acl.Service, service, acl.Read)
	}
	st, err := q.meshServers()
	if err != nil {
		return err
	}
	out := struct {
		Settled         bool
		Index           uint64
		Hosts, Proxies  int
		Pending, Silent []string
	}{Settled: true, Index: st.Index(), Pending: []string{}, Silent: []string{}}
	if st.Check(q.q.Value("node"), catalog.ServiceDrainPrefix+q.q.Value("id")) == nil { // this server has not heard of the mark
		out.Settled = false
		return q.replyValue(out)
	}
	hosts, _ := q.proxyHosts(st, nil)
	out.Hosts = len(hosts)
	path := settledPattern + "?" + url.Values{"service": {service}, "index": {strconv.FormatUint(out.Index, 10)}}.Encode()
	for _, s := range q.gather(hosts, path, func(body []byte) error {
		var one settledState
		if err := json.Unmarshal(body, &one); err != nil {
			return err
		}
		out.Proxies += one.Proxies
		out.Settled = out.Settled && one.Known && len(one.Pending) == 0
		out.Pending = append(out.Pending, one.Pending...)
		return nil
	}) {
		out.Settled = false
		out.Silent = append(out.Silent, s.Node)
	}
	out.Pending = out.Pending[:min(len(out.Pending), maxPending)]
	return q.replyValue(out)
}
