package jobsplane

import (
	"context"
	"encoding/json"
	"iter"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/plane"
)

// sealer is the secrets plane of this process: what it seals opens on each server of its cluster, and nowhere else.
type sealer interface {
	SealText(name string, plain []byte) ([]byte, error)
	OpenText(ctx context.Context, name string, text []byte) ([]byte, error)
}

// seals is the sealer of a process with what to do where there is none, or it has no keys.
type seals struct{ by sealer }

func newSeals(d *plane.Doors) seals { return seals{plane.Find[sealer](d.Planes)} }

// told adds the next step to an error.
func (s seals) told(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errkind.Is(err, errkind.Unavailable):
		return errkind.Errorf(errkind.Unavailable, "%s: the secrets plane of this server is sealed: unseal it, with "+
			"`corbel secrets operator unseal`, and try again", what)
	case errkind.Is(err, errkind.Corrupt):
		return errkind.Errorf(errkind.Corrupt, "%s: it was sealed by another secrets plane than this server has, or is "+
			"damaged: write it anew", what)
	}
	return errkind.E(errkind.Of(err), what, err)
}

func (s seals) none(what string) error {
	return errkind.Errorf(errkind.Unavailable, "%s: this server has no secrets plane that seals it: add a `secrets` "+
		"block to the configuration of all servers", what)
}

func (s seals) seal(what, name string, plain []byte) ([]byte, error) {
	if s.by == nil {
		return nil, s.none(what)
	}
	text, err := s.by.SealText(name, plain)
	return text, s.told(what, err)
}

func (s seals) open(ctx context.Context, what, name string, text []byte) ([]byte, error) {
	if s.by == nil {
		return nil, s.none(what)
	}
	plain, err := s.by.OpenText(ctx, name, text)
	return plain, s.told(what, err)
}

// variableBody is the document of a variable. What it holds is JSON of its items, sealed for its place.
type variableBody struct {
	CreateTime, ModifyTime int64
	Sealed                 []byte
}

func variablePlace(namespace, path string) string { return "jobs/variable/" + namespace + "/" + path }

func metaOf(d *jobstore.Document, body *variableBody) nomadrows.VariableMeta {
	return nomadrows.VariableMeta{Namespace: d.Namespace, Path: d.Name, CreateIndex: d.CreateIndex,
		ModifyIndex: d.ModifyIndex, CreateTime: body.CreateTime, ModifyTime: body.ModifyTime}
}

// Variables implements nomadrows.Names.
func (v view) Variables(namespace string) iter.Seq[*nomadrows.VariableMeta] {
	return func(yield func(*nomadrows.VariableMeta) bool) {
		for d := range v.v.Documents(jobstore.Variables, namespace) {
			var body variableBody
			decode(d.Body, &body)
			if m := metaOf(d, &body); !yield(&m) {
				return
			}
		}
	}
}

// Variable implements nomadrows.Names.
func (v view) Variable(namespace, path string) *nomadrows.VariableMeta {
	d := v.v.Document(jobstore.Variables, namespace, path)
	if d == nil {
		return nil
	}
	var body variableBody
	decode(d.Body, &body)
	m := metaOf(d, &body)
	return &m
}

// variables implements nomadrows.VariableKeeper. Items are in the clear in memory alone, while a request lasts.
type variables struct {
	w     writers
	seals seals
}

func newVariables(p *Plane, s seals) variables {
	k := variables{writers{p}, s}
	p.d.Handle(wire.Members, noderpc.MethodVariable, k.serve)
	return k
}

// Open implements nomadrows.VariableKeeper.
func (k variables) Open(ctx context.Context, of nomadrows.View, namespace, path string) (*nomadrows.Variable, error) {
	d := of.(view).v.Document(jobstore.Variables, namespace, path)
	if d == nil {
		return nil, nil
	}
	var body variableBody
	if err := json.Unmarshal([]byte(d.Body), &body); err != nil {
		return nil, errkind.E(errkind.Corrupt, "variable "+path, err)
	}
	plain, err := k.seals.open(ctx, "variable "+path, variablePlace(namespace, path), body.Sealed)
	if err != nil {
		return nil, err
	}
	out := &nomadrows.Variable{VariableMeta: metaOf(d, &body)}
	if err := json.Unmarshal(plain, &out.Items); err != nil {
		return nil, errkind.New(errkind.Corrupt, "variable "+path+": what was sealed cannot be read") // never quoted
	}
	return out, nil
}

// PutVariable implements nomadrows.VariableKeeper. one becomes what is stored.
func (k variables) PutVariable(ctx context.Context, one *nomadrows.Variable, index *uint64) (nomadrows.Written, error) {
	v := k.w.p.store.View()
	if !v.KnowsNamespace(one.Namespace) {
		return nomadrows.Written{}, errkind.Errorf(errkind.Invalid, "variable %q is in nonexistent namespace %q", one.Path,
			one.Namespace)
	}
	now := int64(k.w.p.now())
	body := variableBody{CreateTime: now, ModifyTime: now}
	if old := v.Document(jobstore.Variables, one.Namespace, one.Path); old != nil {
		var was variableBody
		decode(old.Body, &was)
		body.CreateTime = was.CreateTime
	}
	plain, err := json.Marshal(one.Items)
	if err != nil {
		return nomadrows.Written{}, errkind.E(errkind.Invalid, "variable "+one.Path, err)
	}
	body.Sealed, err = k.seals.seal("variable "+one.Path, variablePlace(one.Namespace, one.Path), plain)
	if err != nil {
		return nomadrows.Written{}, err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nomadrows.Written{}, errkind.E(errkind.Internal, "variable "+one.Path, err)
	}
	out, err := k.w.do(ctx, "", &jobstore.Command{Names: jobstore.NameWrites{Docs: []jobstore.DocWrite{{Check: index,
		Document: jobstore.Document{Table: jobstore.Variables, Namespace: one.Namespace, Name: one.Path,
			Body: string(text)}}}}})
	if err != nil {
		return out, err
	}
	one.CreateTime, one.ModifyTime, one.CreateIndex, one.ModifyIndex = body.CreateTime, now, out.Index, out.Index
	if d := k.w.p.store.View().Document(jobstore.Variables, one.Namespace, one.Path); d != nil {
		one.CreateIndex = min(d.CreateIndex, out.Index)
	}
	return out, nil
}

// DeleteVariable implements nomadrows.VariableKeeper. Nothing has to be opened for it.
func (k variables) DeleteVariable(ctx context.Context, namespace, path string, index *uint64) (nomadrows.Written,
	error) {
	return k.w.do(ctx, "", &jobstore.Command{Names: jobstore.NameWrites{Docs: []jobstore.DocWrite{{Check: index,
		Delete: true, Document: jobstore.Document{Table: jobstore.Variables, Namespace: namespace, Name: path}}}}})
}

// serve answers noderpc.MethodVariable: a task reads what its job, group and task have below nomad/jobs, in its
// namespace.
func (k variables) serve(ctx context.Context, req []byte) ([]byte, error) {
	m, err := noderpc.Read[noderpc.VariableAsk](req)
	if err != nil {
		return nil, err
	}
	v, err := k.w.p.nodes.known(m.Key)
	if err != nil {
		return nil, err
	}
	a := v.State.Allocation(m.Alloc)
	if a == nil || a.NodeID != m.Node || a.Terminal() {
		return nil, errkind.New(errkind.NotFound, "the node has no such allocation that runs")
	}
	if !workloadReads(a.Job, a.Group, m.Task, m.Path) {
		return nil, errkind.Errorf(errkind.Denied, "the task may not read the variable %s: it may read nomad/jobs, "+
			"nomad/jobs/%s, and its group and task below that", m.Path, ownerJob(a.Job))
	}
	one, err := k.Open(ctx, view{v}, a.Job.Namespace, m.Path)
	if err != nil || one == nil {
		return noderpc.Bytes(&noderpc.Variable{Index: v.Index(jobstore.Variables)}), err
	}
	return noderpc.Bytes(&noderpc.Variable{Index: one.ModifyIndex, Items: one.Items}), nil
}

// ownerJob is the job whose rights an allocation has: the one that somebody wrote.
func ownerJob(j *jobs.Job) string {
	if j.Origin.ParentID != "" {
		return j.Origin.ParentID
	}
	return j.ID
}

// workloadReads reports whether a task may read a variable.
func workloadReads(j *jobs.Job, group, task, path string) bool {
	known := false
	for _, g := range j.Groups {
		for _, t := range g.Tasks {
			known = known || g.Name == group && t.Name == task
		}
	}
	own := "nomad/jobs/" + ownerJob(j)
	switch path {
	case "nomad/jobs", own, own + "/" + group, own + "/" + group + "/" + task:
		return known
	}
	return false
}
