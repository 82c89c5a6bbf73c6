// Package bundle gathers what a person needs to look into a cluster elsewhere:
// profiles, metrics over time, logs, state and host facts of servers and agents, in
// one archive with an index.
//
// Members are asked side by side, each under a deadline; one that does not answer
// costs its own files and nothing else, and the index says so. Everything is text or
// JSON but for profiles and traces, and goes through Redact before it is written.
// Each file is held in memory once, up to maxFileBytes, and cut there.
package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/client"
)

// Captures are the kinds of what is gathered.
var Captures = []string{"agent", "host", "cluster", "metrics", "logs", "pprof"}

const (
	maxFileBytes = 64 << 20
	staticTime   = 20 * time.Second // for an answer that is there at once
	slack        = 15 * time.Second // for one that takes the whole duration
	maxCPU       = 30 * time.Second // longer profiles say nothing more
	maxTrace     = 5 * time.Second  // traces are large
	maxNodes     = 16               // asked at once
)

// Node is a member to ask.
type Node struct {
	Name, Role string
	// Client and Prefix say how: its own address, or another's with the path that leads to it.
	Client *client.Client `json:"-"`
	Prefix string         `json:"-"`
	Via    string         // address that is asked, for the index
	Error  string         `json:",omitempty"` // why it was not asked, or what none of its answers came for
}

// Config says what to gather.
type Config struct {
	Nodes              []Node // the first also tells about the cluster
	Captures           []string
	Duration, Interval time.Duration
	LogLevel           string
	Secrets            []string // texts that must not be in the archive
	Sink               Sink
}

// Sink takes the archive's files, one at a time.
type Sink interface {
	Add(path string, content []byte, when time.Time) error
}

// File is one line of the index.
type File struct {
	Path, Kind string
	Node       string `json:",omitempty"`
	When       time.Time
	Source     string // what was asked
	Bytes      int
	Error      string `json:",omitempty"` // why there is no such file
	Cut        bool   `json:",omitempty"` // it was longer
}

// Index is index.json.
type Index struct {
	Kind               string
	Version            int
	Began, Ended       time.Time
	Duration, Interval string
	Captures           []string
	Nodes              []Node
	Files              []File
}

// run is one gathering. mu guards the index and the sink.
type run struct {
	cfg    Config
	redact *Redactor

	mu    sync.Mutex
	index Index
	err   error // the sink's first
}

// Gather asks all nodes and writes the index last. Its error is the sink's or the end of ctx: members that fail are
// in the index.
func Gather(ctx context.Context, cfg Config) (*Index, error) {
	r := &run{cfg: cfg, redact: NewRedactor(cfg.Secrets)}
	r.index = Index{Kind: "corbel-debug", Version: 1, Began: time.Now().UTC(), Duration: cfg.Duration.String(),
		Interval: cfg.Interval.String(),
		Captures: cfg.Captures, Nodes: slices.Clone(cfg.Nodes), Files: []File{}}
	var wg sync.WaitGroup
	gate := make(chan struct{}, maxNodes)
	if r.wants("cluster") && len(cfg.Nodes) > 0 {
		wg.Go(func() { r.cluster(ctx, cfg.Nodes[0].Client) })
	}
	for i := range r.index.Nodes {
		n := &r.index.Nodes[i]
		if n.Error != "" {
			continue
		}
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			r.node(ctx, n)
		})
	}
	wg.Wait()
	r.index.Ended = time.Now().UTC()
	slices.SortFunc(r.index.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	text, err := indented(r.index)
	if err != nil {
		return nil, err
	}
	return &r.index, errors.Join(r.err, cfg.Sink.Add("index.json", text, r.index.Ended), ctx.Err())
}

func (r *run) wants(kind string) bool { return slices.Contains(r.cfg.Captures, kind) }

// cluster asks the first node what it knows of all.
func (r *run) cluster(ctx context.Context, cl *client.Client) {
	for name, path := range map[string]string{"members": "/v1/agent/members", "members-wan": "/v1/agent/members?wan=1",
		"leader": "/v1/status/leader", "peers": "/v1/status/peers",
		"raft-configuration": "/v1/operator/raft/configuration?stale", "autopilot-health": "/v1/operator/autopilot/health",
		"autopilot-state": "/v1/operator/autopilot/state", "autopilot-configuration": "/v1/operator/autopilot/configuration",
		"doctor": "/v1/doctor/evidence?cluster", "nodes": "/v1/catalog/nodes?stale"} {
		r.take(ctx, job{kind: "cluster", path: "cluster/" + name + ".json", source: path, client: cl, time: staticTime})
	}
}

// node gathers all of one member, its long captures side by side.
func (r *run) node(ctx context.Context, n *Node) {
	dir := "nodes/" + fileName(n.Name) + "/"
	at := func(kind, file, path string, limit time.Duration) job {
		return job{kind: kind, node: n.Name, path: dir + file, source: n.Prefix + path, client: n.Client, time: limit}
	}
	first := r.take(ctx, at("agent", "self.json", "/v1/agent/self", staticTime))
	if first != nil && !answered(first) {
		r.mu.Lock()
		n.Error = first.Error()
		r.mu.Unlock()
		return // every other question would wait as long
	}
	r.take(ctx, at("agent", "version.json", "/v1/agent/version", staticTime))
	if r.wants("logs") { // first: what is gathered logs too
		r.take(ctx, at("logs", "log-before.jsonl", "/v1/internal/log", staticTime))
	}
	if r.wants("host") {
		r.take(ctx, at("host", "host.json", "/v1/agent/host", staticTime))
		r.take(ctx, at("host", "planes.json", "/v1/internal/planes", staticTime))
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Duration+4*staticTime)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	if r.wants("metrics") {
		wg.Go(func() { r.metrics(ctx, at) })
	}
	if r.wants("logs") {
		wg.Go(func() {
			j := at("logs", "log.jsonl", "/v1/agent/monitor?logjson&loglevel="+url.QueryEscape(r.cfg.LogLevel), r.cfg.Duration)
			j.untilTime = true
			r.take(ctx, j)
		})
	}
	if r.wants("pprof") {
		wg.Go(func() { r.profiles(ctx, at) })
	}
}

// answered tells an answer that refuses from no answer.
func answered(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Code != http.StatusServiceUnavailable && e.Code != http.StatusNotFound
}

type jobMaker func(kind, file, path string, limit time.Duration) job

// metrics takes one sample at once and one per interval.
func (r *run) metrics(ctx context.Context, at jobMaker) {
	deadline := time.NewTimer(r.cfg.Duration)
	defer deadline.Stop()
	tick := time.NewTicker(r.cfg.Interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		r.take(ctx, at("metrics", fmt.Sprintf("metrics-%04d.json", n), "/v1/agent/metrics", staticTime))
		select {
		case <-ctx.Done():
			return
		case <-deadline.C:
			return
		case <-tick.C:
		}
	}
}

// profiles takes a trace, then the processor's profile, which exclude each other in their cost, with the others
// before and after.
func (r *run) profiles(ctx context.Context, at jobMaker) {
	still := func(when string) {
		for _, name := range []string{"heap", "goroutine", "mutex", "block", "allocs", "threadcreate"} {
			r.take(ctx, at("pprof", name+"-"+when+".prof", "/debug/pprof/"+name, staticTime))
		}
	}
	seconds := func(d time.Duration) string { return strconv.Itoa(max(1, int(d.Seconds()))) }
	still("begin")
	trace, cpu := min(r.cfg.Duration, maxTrace), min(r.cfg.Duration, maxCPU)
	r.take(ctx, at("pprof", "trace.out", "/debug/pprof/trace?seconds="+seconds(trace), trace+slack))
	r.take(ctx, at("pprof", "cpu.prof", "/debug/pprof/profile?seconds="+seconds(cpu), cpu+slack))
	still("end")
}

// job is one file to take.
type job struct {
	kind, node, path, source string
	client                   *client.Client
	time                     time.Duration
	untilTime                bool // a stream: its deadline is its end
}

// take asks, redacts, and writes; it puts a line in the index either way and returns why there is no file.
func (r *run) take(ctx context.Context, j job) error {
	f := File{Path: j.path, Kind: j.kind, Node: j.node, When: time.Now().UTC(), Source: "GET " + j.source}
	content, err := j.read(ctx)
	switch {
	case err == nil && len(content) > maxFileBytes:
		content, f.Cut = content[:maxFileBytes], true
	case err != nil:
		f.Error = r.redact.Line(err.Error())
	}
	if err == nil {
		content = r.redact.File(j.path, content)
		f.Bytes = len(content)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.err == nil {
		r.err = r.cfg.Sink.Add(j.path, content, f.When)
	}
	r.index.Files = append(r.index.Files, f)
	return err
}

func (j *job) read(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, j.time)
	defer cancel()
	resp, err := j.client.Do(ctx, http.MethodGet, j.source, nil, nil)
	var refused *client.Error
	if errors.As(err, &refused) && refused.Code == http.StatusTooManyRequests {
		return []byte(refused.Body), nil // autopilot's way to say that it is not well
	}
	if err != nil {
		if j.untilTime && ctx.Err() != nil && !errors.As(err, &refused) {
			return nil, nil // no line was logged in the time
		}
		return nil, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxFileBytes+1))
	if j.untilTime && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = nil
	}
	return content, err
}

// fileName is a node's name as part of a path.
func fileName(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.", c) {
			return c
		}
		return '_'
	}, strings.TrimLeft(name, "."))
}
