package raftgroup

import (
	"errors"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// TestAnswersTravel: an answer, or a refusal that callers know again, comes back with the index; damage is told.
func TestAnswersTravel(t *testing.T) {
	known := errkind.New(errkind.Conflict, "changed meanwhile")
	a := &Answers[string]{Append: pack.String, Read: (*pack.Reader).String, Refusals: []error{known},
		Index: func() uint64 { return 7 }}
	for _, test := range []struct {
		answer  string
		refused error
	}{{"made", nil}, {"", known}, {"", errkind.New(errkind.Invalid, "name: is missing")}} {
		wire := a.encode(test.answer, test.refused)
		index, answer, refused, err := a.decode(wire)
		if err != nil || index != 7 || answer != test.answer || errkind.Of(refused) != errkind.Of(test.refused) ||
			errors.Is(refused, known) != (test.refused == known) {
			t.Errorf("%+v came as %d, %q, %v; %v", test, index, answer, refused, err)
		}
		if _, _, _, err := a.decode(wire[:len(wire)-1]); err == nil {
			t.Errorf("%+v was read without its last byte", test)
		}
	}
}
