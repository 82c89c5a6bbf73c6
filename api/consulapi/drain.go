package consulapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"corbel.dev/corbel/catalog"
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
	maxPending   = 20
)

const (
	settlePattern  = "/v1/internal/mesh/settle/"
	settledPattern = "/v1/internal/mesh/settled"
)

var drainRoutes = []route{
	{"PUT", "/v1/agent/service/drain/", own, ResService, onLocal(agentServiceDrain)},
	{"GET", settledPattern, own, ResService, meshSettled},
	{"GET", settlePattern, read, ResService, meshSettle},
}

// duration reads a parameter that is a duration.
func (q *request) duration(name string, def, most time.Duration) (time.Duration, error) {
	text := q.q.Value(name)
	if text == "" {
		return def, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return 0, invalidf("Invalid value for %s: %q is no duration from 0 to %v", name, text, most)
	}
	return d, nil
}

// agentServiceDrain marks an instance as draining, so that it gets no new work, and waits until nobody sends it any: every
// proxy has acknowledged, and no connection is in use. ?enable=false takes the mark away.
func agentServiceDrain(q *request, l Local) error {
	if q.rest == "" {
		return invalidf("Missing service ID")
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
	st := q.drain(l, wait, quiet)
	return q.replyValue(st)
}

// drain waits until the instance has no work left or the time is over.
func (q *request) drain(l Local, wait, quiet time.Duration) *DrainStatus {
	ctx, cancel := context.WithTimeout(q.r.Context(), wait)
	defer cancel()
	st := &DrainStatus{ID: q.rest, Pending: []string{}, Silent: []string{}}
	view := l.View()
	var ports []uint16
	if s := view.Services[q.rest]; s != nil {
		st.Service = s.Service.Name
		ports = append(ports, uint16(s.Service.Port))
	}
	for _, s := range view.Services {
		var proxy struct{ DestinationServiceID string }
		if len(s.Service.Proxy) > 0 && json.Unmarshal(s.Service.Proxy, &proxy) == nil && proxy.DestinationServiceID == q.rest {
			ports = append(ports, uint16(s.Service.Port))
		}
	}
	told := q.api.cfg.Mesh == nil // without a mesh there is nobody to tell
	for {
		if !told {
			told = q.told(ctx, st)
		}
		var err error
		st.Open, st.Busy, err = q.api.cfg.Connections(ports, quiet)
		st.Done, st.Waiting = told && err == nil && st.Busy == 0, ""
		switch {
		case !told:
			st.Waiting = fmt.Sprintf("%d of %d proxies have not acknowledged, %d hosts do not answer", len(st.Pending), st.Proxies, len(st.Silent))
		case err != nil:
			st.Waiting = "open connections cannot be told: " + err.Error()
		case st.Busy > 0:
			st.Waiting = fmt.Sprintf("%d of %d connections are in use", st.Busy, st.Open)
		}
		if st.Done || !pauseFor(ctx, drainAgain) {
			return st
		}
	}
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

// told asks the servers whether every proxy knows that the instance drains.
func (q *request) told(ctx context.Context, st *DrainStatus) bool {
	path := settlePattern + url.PathEscape(st.Service) + "?" + url.Values{"node": {q.api.cfg.Identity.NodeName}, "id": {st.ID}}.Encode()
	answer, err := q.askServers(ctx, http.MethodGet, path, nil)
	var found struct {
		Settled         bool
		Proxies         int
		Pending, Silent []string
	}
	if err == nil {
		err = json.Unmarshal(answer, &found)
	}
	if err != nil {
		st.Silent = []string{"servers: " + errkind.Text(err)}
		return false
	}
	st.Proxies, st.Pending, st.Silent = found.Proxies, found.Pending, found.Silent
	return found.Settled
}

// askServers asks on behalf of the request: this process where it is a server, else one of them.
func (q *request) askServers(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.RequestURI, r.RemoteAddr = path, "127.0.0.1:0"
	if t := q.token(); t != "" {
		r.Header.Set("X-Consul-Token", t)
	}
	answer := &capture{kept{header: http.Header{}}}
	if q.api.cfg.Registry != nil {
		q.api.ServeHTTP(answer, r)
	} else if q.api.cfg.Forward == nil {
		return nil, errNoServers
	} else if err := q.api.cfg.Forward.Forward(answer, r, false); err != nil {
		return nil, err
	}
	if answer.status != http.StatusOK {
		return nil, failWith(answer.status, string(bytes.TrimSpace(answer.body)))
	}
	return bytes.TrimSpace(answer.body), nil
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
		return q.allow(ResService, service, Read)
	}
	index, err := strconv.ParseUint(q.q.Value("index"), 10, 64)
	if err != nil {
		return invalidf("Invalid value for index: %q", q.q.Value("index"))
	}
	var out settledState
	out.Known, out.Proxies, out.Pending = m.Settled(service, index)
	if out.Pending = out.Pending[:min(len(out.Pending), maxPending)]; out.Pending == nil {
		out.Pending = []string{}
	}
	return q.replyValue(out)
}

// meshSettle gathers from all hosts with proxies whether they know that an instance drains, and their proxies have acknowledged it.
func meshSettle(q *request) error {
	service := q.rest
	if !q.mayReadProxy(service) {
		return q.allow(ResService, service, Read)
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
