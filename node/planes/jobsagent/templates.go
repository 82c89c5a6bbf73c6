package jobsagentplane

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/jobs/client/artifact"
	"corbel.dev/corbel/jobs/client/tasktemplate"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
)

// steps are what a task is made ready by, in order.
func (a *Agent) steps(d *plane.Doors) []allocrunner.Step {
	return []allocrunner.Step{&artifact.Step{Client: &http.Client{}}, &tasktemplate.Step{Clock: d.Clock,
		Source: func(w *allocrunner.Work) tasktemplate.Source { return &source{d: d, work: w, agent: a} }},
		&envoyStep{d: d, token: keysOf(d.Cfg).Network.MeshToken}}
}

// source reads what templates want: keys and services at this host's HTTP API with the agent's default token,
// variables and native services at the servers of the jobs plane, secrets at the secrets plane with the task's token.
type source struct {
	d     *plane.Doors
	work  *allocrunner.Work
	agent *Agent

	mu     sync.Mutex // guards leases
	leases map[string]*lease
}

const (
	// longPoll is how long a read waits for a change, and readLimit what is added for the answer.
	longPoll  = 5 * time.Minute
	readLimit = 30 * time.Second
	// pollEvery is how often is read again what cannot be waited for.
	pollEvery = 30 * time.Second
	// maxAnswer bounds an answer in bytes.
	maxAnswer = 8 << 20
)

// Get implements tasktemplate.Source.
func (s *source) Get(ctx context.Context, d tasktemplate.Dep, after uint64) (v tasktemplate.Value, err error) {
	switch d.Kind {
	case tasktemplate.Key:
		text, index, found, err := s.http(ctx, "/v1/kv/"+escaped(d.Name)+"?raw", after)
		return tasktemplate.Value{Data: string(text), Found: found, Index: index}, err
	case tasktemplate.Keys:
		return s.keys(ctx, d.Name, after)
	case tasktemplate.Service:
		return s.instances(ctx, d.Name, after)
	case tasktemplate.Native:
		return s.native(ctx, d.Name, after)
	case tasktemplate.Variable:
		return s.variable(ctx, d.Name, after)
	case tasktemplate.Secret:
		return s.secret(ctx, d.Name, after)
	}
	return v, errkind.Errorf(errkind.Invalid, "templates cannot read a %s", d.Kind)
}

func escaped(name string) string { return (&url.URL{Path: name}).EscapedPath() }

// http asks this host's API; it waits for a change after an index.
func (s *source) http(ctx context.Context, path string, after uint64) (text []byte, index uint64, found bool,
	err error) {
	limit := readLimit
	if after > 0 {
		path += "&index=" + strconv.FormatUint(after, 10) + "&wait=" + longPoll.String()
		limit += longPoll + longPoll/16
	}
	token := s.d.Tokens.Get(base.TokenDefault)
	if held := s.work.Tokens.Catalog.Load(); held != nil && *held != "" {
		token = *held
	}
	return s.fetch(ctx, limit, "http://"+s.hostAPI()+path, http.Header{"X-Consul-Token": {token}})
}

// hostAPI is where the process's HTTP API answers on this host.
func (s *source) hostAPI() string { return hostAPI(s.d) }

func hostAPI(d *plane.Doors) string {
	for _, addr := range d.Cfg.Listen.HTTP {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			continue
		}
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		return net.JoinHostPort(host, port)
	}
	return "127.0.0.1:0"
}

// fetch gets a URL. A 404 is what is not found.
func (s *source) fetch(ctx context.Context, limit time.Duration, target string, header http.Header) (text []byte,
	index uint64, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return nil, 0, false, errkind.E(errkind.Invalid, "", err)
	}
	req.Header = header
	res, err := s.agent.asks.Do(req)
	if err != nil {
		return nil, 0, false, errkind.E(errkind.Unavailable, "", err)
	}
	defer res.Body.Close()
	if text, err = readAll(res.Body); err != nil {
		return nil, 0, false, err
	}
	index, _ = strconv.ParseUint(res.Header.Get("X-Consul-Index"), 10, 64)
	switch res.StatusCode {
	case http.StatusOK:
		return text, index, true, nil
	case http.StatusNotFound:
		return nil, index, false, nil
	}
	return nil, 0, false, errkind.Errorf(errkind.Unavailable, "%s: %.200s", res.Status, text)
}

func (s *source) keys(ctx context.Context, name string, after uint64) (v tasktemplate.Value, err error) {
	text, index, found, err := s.http(ctx, "/v1/kv/"+escaped(name)+"?recurse", after)
	if err != nil || !found {
		return tasktemplate.Value{Index: index}, err
	}
	var rows []struct {
		Key   string
		Value []byte
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		return v, err
	}
	var list []tasktemplate.Pair
	for _, r := range rows {
		list = append(list, tasktemplate.Pair{Path: r.Key, Value: string(r.Value)})
	}
	return tasktemplate.Value{Data: list, Found: true, Index: index}, nil
}

// instances are the passing ones of a service: [tag.]name[@datacenter].
func (s *source) instances(ctx context.Context, name string, after uint64) (v tasktemplate.Value, err error) {
	name, dc, _ := strings.Cut(name, "@")
	tag, service, tagged := strings.Cut(name, ".")
	query := "?passing"
	if !tagged {
		service = name
	} else {
		query += "&tag=" + url.QueryEscape(tag)
	}
	if dc != "" {
		query += "&dc=" + url.QueryEscape(dc)
	}
	text, index, _, err := s.http(ctx, "/v1/health/service/"+escaped(service)+query, after)
	if err != nil {
		return v, err
	}
	var rows []struct {
		Node    struct{ Node, Address string }
		Service struct {
			ID, Service, Address string
			Port                 int
			Tags                 []string
			Meta                 map[string]string
		}
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		return v, err
	}
	list := []tasktemplate.Instance{}
	for _, r := range rows {
		one := tasktemplate.Instance{ID: r.Service.ID, Name: r.Service.Service, Node: r.Node.Node,
			NodeAddress: r.Node.Address, Address: r.Service.Address, Port: r.Service.Port, Tags: r.Service.Tags,
			ServiceMeta: r.Service.Meta, Status: "passing"}
		if one.Address == "" {
			one.Address = r.Node.Address
		}
		list = append(list, one)
	}
	return tasktemplate.Value{Data: list, Found: true, Index: index}, nil
}

// wait passes the time until something is read again that cannot be waited for.
func (s *source) wait(ctx context.Context, after uint64) error {
	if after <= 1 {
		return nil
	}
	return s.pause(ctx, pollEvery)
}

func (s *source) pause(ctx context.Context, d time.Duration) error {
	timer := s.d.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *source) variable(ctx context.Context, name string, after uint64) (v tasktemplate.Value, err error) {
	if err := s.wait(ctx, after); err != nil {
		return v, err
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	ask := &noderpc.VariableAsk{Key: s.agent.client.Key(), Alloc: s.work.Workload.ID, Task: s.work.Task.Name, Path: name}
	answer, err := servers{s.d}.Call(ctx, noderpc.MethodVariable, noderpc.Bytes(ask))
	if err != nil {
		return v, err
	}
	m, err := noderpc.Read[noderpc.Variable](answer)
	if err != nil {
		return v, err
	}
	return tasktemplate.Value{Data: m.Items, Found: len(m.Items) > 0, Index: max(m.Index, 2)}, nil
}
