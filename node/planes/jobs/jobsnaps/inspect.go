package jobsnaps

import (
	"encoding/json"
	"io"

	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/jobwire"
)

// Tally is how many objects of one sort there are, and their bytes as they are stored, uncompressed.
type Tally jobstore.Tally

// contents is what a snapshot of the plane has, as the API shows it. What variables hold, and the keys that sign
// identities, are not shown: they are sealed, and of use to nobody here.
type contents struct {
	Index           uint64
	Jobs            []*jobwire.Job
	JobVersions     []*jobwire.Job
	Nodes           []*jobwire.Node
	Allocs          []*jobwire.Allocation
	Evals           []*jobwire.Evaluation
	Deployments     []*jobwire.Deployment
	Namespaces      []document
	NodePools       []document
	Services        []document
	Variables       []document
	SchedulerConfig []document
}

// document is something with a name.
type document struct {
	Namespace                string `json:",omitempty"`
	Name                     string `json:",omitempty"`
	CreateIndex, ModifyIndex uint64
	Object                   json.RawMessage `json:",omitempty"`
}

// read reads the state of a snapshot archive to its end.
func read(in io.Reader) (v *jobstore.View, err error) {
	err = snapshot.Read(in, func(r io.Reader) (err error) {
		v, err = jobstore.ReadView(r)
		return err
	})
	return v, err
}

// Inspect counts what the state of a snapshot archive has, the largest sort first.
func Inspect(in io.Reader) (list []Tally, err error) {
	v, err := read(in)
	if err != nil {
		return nil, err
	}
	for _, t := range v.Tallies() {
		list = append(list, Tally(t))
	}
	return list, nil
}

// WriteContents writes what the state of a snapshot archive has to w, as JSON.
func WriteContents(w io.Writer, in io.Reader) error {
	v, err := read(in)
	if err != nil {
		return err
	}
	s := v.State
	c := contents{Index: s.Index(), Namespaces: documents(v, jobstore.Namespaces), NodePools: documents(v, jobstore.Pools),
		Services: documents(v, jobstore.Services), Variables: documents(v, jobstore.Variables),
		SchedulerConfig: documents(v, jobstore.Scheduler)}
	for j := range s.Jobs() {
		c.Jobs = append(c.Jobs, jobwire.FromJob(j))
	}
	for j := range s.VersionsAll() {
		c.JobVersions = append(c.JobVersions, jobwire.FromJob(j))
	}
	for u := range s.Uses() {
		c.Nodes = append(c.Nodes, jobwire.FromNode(u.Node, u.Class))
	}
	for a := range s.Allocations() {
		var node *jobs.Node
		if u := s.Node(a.NodeID); u != nil {
			node = u.Node
		}
		c.Allocs = append(c.Allocs, jobwire.FromAllocation(a, node, nil))
	}
	for e := range s.Evaluations() {
		c.Evals = append(c.Evals, jobwire.FromEvaluation(e))
	}
	for d := range s.Deployments() {
		c.Deployments = append(c.Deployments, jobwire.FromDeployment(d))
	}
	return json.NewEncoder(w).Encode(c)
}

func documents(v *jobstore.View, t jobstore.Table) (list []document) {
	for d := range v.Documents(t, "") {
		one := document{Namespace: d.Namespace, Name: d.Name, CreateIndex: d.CreateIndex, ModifyIndex: d.ModifyIndex}
		if t != jobstore.Variables && json.Valid([]byte(d.Body)) {
			one.Object = json.RawMessage(d.Body)
		}
		list = append(list, one)
	}
	return list
}
