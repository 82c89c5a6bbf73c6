package jobsagentplane

import (
	"testing"
	"time"

	"corbel.dev/corbel/jobs/client/nodeclient"
	"corbel.dev/corbel/telemetry"
)

// TestEvidence: tasks that restart and that are not ready are told, and taken back when they are well.
func TestEvidence(t *testing.T) {
	now := time.Unix(10_000, 0)
	tasks := []nodeclient.TaskState{{Name: "j.g.circle", Restarts: 4, LastRestart: now.Add(-time.Minute)},
		{Name: "j.g.once", Restarts: 1, LastRestart: now},
		{Name: "j.g.long-ago", Restarts: 9, LastRestart: now.Add(-time.Hour)},
		{Name: "j.g.late", Preparing: now.Add(-4 * time.Minute), Event: "Driver"},
		{Name: "j.g.soon", Preparing: now.Add(-2 * time.Minute), Event: "Task Setup"}}
	m := telemetry.New(telemetry.Config{})
	r := &reporter{tasks: func() []nodeclient.TaskState { return tasks }, now: func() time.Time { return now }, metrics: m,
		named: map[string]bool{}, slow: map[[2]string]bool{}}
	r.tell()
	circle := m.Gauge("task.circles", "task", "j.g.circle")
	late := m.Gauge("task.preparing_ms", "task", "j.g.late", "event", "Driver")
	if len(r.named) != 1 || len(r.slow) != 1 || circle.Value() != 4 || late.Value() != 240_000 {
		t.Errorf("%v %v: %v, %v ms", r.named, r.slow, circle.Value(), late.Value())
	}
	tasks = nil
	if r.tell(); circle.Value() != 0 || late.Value() != 0 {
		t.Errorf("when all is well: %v, %v ms", circle.Value(), late.Value())
	}
}
