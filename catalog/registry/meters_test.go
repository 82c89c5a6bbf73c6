package registry

import (
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/telemetry"
)

// TestChargeBooksEachCommand: what is booked for neighbours of one kind at once counts as if each had been booked by
// itself.
func TestChargeBooksEachCommand(t *testing.T) {
	reg := telemetry.New(telemetry.Config{})
	m := &meters{costs: reg.Stages("catalog", costKinds...)}
	kv, session := &catalog.KV{}, &catalog.SessionDestroy{}
	m.charge([]catalog.Command{kv, kv, session, kv, session}, []int{1, 2, 4, 8, 16}, 7, time.Millisecond,
		2*time.Millisecond)
	m.charge(nil, nil, 1, 0, 0) // nobody to pay
	for kind, want := range map[string]struct{ commands, bytes, fsyncs uint64 }{"kv": {3, 11, 7}, "session": {2, 20, 0}} {
		labels := []string{"plane", "catalog", "kind", kind}
		apply, notify := reg.Timing("request.stage", append(labels, "stage", "apply")...),
			reg.Timing("request.stage", append(labels, "stage", "notify")...)
		if apply.Count() != want.commands || apply.Sum() != time.Duration(want.commands)*time.Millisecond ||
			notify.Count() != want.commands || notify.Sum() != 2*apply.Sum() {
			t.Errorf("%s: %d applied in %s, %d told in %s", kind, apply.Count(), apply.Sum(), notify.Count(), notify.Sum())
		}
		if b, f := reg.Counter("request.storage_bytes", labels...).Value(),
			reg.Counter("request.fsyncs", labels...).Value(); b != want.bytes || f != want.fsyncs {
			t.Errorf("%s: %d bytes, %d fsyncs", kind, b, f)
		}
	}
	(&meters{}).charge([]catalog.Command{kv}, []int{1}, 1, 0, 0) // the doctor is off
}

func BenchmarkCharge(b *testing.B) {
	m := &meters{costs: telemetry.New(telemetry.Config{}).Stages("catalog", costKinds...)}
	var commands []catalog.Command
	var bytes []int
	for range 16 {
		commands, bytes = append(commands, &catalog.KV{}), append(bytes, 120)
	}
	for b.Loop() {
		m.charge(commands, bytes, 1, 20*time.Microsecond, 10*time.Microsecond)
	}
}
