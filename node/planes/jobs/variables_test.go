package jobsplane

import (
	"context"
	"strings"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/errkind"
)

// TestWorkloadReads: a task reads what its job, group and task have, and a child of a job what its parent has.
func TestWorkloadReads(t *testing.T) {
	job := &jobs.Job{JobKey: jobs.JobKey{ID: "web"}, Groups: []*jobs.TaskGroup{
		{Name: "g", Tasks: []*jobs.Task{{Name: "t"}, {Name: "other"}}}, {Name: "h", Tasks: []*jobs.Task{{Name: "t"}}}}}
	child := &jobs.Job{JobKey: jobs.JobKey{ID: "web/dispatch-1"}, Groups: job.Groups}
	child.Origin.ParentID = "web"
	for path, want := range map[string]bool{"nomad/jobs": true, "nomad/jobs/web": true, "nomad/jobs/web/g": true,
		"nomad/jobs/web/g/t": true, "nomad/jobs/web/g/other": false, "nomad/jobs/web/h": false, "nomad/jobs/we": false,
		"nomad/jobs/web/dispatch-1": false, "nomad": false, "app": false, "": false, "nomad/jobs/web/g/t/x": false} {
		for _, j := range []*jobs.Job{job, child} {
			if got := workloadReads(j, "g", "t", path); got != want {
				t.Errorf("%s reads %q: %v", j.ID, path, got)
			}
		}
	}
	if workloadReads(job, "g", "none", "nomad/jobs") {
		t.Error("a task that is not there reads")
	}
}

// refuser is a secrets plane that answers with an error.
type refuser struct{ err error }

func (r refuser) SealText(string, []byte) ([]byte, error) { return nil, r.err }

func (r refuser) OpenText(context.Context, string, []byte) ([]byte, error) { return nil, r.err }

// TestSealsSayWhatToDo: without a secrets plane, with a sealed one, and with another one than before.
func TestSealsSayWhatToDo(t *testing.T) {
	for says, s := range map[string]seals{
		"add a `secrets` block": {},
		"unseal it":             {refuser{errkind.New(errkind.Unavailable, "Vault is sealed")}},
		"write it anew":         {refuser{errkind.New(errkind.Corrupt, "barrier: no key of term 3")}},
	} {
		_, sealing := s.seal("variable a", "place", nil)
		_, opening := s.open(t.Context(), "variable a", "place", nil)
		for _, err := range []error{sealing, opening} {
			if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "variable a") {
				t.Errorf("%v, want %q", err, says)
			}
		}
	}
}
