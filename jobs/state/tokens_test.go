package state

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"corbel.dev/corbel/jobs"
)

// TestDispatched: whatever came and went, a token finds the first child that has it, as a look at all jobs would.
func TestDispatched(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := Empty()
		for range 60 {
			e := s.Edit(s.Index() + 1)
			for range 1 + r.IntN(3) {
				parent := []string{"a", "a/b", "b"}[r.IntN(3)]
				key := jobs.JobKey{Namespace: []string{"default", "other"}[r.IntN(2)],
					ID: fmt.Sprintf("%s/dispatch-%d", parent, r.IntN(6))}
				switch r.IntN(6) {
				case 0:
					e.DeleteJob(key)
				case 1:
					e.SetStable(key, 0, r.IntN(2) == 0)
				default:
					j := &jobs.Job{JobKey: key, Origin: jobs.Origin{ParentID: parent, Dispatched: r.IntN(5) > 0,
						Token: []string{"", "t", "u", "v"}[r.IntN(4)]}}
					e.PutJob(j)
				}
			}
			s = e.Done()
			for _, namespace := range []string{"default", "other"} {
				for _, parent := range []string{"a", "a/b", "b", "none"} {
					for _, token := range []string{"", "t", "u", "v", "w"} {
						key := jobs.JobKey{Namespace: namespace, ID: parent}
						if got, want := s.Dispatched(key, token), scanned(s, key, token); got != want {
							t.Fatalf("seed %d: token %q of %v finds %v, not %v", seed, token, key, got, want)
						}
					}
				}
			}
		}
	}
}

// scanned looks at all jobs.
func scanned(s *State, parent jobs.JobKey, token string) *jobs.Job {
	if token == "" {
		return nil
	}
	for j := range s.Jobs() {
		if j.Namespace == parent.Namespace && strings.HasPrefix(j.ID, parent.ID+"/") && j.Origin.ParentID == parent.ID &&
			j.Origin.Dispatched && j.Origin.Token == token {
			return j
		}
	}
	return nil
}
