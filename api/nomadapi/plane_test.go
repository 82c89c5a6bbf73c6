package nomadapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/dispatch"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/state"
	"corbel.dev/corbel/kit/errkind"
)

// plane is a jobs plane in memory: what is written shows at once, and nothing schedules.
type plane struct {
	mu      sync.Mutex
	view    view
	changed chan struct{}
	events  []*nomadrows.Events
	// replaced, when it is closed, says that a snapshot replaced everything behind the events.
	replaced chan struct{}
	calls    []string // what was written, for tests that look
	frames   string   // what nodes send
	sealed   bool     // nothing opens variables
	sent     bytes.Buffer
}

type view struct {
	state      *state.State
	tables     [10]uint64
	namespaces []*nomadrows.Namespace
	pools      []*nomadrows.NodePool
	services   []*nomadrows.Service
	setting    nomadrows.SchedulerSetting
	submitted  *nomadrows.Submission
	variables  []*nomadrows.Variable
}

func (v *view) State() *state.State                   { return v.state }
func (v *view) Generation() uint64                    { return 0 }
func (v *view) Index(t nomadrows.Table) uint64        { return v.tables[t] }
func (v *view) Namespaces() []*nomadrows.Namespace    { return v.namespaces }
func (v *view) Pools() []*nomadrows.NodePool          { return v.pools }
func (v *view) Scheduler() nomadrows.SchedulerSetting { return v.setting }
func (v *view) Network(jobs.ID) json.RawMessage       { return nil }

func (v *view) Tasks(jobs.ID) map[string]*jobwire.TaskState {
	return map[string]*jobwire.TaskState{"main": {State: "running"}}
}

func (v *view) Node(jobs.ID) nomadrows.NodeDetail {
	return nomadrows.NodeDetail{Address: "127.0.0.1:4646", Version: "1.6.5"}
}

func (v *view) Scalings(jobs.JobKey) map[string][]*nomadrows.ScalingEvent {
	return map[string][]*nomadrows.ScalingEvent{"g": {{Count: new(int64(2)), PreviousCount: 1, Message: "busy"}}}
}

func (v *view) Submission(jobs.JobKey, uint64) *nomadrows.Submission { return v.submitted }

func (v *view) Services(namespace string) iter.Seq[*nomadrows.Service] {
	return func(yield func(*nomadrows.Service) bool) {
		for _, s := range v.services {
			if s.Namespace == namespace && !yield(s) {
				return
			}
		}
	}
}

func (v *view) Variables(namespace string) iter.Seq[*nomadrows.VariableMeta] {
	return func(yield func(*nomadrows.VariableMeta) bool) {
		for _, one := range v.variables {
			if (namespace == "" || one.Namespace == namespace) && !yield(&one.VariableMeta) {
				return
			}
		}
	}
}

func (v *view) Variable(namespace, path string) *nomadrows.VariableMeta {
	for m := range v.Variables(namespace) {
		if m.Path == path {
			return m
		}
	}
	return nil
}

func newPlane() *plane {
	return &plane{changed: make(chan struct{}), view: view{state: state.Empty(),
		namespaces: []*nomadrows.Namespace{{Name: "default"}, {Name: "other"}},
		pools:      []*nomadrows.NodePool{{Name: "all"}, {Name: "default"}}}}
}

// edit makes the next state; the tables that change get its index.
func (p *plane) edit(change func(e *state.Edit), tables ...nomadrows.Table) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.view.state.Edit(p.view.state.Index() + 1)
	change(e)
	p.view.state = e.Done()
	for _, t := range tables {
		p.view.tables[t] = p.view.state.Index()
	}
	close(p.changed)
	p.changed = make(chan struct{})
	return p.view.state.Index()
}

func (p *plane) View(context.Context, bool) (nomadrows.View, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.view
	return &v, nil
}

func (p *plane) Wait(ctx context.Context, _ nomadrows.Watch, index uint64) {
	p.mu.Lock()
	changed, now := p.changed, p.view.state.Index()
	p.mu.Unlock()
	if now > index {
		return
	}
	select {
	case <-ctx.Done():
	case <-changed:
	}
}

func (p *plane) LastContact() (time.Duration, bool) { return 0, true }
func (p *plane) Oldest() uint64                     { return 0 }

func (p *plane) Events(ctx context.Context, index uint64) (list []*nomadrows.Events, err error) {
	p.mu.Lock()
	for _, e := range p.events {
		if e.Index > index {
			list = append(list, e)
		}
	}
	p.mu.Unlock()
	if len(list) > 0 {
		return list, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.replaced:
		return nil, errkind.New(errkind.Conflict, "a snapshot replaced the state; read it anew")
	}
}

func (p *plane) did(what string) (nomadrows.Written, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, what)
	return nomadrows.Written{Index: 77, Eval: jobs.ID{15: 9}, EvalIndex: 77, JobModifyIndex: 77, Updated: true}, nil
}

func (p *plane) Register(_ context.Context, r *nomadrows.Registration) (nomadrows.Written, error) {
	if !slices.ContainsFunc(p.view.namespaces, func(n *nomadrows.Namespace) bool { return n.Name == r.Job.Namespace }) {
		return nomadrows.Written{}, errkind.Errorf(errkind.NotFound, "job %q is in nonexistent namespace %q", r.Job.ID,
			r.Job.Namespace)
	}
	index := p.edit(func(e *state.Edit) {
		next := *r.Job
		if old := e.Job(next.JobKey); old != nil {
			next.Version = old.Version + 1
		}
		next.JobModifyIndex = e.Index()
		e.PutJob(&next)
	}, nomadrows.Jobs)
	return nomadrows.Written{Index: index, JobModifyIndex: index, EvalIndex: index, Eval: jobs.ID{15: 9}}, nil
}

func (p *plane) Deregister(_ context.Context, key jobs.JobKey, purge bool, _ int) (nomadrows.Written, error) {
	if purge {
		return p.did("purge " + key.ID)
	}
	return p.did("stop " + key.ID)
}

func (p *plane) Evaluate(_ context.Context, key jobs.JobKey, _ bool) (nomadrows.Written, error) {
	if p.view.state.Job(key) == nil {
		return nomadrows.Written{}, errkind.New(errkind.NotFound, "job not found")
	}
	return p.did("evaluate " + key.ID)
}

func (p *plane) Stable(_ context.Context, key jobs.JobKey, _ uint64, _ bool) (nomadrows.Written, error) {
	return p.did("stable " + key.ID)
}

func (p *plane) Scaled(_ context.Context, key jobs.JobKey, e *nomadrows.ScalingEvent) (nomadrows.Written, error) {
	return p.did("scaled " + key.ID + " " + e.Group + ": " + e.Message)
}

func (p *plane) DropEvaluations(_ context.Context, ids []jobs.ID) (nomadrows.Written, error) {
	p.edit(func(e *state.Edit) {
		for _, id := range ids {
			e.DeleteEvaluation(id)
		}
	}, nomadrows.Evaluations)
	return p.did("drop")
}

func (p *plane) Dispatch(_ context.Context, key jobs.JobKey, r dispatch.Request) (nomadrows.Written, error) {
	if err := dispatch.Check(p.view.state.Job(key), r); err != nil {
		return nomadrows.Written{}, err
	}
	w, err := p.did("dispatch " + key.ID)
	w.Job = key.ID + "/dispatch-1"
	return w, err
}

func (p *plane) Force(_ context.Context, key jobs.JobKey) (nomadrows.Written, error) {
	return p.did("force " + key.ID)
}

func (p *plane) StopAllocation(_ context.Context, id jobs.ID, _ bool) (nomadrows.Written, error) {
	return p.did("stop " + id.String())
}

func (p *plane) Drain(_ context.Context, _ jobs.ID, d nomadrows.Draining) (nomadrows.Written, error) {
	if d.Drain {
		return p.did("drain " + d.Deadline.String())
	}
	return p.did("undrain")
}

func (p *plane) Eligible(_ context.Context, _ jobs.ID, yes bool) (nomadrows.Written, error) {
	if yes {
		return p.did("eligible")
	}
	return p.did("ineligible")
}

func (p *plane) EvaluateNode(context.Context, jobs.ID) (nomadrows.Written, error) {
	return p.did("evaluate")
}
func (p *plane) Purge(context.Context, jobs.ID) (nomadrows.Written, error) { return p.did("purge") }

func (p *plane) Promote(_ context.Context, _ jobs.ID, groups []string) (nomadrows.Written, error) {
	return p.did("promote")
}
func (p *plane) Fail(context.Context, jobs.ID) (nomadrows.Written, error) { return p.did("fail") }
func (p *plane) Pause(context.Context, jobs.ID, bool) (nomadrows.Written, error) {
	return p.did("pause")
}
func (p *plane) Health(context.Context, jobs.ID, []jobs.ID, []jobs.ID) (nomadrows.Written, error) {
	return p.did("health")
}

func (p *plane) SetScheduler(_ context.Context, s nomadrows.SchedulerSetting, _ *uint64) (nomadrows.Written, error) {
	p.view.setting = s
	return p.did("scheduler")
}
func (p *plane) Put(_ context.Context, object any) (nomadrows.Written, error) { return p.did("put") }
func (p *plane) Delete(_ context.Context, _ nomadrows.Table, _, name string) (nomadrows.Written, error) {
	return p.did("delete " + name)
}
func (p *plane) Collect(context.Context) error   { return nil }
func (p *plane) Reconcile(context.Context) error { return nil }

func (p *plane) Ask(_ context.Context, _ jobs.ID, method string, in, out any) error {
	call, ok := in.(nomadrows.FileCall)
	if ok && call.Path == "/missing" {
		return errkind.New(errkind.NotFound, "stat /missing: no such file or directory")
	}
	if meta, ok := in.(nomadrows.MetaCall); ok {
		text, err := json.Marshal(map[string]any{"asked": meta})
		return errors.Join(err, json.Unmarshal(text, out))
	}
	if out != nil {
		return json.Unmarshal([]byte(p.frames), out)
	}
	_, err := p.did(method)
	return err
}

func (p *plane) Read(_ context.Context, _ jobs.ID, method string, in any) (io.ReadCloser, error) {
	if call, ok := in.(nomadrows.FileCall); ok && call.Path == "/missing" {
		return nil, errkind.New(errkind.NotFound, "open /missing: no such file or directory")
	}
	return io.NopCloser(bytes.NewBufferString(p.frames)), nil
}

// talk is a session: what the client sends is kept, what the node sends is frames.
type talk struct {
	io.Reader
	to *bytes.Buffer
	mu *sync.Mutex
}

func (t talk) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.to.Write(b)
}
func (t talk) Close() error { return nil }

func (p *plane) Talk(context.Context, jobs.ID, string, any) (io.ReadWriteCloser, error) {
	return talk{bytes.NewBufferString(p.frames), &p.sent, &p.mu}, nil
}

func (p *plane) Forward(http.ResponseWriter, *http.Request, bool) bool { return false }
func (p *plane) Leader() string                                        { return "127.0.0.1:4647" }
func (p *plane) Servers() []nomadrows.Server {
	return []nomadrows.Server{{Name: "a", Address: "127.0.0.1:4647", ID: "a", Status: "alive", Leader: true, Voter: true,
		Region: "global", Datacenter: "dc1"}, {Name: "b", Address: "127.0.0.1:4648", ID: "b-id", Status: "failed",
		Region: "global", Datacenter: "dc1"}}
}
func (p *plane) Regions() nomadrows.Regions { return nil }
func (p *plane) Self() nomadrows.Self {
	return nomadrows.Self{Name: "a", Region: "global", Datacenter: "dc1", Version: "1.6.5", Server: true}
}

// Monitor has a line of a server.
func (p *plane) Monitor(_ context.Context, s nomadrows.Server, call nomadrows.MonitorCall) (io.ReadCloser, error) {
	line := base64.StdEncoding.EncodeToString([]byte("log of " + s.Name + " " + call.Level.String()))
	return io.NopCloser(strings.NewReader(`{"Data":"` + line + `"}`)), nil
}

func (p *plane) Open(_ context.Context, v nomadrows.View, namespace, path string) (*nomadrows.Variable, error) {
	if p.sealed {
		return nil, errkind.New(errkind.Unavailable, "unseal it")
	}
	for _, one := range v.(*view).variables {
		if one.Namespace == namespace && one.Path == path {
			return one, nil
		}
	}
	return nil, nil
}

func (p *plane) PutVariable(_ context.Context, one *nomadrows.Variable, index *uint64) (nomadrows.Written, error) {
	if old := p.view.Variable(one.Namespace, one.Path); index != nil && (old == nil && *index != 0 ||
		old != nil && old.ModifyIndex != *index) {
		return nomadrows.Written{}, errkind.New(errkind.Conflict, "cas error")
	}
	one.ModifyIndex = p.edit(func(*state.Edit) {
		p.view.variables = append(slices.DeleteFunc(slices.Clone(p.view.variables), func(o *nomadrows.Variable) bool {
			return o.Namespace == one.Namespace && o.Path == one.Path
		}), one)
	}, nomadrows.Variables)
	return nomadrows.Written{Index: one.ModifyIndex}, nil
}

func (p *plane) DeleteVariable(_ context.Context, namespace, path string, index *uint64) (nomadrows.Written, error) {
	if old := p.view.Variable(namespace, path); index != nil && old != nil && old.ModifyIndex != *index {
		return nomadrows.Written{}, errkind.New(errkind.Conflict, "cas error")
	}
	return p.did("delete " + path)
}

// Follow has two lines.
func (p *plane) Follow(_ context.Context, level slog.Level, structured bool, w io.Writer, flush func()) error {
	fmt.Fprintf(w, "level %v, json %v\n", level, structured)
	flush()
	return nil
}

func (p *plane) api() *API {
	return New(Config{Needs: p.needs()})
}

func (p *plane) needs() nomadrows.Needs {
	return nomadrows.Needs{Views: p, Jobs: p, Starter: p, Nodes: p, Deployments: p, Settings: p, Variables: p, Clients: p,
		Cluster: p, Logs: p, Snapshots: p}
}

// archive is a file in memory.
type archive struct{ *strings.Reader }

func (archive) Close() error { return nil }

func (p *plane) Save(_ context.Context, stale bool) (io.ReadSeekCloser, error) {
	return archive{strings.NewReader(fmt.Sprintf("archive, stale %v", stale))}, nil
}

// Restore takes an archive that says whole.
func (p *plane) Restore(_ context.Context, in io.Reader) (uint64, error) {
	text, err := io.ReadAll(in)
	if err == nil && string(text) != "whole" {
		err = errkind.New(errkind.Corrupt, "it is damaged")
	}
	return 77, err
}
