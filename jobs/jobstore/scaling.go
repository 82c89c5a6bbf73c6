package jobstore

import (
	"encoding/json"

	"corbel.dev/corbel/jobs"
)

// ScalingWrite notes that somebody or an autoscaler scaled a group, or says why it did not.
type ScalingWrite struct {
	jobs.JobKey
	Group string
	Event ScalingEvent
}

// ScalingEvent is what is noted of a group.
type ScalingEvent struct {
	Count    *int64 // that it was to have; nil changed nothing
	Previous int64  // count
	Error    bool
	Message  string
	Meta     string // JSON, or ""
	EvalID   jobs.ID
	Time     jobs.Time
	Index    uint64 // of the command
}

// scalingsKept is how many events of a group are kept, the newest.
const scalingsKept = 20

// Scalings are the events of a job by its groups, the newest first.
func (v *View) Scalings(key jobs.JobKey) map[string][]ScalingEvent {
	return scalingsOf(v.Document(Scalings, key.Namespace, key.ID))
}

func scalingsOf(d *Document) (all map[string][]ScalingEvent) {
	if d != nil {
		_ = json.Unmarshal([]byte(d.Body), &all) // a newer release's is not shown
	}
	return all
}

// NewestScaling is the newest event of a document of the table Scalings, which has one at least, and its group.
func (d *Document) NewestScaling() (group string, newest *ScalingEvent) {
	newest = &ScalingEvent{}
	for name, list := range scalingsOf(d) {
		if len(list) > 0 && list[0].Index > newest.Index {
			group, newest = name, &list[0]
		}
	}
	return group, newest
}

func (b *builder) scaled(w *ScalingWrite) {
	j := b.Job(w.JobKey)
	if j == nil || j.Group(w.Group) == nil {
		return // it was registered anew without the group meanwhile
	}
	old, _ := b.docs.Get(&Document{Table: Scalings, Namespace: w.Namespace, Name: w.ID})
	all := scalingsOf(old)
	if all == nil {
		all = map[string][]ScalingEvent{}
	}
	for name := range all {
		if j.Group(name) == nil {
			delete(all, name)
		}
	}
	e := w.Event
	e.Time, e.Index = b.now, b.Index()
	list := append([]ScalingEvent{e}, all[w.Group]...)
	all[w.Group] = list[:min(len(list), scalingsKept)]
	text, err := json.Marshal(all)
	if err != nil {
		panic("jobstore: " + err.Error()) // it has nothing that JSON cannot say
	}
	b.putDoc(Document{Table: Scalings, Namespace: w.Namespace, Name: w.ID, Body: string(text)})
}

// forget drops what is kept beside a job that goes.
func (b *builder) forget(j *jobs.Job) {
	for version := j.Version; ; version-- {
		b.dropDoc(Submissions, j.Namespace, submissionName(j.ID, version))
		if version == 0 || j.Version-version > versionsKept {
			break
		}
	}
	b.dropDoc(Launches, j.Namespace, j.ID)
	b.dropDoc(Scalings, j.Namespace, j.ID)
	b.DeleteJob(j.JobKey)
}
