package movein

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/migrate"
	"corbel.dev/corbel/client/nomad"
)

// NomadKinds are what Nomad brings over, in its order: what others name comes first, and jobs, which begin to run,
// last.
var NomadKinds = []string{"pools", "namespaces", "scheduler", "policies", "roles", "auth-methods", "binding-rules",
	"tokens", "variables", "jobs"}

// NomadOptions say how to bring a Nomad over.
type NomadOptions struct {
	Options
	Kinds   []string // only these; none is all
	Stopped bool     // jobs are stored as stopped: nothing runs until they are started
}

// nomadRun is one run.
type nomadRun struct {
	*run
	from, to *nomad.Client
	stopped  bool
}

// Nomad brings over what a token may read.
func Nomad(ctx context.Context, from, to *nomad.Client, fromName, toName string, o NomadOptions) (*migrate.Report,
	error) {
	for _, kind := range o.Kinds {
		if !slices.Contains(NomadKinds, kind) {
			return nil, fmt.Errorf("there is no kind %q: use %s", kind, strings.Join(NomadKinds, ", "))
		}
	}
	n := &nomadRun{newRun(o.Options, fromName, toName), from, to, o.Stopped}
	for _, end := range []struct {
		cl   *nomad.Client
		name string
	}{{from, "source"}, {to, "target"}} {
		if _, err := end.cl.Get(ctx, "status/leader", nil, nil); err != nil {
			return nil, fmt.Errorf("the %s: %w", end.name, err)
		}
	}
	steps := map[string]func(context.Context) error{"pools": n.pools, "namespaces": n.namespaces,
		"scheduler": n.scheduler, "policies": n.policies, "roles": n.roles, "auth-methods": n.methods,
		"binding-rules": n.rules, "tokens": n.tokens, "variables": n.variables, "jobs": n.jobs}
	for _, kind := range NomadKinds {
		if len(o.Kinds) > 0 && !slices.Contains(o.Kinds, kind) {
			continue
		}
		if err := steps[kind](ctx); err != nil {
			if ctx.Err() != nil {
				return n.report, ctx.Err()
			}
			n.note(kind, "*", migrate.Failed, "cannot be read: "+err.Error())
		}
		if o.Progress != nil {
			o.Progress(kind)
		}
	}
	if len(o.Kinds) == 0 {
		n.stays(ctx)
	}
	return n.report, nil
}

// everywhere asks for all namespaces.
var everywhere = url.Values{"namespace": {"*"}}

// pageSize is how many objects a list is asked for at once.
const pageSize = "500"

// list reads a whole list of the source, page by page.
func (n *nomadRun) list(ctx context.Context, path string, query url.Values) (all []object, err error) {
	q := url.Values{"per_page": {pageSize}}
	maps.Copy(q, query)
	for {
		var page []object
		meta, err := n.from.Get(ctx, path, q, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if meta.Next == "" || meta.Next == q.Get("next_token") {
			return all, nil
		}
		q.Set("next_token", meta.Next)
	}
}

// at reads an object, nil where there is none.
func at(ctx context.Context, cl *nomad.Client, path string, query url.Values) (object, error) {
	var o object
	_, err := cl.Get(ctx, path, query, &o)
	if nomad.IsNotFound(err) {
		return nil, nil
	}
	return o, err
}

// put brings an object that is read and written at one path of the target.
func (n *nomadRun) put(ctx context.Context, kind, name, path string, query url.Values, want object) bool {
	return n.bring(ctx, thing{kind: kind, name: name, want: want,
		read:  func(ctx context.Context) (object, error) { return at(ctx, n.to, path, query) },
		write: func(ctx context.Context) error { return n.to.Put(ctx, path, query, want, nil) }})
}

func (n *nomadRun) pools(ctx context.Context) error {
	list, err := n.list(ctx, "node/pools", nil)
	if nomad.IsNotFound(err) { // a Nomad before 1.6 has none
		return nil
	}
	for _, p := range list {
		if name := text(p, "Name"); name != "all" && name != "default" {
			n.put(ctx, "pools", name, "node/pool/"+url.PathEscape(name), nil, pick(p, "Name", "Description", "Meta",
				"SchedulerConfiguration"))
		}
	}
	return err
}

func (n *nomadRun) namespaces(ctx context.Context) error {
	list, err := n.list(ctx, "namespaces", nil)
	for _, s := range list {
		name := text(s, "Name")
		n.put(ctx, "namespaces", name, "namespace/"+url.PathEscape(name), nil, pick(s, "Name", "Description", "Meta"))
		if quota := text(s, "Quota"); quota != "" {
			n.report.Notes = append(n.report.Notes, fmt.Sprintf("the quota %s of namespace %s: quotas are not enforced here",
				quota, name))
		}
	}
	return err
}

// scheduler brings the settings. A target whose settings nobody has touched has none.
func (n *nomadRun) scheduler(ctx context.Context) error {
	const path = "operator/scheduler/configuration"
	settings := func(ctx context.Context, cl *nomad.Client) (object, error) {
		answer, err := at(ctx, cl, path, nil)
		config, _ := answer["SchedulerConfig"].(object)
		return config, err
	}
	have, err := settings(ctx, n.from)
	if err != nil {
		return err
	}
	want := pick(have, "SchedulerAlgorithm", "PreemptionConfig", "MemoryOversubscriptionEnabled", "RejectJobRegistration",
		"PauseEvalBroker")
	n.bring(ctx, thing{kind: "scheduler", name: "configuration", want: want,
		read: func(ctx context.Context) (object, error) {
			config, err := settings(ctx, n.to)
			if index, _ := config["ModifyIndex"].(float64); index == 0 {
				return nil, err
			}
			return config, err
		},
		write: func(ctx context.Context) error { return n.to.Put(ctx, path, nil, want, nil) }})
	return nil
}

// variables are read in the clear and sealed by the target.
func (n *nomadRun) variables(ctx context.Context) error {
	list, err := n.list(ctx, "vars", everywhere)
	for _, v := range list {
		namespace, path := text(v, "Namespace"), text(v, "Path")
		name, query := namespace+"/"+path, url.Values{"namespace": {namespace}}
		parts := strings.Split(path, "/")
		for i := range parts {
			parts[i] = url.PathEscape(parts[i])
		}
		there := "var/" + strings.Join(parts, "/")
		whole, err := at(ctx, n.from, there, query)
		if err != nil || whole == nil {
			n.note("variables", name, migrate.Failed, fmt.Sprint("cannot be read: ", orGone(err)))
			continue
		}
		if whole["Lock"] != nil {
			n.report.Notes = append(n.report.Notes, "the lock on variable "+name+": who holds it takes it here anew")
		}
		n.put(ctx, "variables", name, there, query, pick(whole, "Namespace", "Path", "Items"))
	}
	return err
}

var errGone = errors.New("it is gone")

func orGone(err error) error {
	if err == nil {
		return errGone
	}
	return err
}

// ofServer are the fields of a job that servers write.
var ofServer = []string{"Status", "StatusDescription", "Stable", "Version", "SubmitTime", "CreateIndex", "ModifyIndex",
	"JobModifyIndex", "Dispatched", "NomadTokenID", "ConsulToken", "VaultToken", "ParentID", "Region", "VersionTag"}

// jobs brings the newest version of each job that is to run. What a periodic or parameterized job started is not
// brought, and what has ended is not run again.
func (n *nomadRun) jobs(ctx context.Context) error {
	list, err := n.list(ctx, "jobs", everywhere)
	children := 0
	for _, stub := range list {
		id, namespace := text(stub, "ID"), text(stub, "Namespace")
		if namespace == "" { // of a Nomad that does not say so
			namespace, _ = stub["JobSummary"].(object)["Namespace"].(string)
		}
		name := namespace + "/" + id
		switch {
		case text(stub, "ParentID") != "":
			children++
		case stub["Stop"] == true:
			n.note("jobs", name, migrate.Skipped, "is stopped there")
		case ended(stub):
			n.note("jobs", name, migrate.Skipped, "has ended there: run it here if it is to run again")
		default:
			n.job(ctx, id, namespace, name)
		}
	}
	if children > 0 {
		n.report.Notes = append(n.report.Notes, fmt.Sprintf("%d jobs that periodic and parameterized jobs started", children))
	}
	return err
}

// ended tells whether a job of a list has done its work.
func ended(stub object) bool {
	kind := text(stub, "Type")
	return text(stub, "Status") == "dead" && (kind == "batch" || kind == "sysbatch") && stub["Periodic"] != true &&
		stub["ParameterizedJob"] != true
}

// job brings one. Whether the target has it, its own plan says: two versions of Nomad do not show a job alike.
func (n *nomadRun) job(ctx context.Context, id, namespace, name string) {
	path, query := "job/"+url.PathEscape(id), url.Values{"namespace": {namespace}}
	want, err := at(ctx, n.from, path, query)
	if err != nil || want == nil {
		n.note("jobs", name, migrate.Failed, fmt.Sprint("cannot be read: ", orGone(err)))
		return
	}
	body := object{"Job": want}
	if s, err := at(ctx, n.from, path+"/submission", url.Values{"namespace": {namespace},
		"version": {fmt.Sprint(want["Version"])}}); err == nil && s != nil {
		body["Submission"] = pick(s, "Source", "Format", "VariableFlags", "Variables")
	}
	for _, field := range ofServer {
		delete(want, field)
	}
	if n.stopped {
		want["Stop"] = true
	}
	if n.DryRun && !n.valid(ctx, name, query, want) {
		return
	}
	same := object{"same": true}
	done := n.bring(ctx, thing{kind: "jobs", name: name, want: same,
		read: func(ctx context.Context) (object, error) {
			if have, err := at(ctx, n.to, path, query); err != nil || have == nil {
				return nil, err
			}
			var plan struct{ Diff struct{ Type string } }
			err := n.to.Put(ctx, path+"/plan", query, object{"Job": want, "Diff": true}, &plan)
			return object{"same": plan.Diff.Type == "None"}, err
		},
		write: func(ctx context.Context) error { return n.to.Put(ctx, "jobs", query, body, nil) }})
	if done && !n.DryRun {
		n.lost(ctx, path, query, name, want)
	}
}

// valid asks the target whether it would take a job.
func (n *nomadRun) valid(ctx context.Context, name string, query url.Values, want object) bool {
	var answer struct{ ValidationErrors []string }
	err := n.to.Put(ctx, "validate/job", query, object{"Job": want}, &answer)
	switch {
	case err != nil:
		n.note("jobs", name, migrate.Failed, err.Error())
	case len(answer.ValidationErrors) > 0:
		n.note("jobs", name, migrate.Failed, strings.Join(answer.ValidationErrors, "; "))
	default:
		return true
	}
	return false
}

// lost notes what a job says and the target does not keep.
func (n *nomadRun) lost(ctx context.Context, path string, query url.Values, name string, want object) {
	have, err := at(ctx, n.to, path, query)
	if err != nil || have == nil {
		return // it is reported already, or was purged meanwhile
	}
	if fields := absent("", plain(want), plain(have)); len(fields) > 0 {
		n.report.Notes = append(n.report.Notes, fmt.Sprintf("job %s: %s", name, strings.Join(fields, ", ")))
	}
}

// absent names the fields that want has and have does not know.
func absent(at string, want, have any) (out []string) {
	switch w := want.(type) {
	case object:
		h, _ := have.(object)
		for _, name := range slices.Sorted(maps.Keys(w)) {
			if hollow(w[name]) {
				continue
			}
			if _, ok := h[name]; !ok {
				out = append(out, strings.TrimPrefix(at+"."+name, "."))
				continue
			}
			out = append(out, absent(at+"."+name, w[name], h[name])...)
		}
	case []any:
		h, _ := have.([]any)
		for i := range w {
			if i < len(h) {
				out = append(out, absent(fmt.Sprintf("%s[%d]", at, i), w[i], h[i])...)
			}
		}
	}
	return out
}

// hollow tells whether a value says nothing, however deep it is.
func hollow(v any) bool {
	switch x := v.(type) {
	case object:
		for _, inner := range x {
			if !hollow(inner) {
				return false
			}
		}
		return true
	case []any:
		return !slices.ContainsFunc(x, func(inner any) bool { return !hollow(inner) })
	}
	return empty(v)
}

// stays counts what the source has and is not brought.
func (n *nomadRun) stays(ctx context.Context) {
	for _, left := range []struct{ path, query, what string }{
		{"nodes", "", "nodes: start an agent of this server on each"},
		{"allocations", "namespace=*", "allocations, with their files and logs: jobs start them here anew"},
		{"volumes", "type=csi&namespace=*", "CSI volumes: there is no CSI here; use host volumes or the network"},
		{"plugins", "type=csi", "CSI plug-ins: there is no CSI here"},
		{"volumes", "type=host&namespace=*", "dynamic host volumes: name the folders in the agents' configuration"},
		{"quotas", "", "quotas: they are not enforced here"},
		{"sentinel/policies", "", "Sentinel policies"},
	} {
		query, err := url.ParseQuery(left.query)
		if err != nil {
			continue // they are constants
		}
		if list, err := n.list(ctx, left.path, query); err == nil && len(list) > 0 {
			n.report.Notes = append(n.report.Notes, fmt.Sprintf("%d %s", len(list), left.what))
		}
	}
	var regions []string
	if _, err := n.from.Get(ctx, "regions", nil, &regions); err == nil && len(regions) > 1 {
		n.report.Notes = append(n.report.Notes, fmt.Sprintf("%d other regions: import each from one of its servers",
			len(regions)-1))
	}
}
