package freezeruns

import (
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/doctor"
)

// TestDoctorOfTheIll: whatever state the members are in, the doctor answers and names who did not. The aim is 5 s on
// a quiet machine, which its own deadlines (2 s for a member, 4 s for the one that is asked) keep; this one may be
// busy.
func TestDoctorOfTheIll(t *testing.T) {
	answers, err := RunDoctor(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		t.Logf("%s: an answer after %s, %d findings, %d silent", a.Ill, a.Took.Round(time.Millisecond),
			len(a.Report.Findings), len(a.Report.Silent))
		if a.Took > 15*time.Second {
			t.Errorf("%s: the doctor took %s", a.Ill, a.Took)
		}
		if hangs := a.Ill == "the leader hangs" || a.Ill == "who is asked hangs"; hangs != (len(a.Report.Silent) > 0) {
			t.Errorf("%s: silent are %v", a.Ill, a.Report.Silent)
		}
		// A server that is well and does not answer in time, as on a machine without any CPU to spare, is named too.
		named := slices.DeleteFunc(slices.Clone(a.Servers), func(server string) bool {
			return !slices.ContainsFunc(a.Report.Silent, func(s doctor.Silent) bool { return s.Member == server })
		})
		if heard := a.Report.Asked; heard < 1 || heard+len(named) < len(a.Servers) {
			t.Errorf("%s: %d were heard, and silent are %v: of %v one is in neither", a.Ill, heard, a.Report.Silent, a.Servers)
		}
	}
	if len(answers) != 5 {
		t.Errorf("%d answers, want 5", len(answers))
	}
}
