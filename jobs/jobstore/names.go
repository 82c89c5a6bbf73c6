package jobstore

import (
	"encoding/json"
	"strings"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/state"
	"corbel.dev/corbel/kit/errkind"
)

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("jobstore: " + err.Error()) // a string is always JSON
	}
	return string(text)
}

// checkDoc judges whether a document may be changed.
func (b *builder) checkDoc(w *DocWrite) error {
	if w.Table >= tableCount {
		return errkind.New(errkind.Invalid, "unknown table")
	}
	old, ok := b.docs.Get(&w.Document)
	if w.Check != nil {
		index := uint64(0)
		if ok {
			index = old.ModifyIndex
		}
		if index != *w.Check {
			return errkind.Errorf(errkind.Conflict, "cas error: index %d is not that of the stored one, %d", *w.Check, index)
		}
	}
	if !w.Delete {
		return nil
	}
	switch w.Table {
	case Namespaces:
		if w.Name == "default" {
			return errkind.New(errkind.Conflict, "can not delete default namespace")
		}
		for j := range b.Jobs() {
			if j.Namespace == w.Name && !j.Stop {
				return errkind.Errorf(errkind.Conflict,
					"namespace %q has non-terminal jobs in regions: [global]", w.Name)
			}
		}
		if list := b.variablesOf(w.Name); len(list) > 0 {
			return errkind.Errorf(errkind.Conflict, "namespace %q has variables, such as %s: purge them first", w.Name,
				strings.Join(list, ", "))
		}
	case Pools:
		if w.Name == "default" || w.Name == "all" {
			return errkind.Errorf(errkind.Conflict, "node pool %q is built-in and can't be deleted", w.Name)
		}
		for j := range b.Jobs() {
			if j.NodePool == w.Name && !j.Stop {
				return errkind.Errorf(errkind.Conflict, "node pool %q has non-terminal jobs in regions: [global]", w.Name)
			}
		}
	}
	return nil
}

// variablesOf are the first variables of a namespace, three at most.
func (b *builder) variablesOf(namespace string) (list []string) {
	for d := range b.docs.Seek((&Document{Table: Variables, Namespace: namespace}).orAfter) {
		if d.Table != Variables || d.Namespace != namespace || len(list) == 3 {
			break
		}
		list = append(list, d.Name)
	}
	return list
}

func (b *builder) document(w *DocWrite) {
	if w.Delete {
		b.dropDoc(w.Table, w.Namespace, w.Name)
		return
	}
	b.putDoc(w.Document)
}

func (b *builder) putDoc(d Document) {
	old, ok := b.docs.Get(&d)
	d.CreateIndex, d.ModifyIndex = b.Index(), b.Index()
	if ok {
		if old.Body == d.Body {
			return
		}
		d.CreateIndex = old.CreateIndex
	}
	b.docs.Set(&d)
	b.mark(d.Table)
	b.did.Docs = append(b.did.Docs, DocChange{old, &d})
}

func (b *builder) dropDoc(t Table, namespace, name string) {
	if old, ok := b.docs.Delete(&Document{Table: t, Namespace: namespace, Name: name}); ok {
		b.mark(t)
		b.did.Docs = append(b.did.Docs, DocChange{old, nil})
	}
}

// checkRollout judges whether a deployment may be steered.
func (b *builder) checkRollout(w *RolloutWrite) error {
	d := b.Deployment(w.ID)
	if d == nil {
		return errkind.New(errkind.NotFound, "deployment not found")
	}
	if d.Active() {
		return nil
	}
	switch {
	case w.Promote:
		return errkind.New(errkind.Conflict, "can't promote terminal deployment")
	case len(w.Healthy)+len(w.Unhealthy) > 0:
		return errkind.New(errkind.Conflict, "can't set health of allocations for a terminal deployment")
	case w.Status == jobs.DeployFailed:
		return errkind.New(errkind.Conflict, "can't fail terminal deployment")
	case w.Status != "":
		return errkind.New(errkind.Conflict, "can't pause terminal deployment")
	}
	return nil
}

// withdraw removes the services of allocations that are over and whose node cannot say so any more.
func (b *builder) withdraw(changes []state.Change) {
	if b.marks[Services] == 0 {
		return // there never was one
	}
	for _, c := range changes {
		before, _ := c.Before.(*jobs.Allocation)
		after, _ := c.After.(*jobs.Allocation)
		if before == nil || !before.Counts() || after != nil && after.Counts() {
			continue
		}
		prefix := "_nomad-task-" + before.ID.String() + "-"
		from := &Document{Table: Services, Namespace: before.Job.Namespace, Name: prefix}
		var gone []string
		for d := range b.docs.Seek(from.orAfter) {
			if d.Table != Services || d.Namespace != from.Namespace || !strings.HasPrefix(d.Name, prefix) {
				break
			}
			gone = append(gone, d.Name)
		}
		for _, name := range gone {
			b.dropDoc(Services, from.Namespace, name)
		}
	}
}
