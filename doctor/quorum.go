package doctor

import (
	"fmt"
	"time"
)

// noSpareVoter finds a Raft group that stops with the next loss. Its leader alone knows.
func noSpareVoter(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("autopilot.failure_tolerance") {
		group := s.Label("group")
		voters, _ := v.value("autopilot.voters", "group", group)
		leads, _ := v.value("group.leader", "group", group)
		if s.Now.Value > 0 || voters < 2 || leads < 1 {
			continue
		}
		failed, _ := v.value("autopilot.failed_voters", "group", group)
		f := Finding{Severity: Warning,
			cause: cause{layer: layerMachine},
			Plane: group, Stage: "replicate", Culprit: "quorum of " + group,
			subject: "tolerance " + group, Since: s.Since,
			Title:    fmt.Sprintf("%s: failure tolerance 0: one more failure stops writes of %s", v.Member, group),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%.0f of %.0f voters are not healthy", failed, voters)}},
			Do: []string{"Bring the failed server back, or start a replacement: it gets its vote once it has been " +
				"healthy for a while.",
				"corbel operator autopilot state shows every server; if one will never come back: corbel operator raft " +
					"remove-peer."}}
		for _, fact := range v.Facts {
			if fact.Name == "autopilot.removed" && fact.Fields["group"] == group {
				f.Evidence = append(f.Evidence, Line{Key: fact.Name, Text: fmt.Sprintf("autopilot removed %s at %s",
					fact.Fields["server"], fact.At.UTC().Format(time.RFC3339))})
			}
		}
		out = append(out, f)
	}
	return out
}
