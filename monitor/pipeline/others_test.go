package pipeline

import (
	"context"
	"strings"
	"testing"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
)

// TestOtherEvents: filters and mutators see other events of their namespace.
func TestOtherEvents(t *testing.T) {
	var w *world
	w = start(t, func(c *Config) {
		c.Event = func(ctx context.Context, namespace, entity, check string) (*monitor.Event, error) {
			return ingest.Local{Ingest: w.intake}.Get(ctx, namespace, entity, check)
		}
	}, allow("database-is-well", "sensu.FetchEvent('db', 'disk').check.status == 0"),
		allow("nobody", "sensu.FetchEvent('nobody', 'disk') === null"),
		writes("blames", "database-is-well"), writes("anyway", "nobody"),
		&monitor.Mutator{Meta: meta("why"), Type: monitor.MutatorJavaScript,
			Eval: "return 'the disk of db: ' + sensu.FetchEvent('db', 'disk').check.status"},
		&monitor.Handler{Meta: meta("tells"), Type: monitor.HandlerPipe, Command: `cat >> "$OUT/tells"; echo >> "$OUT/tells"`,
			Mutator: "why"})
	w.send(result("db", "disk", 2))
	w.send(result("web", "http", 2, "blames", "anyway", "tells"))
	w.settled()
	if w.of("blames").Done != 0 || w.of("anyway").Done != 1 {
		t.Errorf("blames %+v, anyway %+v", w.of("blames"), w.of("anyway"))
	}
	if lines := w.lines("tells"); len(lines) == 0 || !strings.Contains(lines[0], "the disk of db: 2") {
		t.Errorf("%q", lines)
	}
	w.send(result("db", "disk", 0))
	w.send(result("web", "http", 2, "blames"))
	w.settled()
	if w.of("blames").Done != 1 {
		t.Errorf("blames %+v", w.of("blames"))
	}
}
