package uiplane

import (
	"errors"
	"testing"
	"time"
)

// TestReportsAreShared: the screens of all who may see the same ask the servers once in a while, and a failure is not
// kept.
func TestReportsAreShared(t *testing.T) {
	var r reports
	at, asked, failure := time.Unix(1000, 0), 0, errors.New("no answer")
	look := func(class string) error {
		v, err := r.of(t.Context(), class, func() time.Time { return at }, func() (*doctorView, error) {
			asked++
			return &doctorView{Asked: asked}, failure
		})
		if err == nil && v == nil {
			t.Fatal("there is neither a report nor why")
		}
		return err
	}
	for i, step := range []struct {
		class string
		after time.Duration
		fails bool
		want  int
	}{{"a", 0, true, 1}, {"a", 0, false, 2}, {"a", examined / 2, false, 2}, {"b", 0, false, 3}, {"b", 0, false, 3},
		{"a", examined / 2, false, 4}} {
		at = at.Add(step.after)
		if failure = nil; step.fails {
			failure = errors.New("no answer")
		}
		if err := look(step.class); (err != nil) != step.fails || asked != step.want {
			t.Errorf("step %d: asked %d times, want %d: %v", i, asked, step.want, err)
		}
	}
}
