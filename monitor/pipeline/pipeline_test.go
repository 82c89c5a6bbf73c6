package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/monitor"
)

func allow(name string, expressions ...string) *monitor.EventFilter {
	return &monitor.EventFilter{Meta: meta(name), Action: "allow", Expressions: expressions}
}

func deny(name string, expressions ...string) *monitor.EventFilter {
	return &monitor.EventFilter{Meta: meta(name), Action: "deny", Expressions: expressions}
}

func ref(typ, name string) *monitor.Ref {
	return &monitor.Ref{Name: name, Type: typ, APIVersion: "core/v2"}
}

func TestPipe(t *testing.T) {
	w := start(t, nil, writes("slack"), pipe("env", `echo "$WHO $A_PATH" > "$OUT/env"`),
		pipe("fails", "echo oops; exit 7"))
	w.put(&monitor.Handler{Meta: meta("env"), Type: "pipe", Command: `echo "$WHO" > "$OUT/env"`,
		EnvVars: []string{"WHO=me"}})
	w.compiledAfter(func() {
		w.put(&monitor.Handler{Meta: meta("late"), Type: "pipe", Command: "sleep 1000", Timeout: 1})
	})
	w.send(result("e", "cpu", 2, "slack", "env", "fails", "late", "nobody"))
	w.settled()
	lines := w.lines("slack")
	if len(lines) != 1 {
		t.Fatalf("%d events", len(lines))
	}
	var e monitor.Event
	if err := json.Unmarshal([]byte(lines[0]), &e); err != nil || e.Check.Status != 2 || e.Check.Occurrences != 1 ||
		e.Check.State != "failing" || e.Entity.Labels["password"] != monitor.Redacted {
		t.Errorf("%v: %s", err, lines[0])
	}
	if got := w.lines("env"); !slices.Equal(got, []string{"me"}) {
		t.Errorf("environment: %q", got)
	}
	for handler, want := range map[string]HandlerStats{
		"slack": {Queued: 1, Done: 1}, "env": {Queued: 1, Done: 1}, "fails": {Queued: 1, Failed: 1},
		"late": {Queued: 1, Failed: 1},
	} {
		want.Namespace, want.Handler = "default", handler
		if got := w.of(handler); got != want {
			t.Errorf("%+v", got)
		}
	}
	for _, text := range []string{"status 7", "oops", "did not end in time", "handler=nobody"} {
		if !w.log.has(text) {
			t.Errorf("the log does not say %q", text)
		}
	}
}

// Values of secrets are in the environment of commands and the variables of scripts, and not in the log; without them
// nothing is run.
func TestSecrets(t *testing.T) {
	secret := func(h *monitor.Handler, name string) *monitor.Handler {
		h.Secrets = []*monitor.Secret{{Name: "KEY", Secret: name}}
		return h
	}
	list := []monitor.Object{
		secret(pipe("key", `echo "$KEY" > "$OUT/key"`), "pager"), secret(pipe("says", `echo "no: $KEY"; exit 3`), "pager"),
		secret(writes("none"), "nobody"),
		&monitor.Mutator{Meta: meta("command"), Command: `echo "by $KEY"`,
			Secrets: []*monitor.Secret{{Name: "KEY", Secret: "pager"}}},
		&monitor.Mutator{Meta: meta("script"), Type: "javascript", Eval: "return 'with ' + KEY",
			Secrets: []*monitor.Secret{{Name: "KEY", Secret: "pager"}}},
	}
	for _, m := range []string{"command", "script"} {
		h := writes("h-" + m)
		h.Mutator = m
		list = append(list, h)
	}
	w := start(t, func(c *Config) {
		c.Secrets = func(_ context.Context, namespace string, list []*monitor.Secret) ([]string, error) {
			if list[0].Secret != "pager" {
				return nil, errkind.Errorf(errkind.NotFound, "secret %q: it does not exist", list[0].Secret)
			}
			return []string{list[0].Name + "=" + namespace + "-s3cret"}, nil
		}
	}, list...)
	w.send(result("e", "cpu", 2, "key", "says", "none", "h-command", "h-script"))
	w.settled()
	for handler, want := range map[string]string{"key": "default-s3cret", "none": "", "h-command": "by default-s3cret",
		"h-script": "with default-s3cret"} {
		if got := strings.Join(w.lines(handler), ";"); got != want {
			t.Errorf("%s: %q", handler, got)
		}
	}
	if w.of("none").Failed != 1 || !w.log.has("it does not exist") || !w.log.has("no: REDACTED") || w.log.has("s3cret") {
		t.Errorf("%+v\n%s", w.Stats(), w.log.all.String())
	}
}

func TestSockets(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	got := make(chan string, 10)
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(c)
			_ = c.Close()
			got <- "tcp " + string(b)
		}
	}()
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, _, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			got <- "udp " + string(b[:n])
		}
	}()
	socket := func(name, typ string, address net.Addr) *monitor.Handler {
		_, port, _ := net.SplitHostPort(address.String())
		n, _ := strconv.Atoi(port)
		return &monitor.Handler{Meta: meta(name), Type: typ, Mutator: "only_check_output",
			Socket: &monitor.HandlerSocket{Host: "127.0.0.1", Port: uint32(n)}}
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	w := start(t, nil, socket("t", "tcp", tcp.Addr()), socket("u", "udp", udp.LocalAddr()),
		socket("refused", "tcp", closed.Addr()))
	w.send(result("e", "cpu", 1, "t", "u", "refused"))
	all := []string{polltest.Get(t, got, "a socket"), polltest.Get(t, got, "the other socket")}
	slices.Sort(all)
	if !slices.Equal(all, []string{"tcp the output", "udp the output"}) {
		t.Errorf("%q", all)
	}
	w.settled()
	if s := w.of("refused"); s.Failed != 1 {
		t.Errorf("%+v", s)
	}
}

func TestSets(t *testing.T) {
	set := func(name string, handlers ...string) *monitor.Handler {
		return &monitor.Handler{Meta: meta(name), Type: "set", Handlers: handlers,
			Filters: []string{"is_incident", "no_such"}}
	}
	w := start(t, nil, writes("a"), writes("b"), writes("c"), writes("d"), set("one", "a", "two"),
		set("two", "b", "three", "a", "nobody"), set("three", "c", "four"), set("four", "d"), set("self", "self", "a"))
	w.send(result("e", "cpu", 0, "one"))
	w.settled()
	for handler, want := range map[string]int{"a": 1, "b": 1, "c": 1, "d": 0} {
		if got := len(w.lines(handler)); got != want {
			t.Errorf("%s got %d events", handler, got)
		}
	}
	if !w.log.has("nested too deep") || !w.log.has("handler=nobody") {
		t.Error("the log does not say what was skipped")
	}
	w.send(result("e", "disk", 0, "self"))
	w.settled()
	if got := len(w.lines("a")); got != 2 {
		t.Errorf("a got %d events", got)
	}
}

func TestFilters(t *testing.T) {
	filters := map[string]*monitor.EventFilter{
		"common":     allow("common", "event.check.status == 2", "event.check.occurrences == 1"),
		"javascript": allow("javascript", "event.entity.labels.region.indexOf('us') == 0"),
		"secrets": allow("secrets", "event.entity.labels.password == 'REDACTED'",
			"['REDACTED'].indexOf(event.entity.labels.password) == 0"),
		"not":         allow("not", "event.check.status == 1"),
		"not either":  allow("not-either", "['x'].indexOf(event.check.name) == 0"),
		"deny":        deny("deny", "event.check.status == 2"),
		"deny both":   deny("deny-both", "event.check.status == 2", "event.check.status == 1"),
		"deny js":     deny("deny-js", "[2].indexOf(event.check.status) == 0"),
		"throws":      allow("throws", "event.none.here", "event.none.here == [1]", "syntax error"),
		"deny throws": deny("deny-throws", "event.none.here"),
		"loops":       allow("loops", "while (true);"),
		"quick last":  allow("quick-last", "event.check.status == 1"),
	}
	never, always := &monitor.Windows{},
		&monitor.Windows{Days: monitor.Days{All: []*monitor.Window{{Begin: "12:00AM", End: "11:59PM"},
			{Begin: "11:58PM", End: "12:01AM"}}}}
	never.Days.All = []*monitor.Window{}
	in, out, denyOut := allow("in", "event.check.status == 2"), allow("out", "event.check.status == 2"),
		deny("deny-out", "event.check.status == 2")
	in.When, out.When, denyOut.When = always, never, never
	filters["in"], filters["out"], filters["deny out"] = in, out, denyOut
	list := []monitor.Object{}
	want := map[string]bool{
		"common": true, "javascript": true, "secrets": true, "deny-both": true, "throws": true, "deny-throws": true,
		"loops": true, "in": true, "deny-out": true,
	}
	var handlers []string
	for _, f := range filters {
		list = append(list, f, pipe("h-"+f.Name, `echo >> "$OUT/h-`+f.Name+`"`, f.Name))
		handlers = append(handlers, "h-"+f.Name)
	}
	list = append(list, pipe("h-three", `echo >> "$OUT/h-three"`, "is_incident", "javascript", "quick-last"),
		pipe("h-incident", `echo >> "$OUT/h-incident"`, "is_incident", "not_silenced"),
		pipe("h-metrics", `echo >> "$OUT/h-metrics"`, "has_metrics"), pipe("h-missing", `echo >> "$OUT/h-missing"`,
			"no_such_filter"))
	handlers = append(handlers, "h-three", "h-incident", "h-metrics", "h-missing")
	want["incident"] = true
	w := start(t, nil, list...)
	w.send(result("e", "cpu", 2, handlers...))
	w.settled()
	for _, h := range handlers {
		if got := w.of(h).Done == 1; got != want[strings.TrimPrefix(h, "h-")] {
			t.Errorf("%s: %+v", h, w.of(h))
		}
	}
	if !w.log.has("no_such_filter") || !w.log.has("filter=throws") || !w.log.has("filter=loops") {
		t.Error("the log does not name what is wrong")
	}
}

// What is an incident, what ends one, and what is silenced.
func TestBuiltinFilters(t *testing.T) {
	w := start(t, nil, writes("incidents", "is_incident"), writes("heard", "not_silenced"))
	for _, status := range []uint32{0, 0, 1, 2, 0, 0} {
		w.send(result("e", "cpu", status, "incidents", "heard"))
	}
	w.mu.Lock()
	w.silences = monitor.NewSilences([]*monitor.Silenced{{Meta: meta("entity:e:*"), Subscription: "entity:e"}})
	w.mu.Unlock()
	w.send(result("e", "cpu", 2, "incidents", "heard"))
	w.settled()
	var statuses []uint32
	for _, line := range w.lines("incidents") {
		var e monitor.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		statuses = append(statuses, e.Check.Status)
	}
	if !slices.Equal(statuses, []uint32{1, 2, 0, 2}) {
		t.Errorf("incidents: %v", statuses)
	}
	if got := len(w.lines("heard")); got != 6 {
		t.Errorf("%d were not silenced", got)
	}
}

func TestMetricsAlone(t *testing.T) {
	w := start(t, nil, writes("influx", "has_metrics", "custom", "js"), allow("custom", "event.check.status == 0"),
		allow("js", "[0].indexOf(event.check.status) == 0"), writes("own"),
		&monitor.Pipeline{Meta: meta("p"), Workflows: []*monitor.Workflow{{Name: "w", Handler: ref("Handler", "own")}}})
	e := result("e", "", 0)
	e.Check = nil
	e.Metrics = &monitor.Metrics{Handlers: []string{"influx", "nobody"}, Points: []*monitor.Point{{Name: "a", Value: 1}}}
	e.Pipelines = []*monitor.Ref{ref("Pipeline", "p")}
	w.send(e)
	w.settled()
	if len(w.lines("influx")) != 1 || len(w.lines("own")) != 1 || !strings.Contains(w.lines("influx")[0], `"name":"a"`) {
		t.Errorf("%q, %q", w.lines("influx"), w.lines("own"))
	}
	// Metrics of a check: only results that have some reach their handlers.
	c := result("e", "cpu", 0)
	c.Check.MetricHandlers = []string{"own"}
	w.send(c)
	c.Metrics = &monitor.Metrics{Handlers: []string{"own"}, Points: e.Metrics.Points}
	w.send(c)
	w.settled()
	if got := len(w.lines("own")); got != 2 {
		t.Errorf("%d", got)
	}
}

func TestPipelines(t *testing.T) {
	p := &monitor.Pipeline{Meta: meta("p"), Workflows: []*monitor.Workflow{
		{Name: "one", Filters: []*monitor.Ref{ref("EventFilter", "is_incident")},
			Mutator: ref("Mutator", "only_check_output"), Handler: ref("Handler", "a")},
		{Name: "two", Handler: ref("Handler", "both")},
		{Name: "three", Mutator: ref("Mutator", "none"), Handler: ref("Handler", "a")},
		{Name: "four", Handler: ref("Handler", "c")},
	}}
	w := start(t, nil, p, writes("a"), writes("b"), writes("c"), &monitor.Handler{Meta: meta("both"), Type: "set",
		Handlers: []string{"a", "b"}})
	e := result("e", "cpu", 1)
	e.Check.Pipelines = []*monitor.Ref{ref("Pipeline", "p"), ref("Pipeline", "none")}
	e.Pipelines = e.Check.Pipelines // as agents do
	w.send(e)
	w.settled()
	a := w.lines("a")
	if len(a) != 2 || !slices.Contains(a, "the output") || len(w.lines("b")) != 1 || len(w.lines("c")) != 0 {
		t.Errorf("a %q, b %q, c %q", a, w.lines("b"), w.lines("c"))
	}
	if !w.log.has(`workflow three: mutator \"none\" does not exist`) || !w.log.has("pipeline=none") {
		t.Errorf("the log does not say where the pipeline ends: %s", w.log.all.String())
	}
	// Mended, all of it goes on.
	fixed := *p
	fixed.Workflows = slices.Clone(p.Workflows)
	fixed.Workflows[2] = &monitor.Workflow{Name: "three", Handler: ref("Handler", "b")}
	w.compiledAfter(func() { w.put(&fixed) })
	w.send(e)
	w.settled()
	if len(w.lines("b")) != 3 || len(w.lines("c")) != 1 {
		t.Errorf("b %q, c %q", w.lines("b"), w.lines("c"))
	}
}

func TestMutators(t *testing.T) {
	js := func(name, eval string, env ...string) *monitor.Mutator {
		return &monitor.Mutator{Meta: meta(name), Type: "javascript", Eval: eval, EnvVars: env, Timeout: 5}
	}
	mutators := []*monitor.Mutator{
		{Meta: meta("upper"), Command: "tr a-z A-Z"}, {Meta: meta("fails"), Type: "pipe", Command: "echo why; exit 3"},
		{Meta: meta("late"), Command: "sleep 1000", Timeout: 1},
		js("text", "return event.check.name + WHO", "WHO=me"),
		js("changes", "event.check.labels.a = 'b'; delete event.check.output"), js("number", "return 5"),
		js("throws", "throw 'up'"),
		js("ruins", "event.check = 7"), {Meta: meta("loops"), Type: "javascript", Eval: "while (true);"},
	}
	var list []monitor.Object
	var handlers []string
	for _, m := range mutators {
		h := writes("h-" + m.Name)
		h.Mutator = m.Name
		list = append(list, m, h)
		handlers = append(handlers, h.Name)
	}
	w := start(t, nil, list...)
	w.send(result("e", "cpu", 2, handlers...))
	w.settled()
	for name, want := range map[string]string{"upper": `"STATUS":2`, "text": "cpume", "changes": `"labels":{"a":"b"}`,
		"fails": "", "late": "", "number": "", "throws": "", "ruins": "", "loops": ""} {
		lines := w.lines("h-" + name)
		if want == "" && (len(lines) > 0 || w.of("h-"+name).Failed != 1) ||
			want != "" && (len(lines) != 1 || !strings.Contains(lines[0], want)) {
			t.Errorf("%s: %q, %+v", name, lines, w.of("h-"+name))
		}
	}
	if strings.Contains(w.lines("h-changes")[0], "the output") || !w.log.has("why") {
		t.Error("what a mutator removed is there, or its error is not told")
	}
}

// Compiling again leaves alone what did not change.
func TestRecompile(t *testing.T) {
	w := start(t, nil, allow("f", "event.check.status == 2"), allow("g", "[1].length"), writes("h", "f", "g"))
	before := w.view.Load().namespaces["default"]
	w.put(&monitor.Namespace{Name: "other"}) // nothing of ours
	w.compiledAfter(func() { w.put(allow("f", "event.check.status == 1")) })
	after := w.view.Load().namespaces["default"]
	if after.filters["f"] == before.filters["f"] || after.filters["g"] != before.filters["g"] ||
		after.legacy["h"].to != before.legacy["h"].to {
		t.Error("what changed and what did not")
	}
	if n := w.Compiled(); n != 2 {
		t.Errorf("compiled %d times", n)
	}
	w.send(result("e", "cpu", 1, "h"))
	w.settled()
	if s := w.of("h"); s.Done != 1 {
		t.Errorf("%+v", s)
	}
}

func TestWants(t *testing.T) {
	w := start(t, nil, writes("incidents", "is_incident"), writes("everything"),
		&monitor.Handler{Meta: meta("set"), Type: "set", Handlers: []string{"incidents"}})
	kind := func(handlers ...string) *monitor.Kind {
		return &monitor.Kind{Check: &monitor.Check{Handlers: handlers}}
	}
	steady, incident, resolution := monitor.Outcome{Steady: true}, monitor.Outcome{Incident: true},
		monitor.Outcome{Resolution: true}
	for n, c := range []struct {
		kind *monitor.Kind
		want [3]bool // steady, incident, resolution
	}{
		{kind(), [3]bool{}}, {kind("none"), [3]bool{}}, {kind("incidents"), [3]bool{false, true, true}},
		{kind("set"), [3]bool{false, true, true}}, {kind("everything"), [3]bool{true, true, true}},
		{kind("incidents", "everything"), [3]bool{true, true, true}}, {nil, [3]bool{true, true, true}},
	} {
		if got := [3]bool{w.Wants("default", c.kind, steady), w.Wants("default", c.kind, incident),
			w.Wants("default", c.kind, resolution)}; got != c.want {
			t.Errorf("%d: %v", n, got)
		}
	}
	if w.Wants("other", nil, incident) {
		t.Error("a namespace without handlers wants events")
	}
	k := kind("incidents")
	w.Wants("default", k, steady)
	if n := testing.AllocsPerRun(100, func() { w.Wants("default", k, steady) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Events of one check on one entity come in order, one at a time, also while others run beside.
func TestOrder(t *testing.T) {
	w := start(t, nil, pipe("h", `read -r line; echo "$line" >> "$OUT/order"`))
	h := pipe("h", `read -r line; echo "$line" >> "$OUT/$(echo "$line" | cut -d' ' -f1)"`)
	h.Mutator = "text"
	w.put(&monitor.Mutator{Meta: meta("text"), Type: "javascript",
		Eval: "return event.entity.name + ' ' + event.check.output + '\\n'", Timeout: 5})
	w.compiledAfter(func() { w.put(h) })
	for i := range 40 {
		for _, entity := range []string{"a", "b", "c"} {
			e := result(entity, "cpu", uint32(i%3), "h")
			e.Check.Output = fmt.Sprint(i)
			w.send(e)
		}
	}
	w.settled()
	for _, entity := range []string{"a", "b", "c"} {
		lines := w.lines(entity)
		if len(lines) != 40 {
			t.Fatalf("%s: %d events", entity, len(lines))
		}
		for i, line := range lines {
			if line != fmt.Sprint(entity, " ", i) {
				t.Fatalf("%s: event %d is %q", entity, i, line)
			}
		}
	}
}
