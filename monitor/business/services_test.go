package business

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/ingest/ingesttest"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/resources/resourcestest"
	"corbel.dev/corbel/monitor/script"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// rig is a Services over real events, and a clock that only moves when it is told to.
type rig struct {
	*Services
	t         *testing.T
	resources *resources.Resources
	events    ingest.Local
	clock     *clock.Fake
	leads     atomic.Bool
	log       *bytes.Buffer
}

// testFields are a few of the API's.
var testFields = Fields{
	"event.check.name":   func(o monitor.Object) string { return o.(*monitor.Event).Check.Name },
	"event.entity.name":  func(o monitor.Object) string { return o.(*monitor.Event).Entity.Name },
	"event.check.status": func(o monitor.Object) string { return fmt.Sprint(o.(*monitor.Event).Check.Status) },
	"event.check.subscriptions": func(o monitor.Object) string {
		return strings.Join(o.(*monitor.Event).Check.Subscriptions, ",")
	},
}

func testLabels(o monitor.Object) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := o.(*monitor.Event).Check.Labels[name]; return v, ok }
}

func newRig(t *testing.T) *rig {
	t.Helper()
	x := &rig{t: t, clock: clock.NewFake(time.Unix(1_800_000_000, 0)), log: new(bytes.Buffer)}
	x.resources, _ = resourcestest.New()
	resourcestest.Put(t, x.resources, "namespaces", &monitor.Namespace{Name: "default"})
	log := slog.New(slog.DiscardHandler)
	in, err := ingest.New(ingesttest.Config(log, &ingesttest.Double{T: t, Resources: x.resources}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	x.events = ingest.Local{Ingest: in}
	x.leads.Store(true)
	engine := script.New(script.Config{})
	x.Services = New(Config{Resources: x.resources, Events: x.events, Scripts: engine, Fields: testFields,
		Labels: testLabels, Leads: x.leads.Load, Clock: x.clock, Log: slog.New(slog.NewTextHandler(x.log, nil))})
	t.Cleanup(func() {
		engine.Close()
		cancel()
		if err := <-done; err != nil && !errkind.Is(err, errkind.Unavailable) {
			t.Error(err)
		}
	})
	return x
}

// result stores an event.
func (x *rig) result(entity, check string, status uint32, labels map[string]string) {
	x.t.Helper()
	now := x.clock.Now().Unix()
	e := &monitor.Event{Timestamp: now, Meta: monitor.Meta{Namespace: "default"},
		Entity: &monitor.Entity{Meta: monitor.Meta{Name: entity, Namespace: "default"}, Class: monitor.ClassProxy},
		Check: &monitor.Check{Meta: monitor.Meta{Name: check, Namespace: "default", Labels: labels}, Status: status,
			Interval: 60, Executed: now, Issued: now, Subscriptions: []string{"web"}}}
	if err := x.events.Frame(x.t.Context(), "default", tagproto.Append(nil, e)); err != nil {
		x.t.Fatal(err)
	}
}

func (x *rig) put(typ, kind, name, spec string) {
	x.t.Helper()
	p := &monitor.Provider{Meta: monitor.Meta{Name: name, Namespace: "default", CreatedBy: "ann"}, Kind: kind,
		Spec: json.RawMessage(spec)}
	if _, err := x.Review(x.t.Context(), typ, p); err != nil {
		x.t.Fatal(err)
	}
	resourcestest.Put(x.t, x.resources, typ, p)
}

// tick evaluates what is due after a time.
func (x *rig) tick(d time.Duration) {
	x.t.Helper()
	x.look()
	x.clock.Advance(d)
	x.look()
	x.round(x.t.Context(), x.due())
}

func (x *rig) event(entity, check string) *monitor.Event {
	x.t.Helper()
	e, err := x.events.Get(x.t.Context(), "default", entity, check)
	if errkind.Is(err, errkind.NotFound) {
		return nil
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return e
}

func (x *rig) want(entity, check string, status uint32, output string) *monitor.Event {
	x.t.Helper()
	e := x.event(entity, check)
	if e == nil {
		x.t.Fatalf("there is no event %s/%s; the log: %s", entity, check, x.log)
	}
	if e.Check.Status != status || !strings.Contains(e.Check.Output, output) {
		x.t.Errorf("%s/%s: %d %q, not %d %q", entity, check, e.Check.Status, e.Check.Output, status, output)
	}
	return e
}

const webs = `{"services":["shop"],"interval":60,"query":[{"type":"fieldSelector","value":"web in event.check.subscriptions"}],` +
	`"rules":[{"template":"aggregate","name":"webs","arguments":%s}],"handlers":["page"]}`

func TestAggregate(t *testing.T) {
	x := newRig(t)
	x.put(Components, "ServiceComponent", "webs", fmt.Sprintf(webs, `{"critical_threshold":50,"warning_threshold":75,`+
		`"critical_count":3,"produce_metrics":true,"set_metric_annotations":true,"metric_handlers":["tsdb"]}`))
	x.tick(time.Minute)
	x.want("shop", "webs", 1, "no events")
	for i := range 4 {
		x.result(fmt.Sprint("web-", i), "http", 0, nil)
	}
	x.tick(time.Minute)
	e := x.want("shop", "webs", 0, "100% of 4 events pass")
	if e.Entity.Class != "service" || e.Check.Interval != 60 || len(e.Check.Handlers) != 1 ||
		e.Check.Handlers[0] != "page" || e.Check.Scheduler != "corbel" || e.Timestamp != x.clock.Now().Unix() {
		t.Errorf("%+v of %+v", e.Check, e.Entity)
	}
	if e.Annotations["io.sensu.bsm.selected_event_count"] != "4" ||
		e.Annotations["io.sensu.bsm.selected_event_percent_ok"] != "100" {
		t.Errorf("annotations %v", e.Annotations)
	}
	if item := x.resources.View().Get("entities", "default", "shop"); item == nil ||
		item.Object().(*monitor.EntityConfig).CreatedBy != "ann" {
		t.Errorf("the service's entity: %+v", item)
	}
	x.result("web-0", "http", 2, nil)
	x.tick(time.Minute)
	x.want("shop", "webs", 1, "75% of 4 events pass, the limit is 75%")
	x.result("web-1", "http", 1, nil)
	x.tick(time.Minute)
	e = x.want("shop", "webs", 2, "CRITICAL: 50%")
	if e.Check.Occurrences != 1 || len(e.Check.History) != 4 {
		t.Errorf("occurrences %d, history %v", e.Check.Occurrences, e.Check.History)
	}
	if s := x.Stats(); s.Evaluated != 4 || s.Failed != 0 || s.Skipped != 0 {
		t.Errorf("%+v", s)
	}
}

func TestCounts(t *testing.T) {
	x := newRig(t)
	x.put(Components, "ServiceComponent", "webs", fmt.Sprintf(webs, `{"critical_count":2,"warning_count":1}`))
	x.result("web-0", "http", 1, nil)
	x.result("web-1", "http", 127, nil)
	x.tick(time.Minute)
	x.want("shop", "webs", 1, "1 events are warning, the limit is 1")
	x.result("web-2", "http", 2, nil)
	x.result("web-3", "http", 2, nil)
	x.tick(time.Minute)
	x.want("shop", "webs", 2, "2 events are critical, the limit is 2")
}

const worst = `{"description":"the worst","arguments":{"required":["level"],"properties":{"level":{"type":"number"},` +
	`"word":{"type":"string","default":"bad","enum":["bad","sad"]}}},"eval":"event.check.status = 0;` +
	`events.forEach(function(e) { if (e.check.status > args.level) { event.check.status = e.check.status;` +
	` event.check.output = args.word + ' ' + e.entity.name + ' ' + e.check.labels.tier + ' ' + ` +
	`sensu.PercentageBySeverity('non-zero') + '%%'; } }); event.check.handlers = ['own']; event.check.name = 'x';` +
	` event.entity.name = 'other'; event.annotations.n = events.length; %s"}`

func TestTemplates(t *testing.T) {
	x := newRig(t)
	x.put(Templates, "RuleTemplate", "worst", fmt.Sprintf(worst, "return event;"))
	x.put(Templates, "RuleTemplate", "silent", fmt.Sprintf(worst, ""))
	x.put(Templates, "RuleTemplate", "endless", `{"eval":"while (true) {}"}`)
	x.put(Templates, "RuleTemplate", "wrong", `{"eval":"return nothing.here;"}`)
	x.put(Templates, "RuleTemplate", "text", `{"eval":"return {check: 7};"}`)
	x.put(Components, "ServiceComponent", "c", `{"services":["shop","bank"],"interval":10,"query":[`+
		`{"type":"labelSelector","value":"tier == db"},{"type":"fieldSelector","value":"event.check.name != other"}],`+
		`"rules":[{"template":"worst","name":"worst","arguments":{"level":1}},`+
		`{"template":"silent","name":"silent","arguments":{"level":1}},{"template":"endless","name":"endless"},`+
		`{"template":"wrong","name":"wrong"},{"template":"text","name":"text"},{"template":"gone","name":"gone"}]}`)
	x.result("db-1", "disk", 2, map[string]string{"tier": "db"})
	x.result("db-1", "other", 3, map[string]string{"tier": "db"})
	x.result("web-1", "disk", 3, map[string]string{"tier": "web"})
	x.tick(10 * time.Second)
	for _, service := range []string{"shop", "bank"} {
		e := x.want(service, "worst", 2, "bad db-1 db 100%")
		if len(e.Check.Handlers) != 1 || e.Check.Handlers[0] != "own" || e.Annotations["n"] != "1" {
			t.Errorf("%+v, %v", e.Check, e.Annotations)
		}
		x.want(service, "endless", 3, "ran too long")
		x.want(service, "wrong", 3, "template wrong: ")
		x.want(service, "text", 3, "is no event")
		x.want(service, "gone", 3, `rule template "gone" does not exist`)
		if e := x.event(service, "silent"); e != nil {
			t.Errorf("a program that returns nothing made %+v", e)
		}
	}
	if s := x.Stats(); s.Failed != 8 || s.Evaluated != 12 {
		t.Errorf("%+v", s)
	}
}

// TestOwnEvents: what a component makes is not what it looks at.
func TestOwnEvents(t *testing.T) {
	x := newRig(t)
	x.put(Components, "ServiceComponent", "all", `{"services":["shop"],"interval":10,"query":[{"type":"fieldSelector",`+
		`"value":"event.entity.name != nobody"}],"rules":[{"template":"aggregate","name":"all"}]}`)
	x.result("web-1", "http", 0, nil)
	for range 3 {
		x.tick(10 * time.Second)
		x.want("shop", "all", 0, "of 1 events")
	}
}

func TestManyEvents(t *testing.T) {
	x := newRig(t)
	x.put(Templates, "RuleTemplate", "worst", fmt.Sprintf(worst, "return event;"))
	x.put(Components, "ServiceComponent", "c", `{"services":["shop"],"interval":10,"query":[{"type":"fieldSelector",`+
		`"value":"web in event.check.subscriptions"}],"rules":[{"template":"aggregate","name":"a"},`+
		`{"template":"worst","name":"w","arguments":{"level":5}}]}`)
	large := map[string]string{"tier": strings.Repeat("x", 1<<20)}
	for i := range 10 {
		x.result(fmt.Sprint("web-", i), "http", 0, large)
	}
	x.tick(10 * time.Second)
	x.want("shop", "a", 0, "of 10 events")
	x.want("shop", "w", 3, "selects 10 events")
}

// watched are events that tell after each one how much is held.
type watched struct {
	ingest.Local
	held *atomic.Int64
	most atomic.Int64
}

func (w *watched) List(ctx context.Context, r ingest.Range) iter.Seq2[*ingest.Published, error] {
	return func(yield func(*ingest.Published, error) bool) {
		for p, err := range w.Local.List(ctx, r) {
			if !yield(p, err) {
				return
			}
			w.most.Store(max(w.most.Load(), w.held.Load()))
		}
	}
}

// TestRoom: what components of a namespace hold together is bounded, and each gets its events all the same.
func TestRoom(t *testing.T) {
	x := newRig(t)
	w := &watched{Local: x.events, held: &x.Services.held}
	x.cfg.Events = w
	x.put(Templates, "RuleTemplate", "many", `{"eval":"event.check.output = 'many: ' + events.length; return event;"}`)
	const components, each = 5, 7
	for i := range components {
		tier := fmt.Sprint("t", i)
		x.put(Components, "ServiceComponent", tier, fmt.Sprintf(`{"services":["shop"],"interval":10,"query":[{"type":`+
			`"labelSelector","value":"tier == %s"}],"rules":[{"template":"many","name":%q}]}`, tier, tier))
		for n := range each {
			x.result(fmt.Sprint("web-", n), tier, 0, map[string]string{"tier": tier, "fill": strings.Repeat("x", 1<<20)})
		}
	}
	x.tick(10 * time.Second)
	for i := range components {
		x.want("shop", fmt.Sprint("t", i), 0, "many: 7")
	}
	if most := w.most.Load(); most > roomBytes || most < maxBytes {
		t.Errorf("%d bytes were held", most)
	}
	if s := x.Stats(); s.Again != 2 || s.Held != 0 || s.Failed != 0 || s.Skipped != 0 {
		t.Errorf("%+v", s)
	}
}

// TestOthersEventsStay: a component replaces neither an agent's event nor that of another component.
func TestOthersEventsStay(t *testing.T) {
	x := newRig(t)
	const spec = `{"services":[%q],"interval":10,"query":[{"type":"fieldSelector","value":"event.check.name == x"}],` +
		`"rules":[{"template":"aggregate","name":%q}]}`
	agent := &monitor.EntityConfig{Meta: monitor.Meta{Name: "web-1", Namespace: "default"}, Class: monitor.ClassAgent}
	resourcestest.Put(t, x.resources, "entities", agent)
	x.result("web-1", "http", 2, nil)
	x.result("shop", "http", 2, nil)
	component := func(name, service, rule string) *monitor.Provider {
		return &monitor.Provider{Meta: monitor.Meta{Name: name, Namespace: "default"}, Kind: "ServiceComponent",
			Spec: json.RawMessage(fmt.Sprintf(spec, service, rule))}
	}
	for _, p := range []*monitor.Provider{component("a", "web-1", "http"), component("b", "shop", "http"),
		component("c", "shop", "own"), component("d", "shop", "own")} {
		resourcestest.Put(t, x.resources, Components, p)
	}
	x.tick(10 * time.Second)
	x.tick(10 * time.Second)
	for _, entity := range []string{"web-1", "shop"} {
		if e := x.want(entity, "http", 2, ""); e.Check.Scheduler != "" {
			t.Errorf("%s/http is now %+v", entity, e.Check)
		}
	}
	if made := x.want("shop", "own", 1, "").Check.Annotations[madeBy]; made != "d" {
		t.Errorf("the event is component %q's", made)
	}
	for _, want := range []string{`class "agent"`, "the event shop/http was made by no component",
		`component "d" makes the event shop/own`} {
		if !strings.Contains(strings.ReplaceAll(x.log.String(), `\`, ""), want) {
			t.Errorf("the log does not say %q: %s", want, x.log)
		}
	}
	if s := x.Stats(); s.Refused != 5 { // two each, and in the first round both make shop/own
		t.Errorf("%+v", s)
	}
	// Those who write such components are told at once.
	for want, p := range map[string]*monitor.Provider{
		`of class "agent"`:                           component("e", "web-1", "x"),
		`component "c" makes the event shop/own`:     component("e", "shop", "own"),
		`spec: services[0]: entity "web-1" is of cl`: component("a", "web-1", "http"),
	} {
		if _, err := x.Review(t.Context(), Components, p); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	// Whose component is gone, the event is the next one's.
	for _, gone := range []string{"c", "d"} {
		if err := x.resources.Write(t.Context(), objects.Op{Verb: objects.Delete, Type: Components, Namespace: "default",
			Name: gone}); err != nil {
			t.Fatal(err)
		}
	}
	x.put(Components, "ServiceComponent", "e", fmt.Sprintf(spec, "shop", "own"))
	x.tick(10 * time.Second)
	if made := x.want("shop", "own", 1, "").Check.Annotations[madeBy]; made != "e" {
		t.Errorf("the event is component %q's", made)
	}
	if names := x.Results(Components, component("e", "shop", "own")); !slices.Equal(names, []string{"shop/own"}) {
		t.Errorf("%q", names)
	}
}

func TestReview(t *testing.T) {
	x := newRig(t)
	x.put(Templates, "RuleTemplate", "worst", fmt.Sprintf(worst, "return event;"))
	component := func(rule, query, more string) string {
		return `{"services":["s"],"query":[` + query + `],"rules":[` + rule + `]` + more + `}`
	}
	rule, query := `{"template":"aggregate","name":"a"}`, `{"type":"fieldSelector","value":"event.check.name == a"}`
	for _, c := range []struct{ typ, spec, want string }{
		{Components, component(rule, query, ""), "interval, cron"},
		{Components, component(rule, query, `,"interval":1,"cron":"* * * * *"`), "interval, cron"},
		{Components, component(rule, query, `,"interval":1,"colour":1`), "colour"},
		{Components, component("", query, `,"interval":1`), "rules"},
		{Components, component(rule, "", `,"interval":1`), "query"},
		{Components, component(rule, `{"type":"x","value":"a == b"}`, `,"interval":1`), "fieldSelector nor labelSelector"},
		{Components, component(rule, `{"type":"fieldSelector","value":"a == b"}`, `,"interval":1`), "no field of events"},
		{Components, component(rule, `{"type":"fieldSelector","value":"=="}`, `,"interval":1`), "query[0]: value"},
		{Components, component(rule+","+rule, query, `,"interval":1`), "that of another rule"},
		{Components, component(`{"template":"aggregate","name":"a b"}`, query, `,"interval":1`), "rules[0]: name"},
		{Components, component(`{"template":"aggregate","name":"a","arguments":{"critical":1}}`, query, `,"interval":1`),
			`has no "critical"`},
		{Components, component(`{"template":"worst","name":"a"}`, query, `,"interval":1`), "level must be set"},
		{Components, component(`{"template":"worst","name":"a","arguments":{"level":"1"}}`, query, `,"interval":1`),
			"level must be of type number"},
		{Components, component(`{"template":"worst","name":"a","arguments":{"level":1,"word":"mad"}}`, query,
			`,"interval":1`), "word is not one of"},
		{Templates, `{"description":"x"}`, "eval must be set"},
		{Templates, `{"eval":"return ("}`, "spec: eval: "},
		{Templates, `{"eval":"}); (function() {"}`, "spec: eval: "},
		{Templates, `{"eval":"1","arguments":{"required":["a"]}}`, "arguments.required"},
		{Templates, `{"eval":"1","arguments":{"properties":{"a":{"type":"colour"}}}}`, "properties.a.type"},
	} {
		_, err := x.Review(t.Context(), c.typ, &monitor.Provider{Meta: monitor.Meta{Name: "n", Namespace: "default"},
			Spec: json.RawMessage(c.spec)})
		if !errkind.Is(err, errkind.Invalid) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v does not say %q", c.spec, err, c.want)
		}
	}
	warnings, err := x.Review(t.Context(), Components, &monitor.Provider{
		Meta: monitor.Meta{Name: "n", Namespace: "default"},
		Spec: json.RawMessage(component(`{"template":"later","name":"a"}`, query, `,"cron":"@hourly","handlers":["h"]`))})
	if err != nil || len(warnings) != 2 {
		t.Errorf("%v, %q", err, warnings)
	}
	if p := x.Builtin(Templates, Aggregate); p == nil || !json.Valid(p.Spec) {
		t.Errorf("%+v", p)
	} else if _, err := x.Review(t.Context(), Templates, p); err != nil { // it may be stored, changed
		t.Error(err)
	}
}

// TestTheLeaderEvaluates: another server's turn is not ours, and it begins with the next tick.
func TestTheLeaderEvaluates(t *testing.T) {
	x := newRig(t)
	x.put(Components, "ServiceComponent", "webs", fmt.Sprintf(webs, "{}"))
	x.leads.Store(false)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- x.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	// Each second of the clock is waited for: it is set again when what was due was done.
	second := func() {
		t.Helper()
		polltest.Until(t, func() bool { return x.clock.Timers() == 1 }, "the timer is set")
		x.clock.Advance(time.Second)
	}
	for range 130 {
		second()
	}
	polltest.Until(t, func() bool { return x.clock.Timers() == 1 }, "the timer is set")
	if e := x.event("shop", "webs"); e != nil || x.Stats().Components != 0 {
		t.Fatalf("who does not lead made %+v", e)
	}
	x.leads.Store(true)
	for range 62 {
		second()
	}
	polltest.Until(t, func() bool { return x.clock.Timers() == 1 }, "the timer is set")
	x.want("shop", "webs", 1, "no events")
	if s := x.Stats(); s.Evaluated != 1 || s.Components != 1 {
		t.Errorf("%+v", s)
	}
}
