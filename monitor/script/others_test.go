package script

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/kit/errkind"
)

// TestOtherEvents: what a program asks for is fetched between its runs, a bounded number of times.
func TestOtherEvents(t *testing.T) { both(t, testOtherEvents) }

func testOtherEvents(t *testing.T, engine func(*testing.T) *Engine) {
	e := engine(t)
	var fetched atomic.Int64
	fetch := func(ctx context.Context, entity, check string) ([]byte, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a program's questions together have no end")
		}
		fetched.Add(1)
		switch entity + "/" + check {
		case "db/disk":
			return []byte(`{"entity":{"metadata":{"name":"db","labels":{"tier":"1"}}},"check":{"metadata":{"name":"disk"},"status":2}}`), nil
		case "e1/ntp":
			return []byte(`{"check":{"metadata":{"name":"ntp"},"status":0}}`), nil
		case "away/x":
			return nil, errkind.New(errkind.Unavailable, "the server does not answer")
		}
		return nil, nil
	}
	do := func(source string, f func(context.Context, string, string) ([]byte, error)) (Result, error) {
		fetched.Store(0)
		return run(t, e, Task{Program: compile(t, source), Fetch: f})
	}
	for source, want := range map[string]struct {
		truth bool
		asked int64
	}{
		"sensu.FetchEvent('db', 'disk').check.status == 2":                                             {true, 1},
		"sensu.FetchEvent('db', 'disk').entity.labels.tier == '1'":                                     {true, 1},
		"sensu.FetchEvent('db', 'none') === null":                                                      {true, 1},
		"var n = 0; for (var i = 0; i < 9; i++) if (sensu.FetchEvent('db', 'disk')) n++; n == 9":       {true, 1},
		"try { sensu.FetchEvent('db', 'disk').check.status == 2 } catch (e) { false }":                 {true, 1},
		"sensu.EventStatus('ntp', {entity: 'db', check: 'disk'}, 'none').join() == '0,2'":              {true, 3},
		"sensu.EventStatus().length == 0 && sensu.CheckDependencies()":                                 {true, 0},
		"sensu.CheckDependencies('ntp')":                                                               {true, 1},
		"sensu.CheckDependencies('ntp', {entity: 'db', check: 'disk'})":                                {false, 2},
		"sensu.FetchEvent = null; sensu.FetchEvent('db', 'disk').check.status == 2":                    {true, 1},
		"sensu.FetchEvent('db', 'disk').check.status = 0; sensu.FetchEvent('db', 'disk').check.status": {true, 1},
	} {
		got, err := do(source, fetch)
		if err != nil || got.Truth != want.truth || fetched.Load() != want.asked {
			t.Errorf("%s: %+v, %v, asked %d times", source, got, err, fetched.Load())
		}
	}
	for source, want := range map[string]string{
		"sensu.FetchEvent('away', 'x')":                                                    "does not answer",
		"for (var i = 0; ; i++) sensu.FetchEvent('db', 'x' + i)":                           "may ask for",
		"for (var i = 0; i < 100; i++) try { sensu.FetchEvent('x', '' + i) } catch (e) {}": "may ask for",
	} {
		if _, err := do(source, fetch); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v does not say %q", source, err, want)
		}
		if fetched.Load() > maxAsks+2 {
			t.Errorf("%s: asked %d times", source, fetched.Load())
		}
	}
	if _, err := do("sensu.FetchEvent('db', 'disk')", nil); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("where nothing can be fetched: %v", err)
	}
	if got, err := do("typeof text === 'undefined'", fetch); err != nil || !got.Truth {
		t.Errorf("something is left: %+v, %v", got, err)
	}
}
