package sensurest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	sensu "github.com/sensu/sensu-go/api/core/v2"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/subscribers"
)

func TestEvents(t *testing.T) {
	g := newRig(t)
	all := ns + "/events"
	g.want(201, "POST", all, `{"entity":{"metadata":{"name":"web","namespace":"default","labels":{"region":"eu"}}},`+
		`"check":{"metadata":{"name":"cpu"},"status":2,"output":"hot","interval":10,"subscriptions":["linux"]}}`)
	var e sensu.Event
	got := g.want(200, "GET", all+"/web/cpu", "")
	got.into(t, &e)
	if e.Check.Status != 2 || e.Check.Output != "hot" || e.Entity.EntityClass != "proxy" || e.Timestamp == 0 ||
		len(e.ID) != 16 || e.Check.State != "failing" || len(e.Check.History) != 1 ||
		e.CreatedBy != "admin" || e.Check.CreatedBy != "admin" || e.Check.Executed == 0 ||
		!slices.Contains(e.Entity.Subscriptions, "entity:web") {
		t.Errorf("%s", got.body)
	}
	if err := e.Validate(); err != nil {
		t.Error("the contract's own type finds fault:", err)
	}
	g.want(201, "PUT", all+"/web/cpu", got.body) // again, as it was read
	g.want(200, "GET", all+"/web/cpu", "").into(t, &e)
	if e.Check.Occurrences != 2 || len(e.Check.History) != 2 {
		t.Errorf("occurrences %d, history %v", e.Check.Occurrences, e.Check.History)
	}
	if a := g.want(200, "GET", ns+"/entities/web", ""); !strings.Contains(a.body, `"proxy"`) ||
		!strings.Contains(a.body, `"eu"`) {
		t.Error("an event made no entity:", a.body)
	}
	// A silence shows at once, not with the next result.
	g.want(201, "PUT", ns+"/silenced/entity:web:cpu", `{"metadata":{"name":"entity:web:cpu"},`+
		`"subscription":"entity:web","check":"cpu","expire":-1}`)
	g.want(200, "GET", all+"/web/cpu", "").into(t, &e)
	if !e.Check.IsSilenced || !slices.Equal(e.Check.Silenced, []string{"entity:web:cpu"}) {
		t.Errorf("%v", e.Check.Silenced)
	}
	if a := g.want(200, "GET", all+"/web", ""); !strings.Contains(a.body, `"is_silenced":true`) {
		t.Error(a.body)
	}
	g.want(204, "DELETE", ns+"/silenced/entity:web:cpu", "")
	if a := g.want(200, "GET", all+"/web/cpu", ""); !strings.Contains(a.body, `"is_silenced":false`) {
		t.Error(a.body)
	}
	g.want(201, "PUT", all+"/web/disk", `{"check":{"status":0}}`)
	g.want(201, "POST", all+"/db/disk", `{"check":{"status":1}}`)
	// never stored
	g.want(201, "POST", all, `{"entity":{"metadata":{"name":"web"}},"metrics":{"points":[{"name":"a","value":1,`+
		`"timestamp":1}],"handlers":["x"]}}`)
	g.want(201, "POST", all, `{"entity":{"metadata":{"name":"agent1"},"entity_class":"agent"},"check":{"metadata":{`+
		`"name":"ping"},"proxy_entity_name":"router","status":1}}`)
	keys := func(query string) string {
		var list []sensu.Event
		g.want(200, "GET", "/api/core/v2/"+query, "").into(t, &list)
		var out []string
		for _, e := range list {
			out = append(out, e.Entity.Name+"/"+e.Check.Name)
		}
		return strings.Join(out, " ")
	}
	for query, want := range map[string]string{
		"events": "db/disk router/ping web/cpu web/disk", "namespaces/default/events": "db/disk router/ping web/cpu web/disk",
		"namespaces/default/events/web": "web/cpu web/disk",
		"namespaces/none/events":        "", "namespaces/default/events/none": "",
		"events?fieldSelector=event.check.status!%3D%220%22":          "db/disk router/ping web/cpu",
		"events?fieldSelector=event.entity.name%3D%3Dweb":             "web/cpu web/disk",
		"events?fieldSelector=event.check.state%3D%3Dpassing":         "web/disk",
		"events?labelSelector=region%3D%3Deu":                         "web/cpu web/disk",
		"events?fieldSelector=linux%20in%20event.check.subscriptions": "web/cpu",
	} {
		if got := keys(query); got != want {
			t.Errorf("%s: %q, not %q", query, got, want)
		}
	}
	var paged []string
	for next, limit := "", 1; ; {
		a := g.want(200, "GET", fmt.Sprintf("/api/core/v2/events?limit=%d&continue=%s", limit, next), "")
		var list []sensu.Event
		a.into(t, &list)
		for _, e := range list {
			paged = append(paged, e.Entity.Name+"/"+e.Check.Name)
		}
		if next = a.header.Get("Sensu-Continue"); next == "" {
			break
		}
	}
	if got := strings.Join(paged, " "); got != "db/disk router/ping web/cpu web/disk" {
		t.Error("by pages:", got)
	}
	g.want(200, "GET", all+"/router/ping", "").into(t, &e)
	if e.Check.ProcessedBy != "agent1" || e.Entity.Name != "router" {
		t.Errorf("of a proxy: %+v", e.Check)
	}
	g.want(204, "DELETE", all+"/web/cpu", "")
	g.want(404, "GET", all+"/web/cpu", "")
	g.want(404, "DELETE", all+"/web/cpu", "")
	g.want(405, "PATCH", all+"/web/disk", "{}")
	g.want(405, "DELETE", all+"/web", "")
	g.want(405, "POST", "/api/core/v2/events", "{}")
	g.want(404, "GET", "/api/core/v2/events/web", "")
	g.want(404, "GET", all+"/web/disk/more", "")
	g.want(404, "POST", "/api/core/v2/namespaces/none/events",
		`{"entity":{"metadata":{"name":"web"}},"check":{"metadata":{"name":"cpu"}}}`)
}

func TestWrongEvents(t *testing.T) {
	g := newRig(t)
	for body, says := range map[string]string{
		`{`:  "unexpected end",
		`{}`: "must contain an entity",
		`{"entity":{"metadata":{"name":"a b"}},"check":{"metadata":{"name":"c"}}}`:                       "entity name",
		`{"entity":{"metadata":{"name":"a"}}}`:                                                           "check or metrics",
		`{"entity":{"metadata":{"name":"a"}},"check":{}}`:                                                "check name must not be empty",
		`{"entity":{"metadata":{"name":"a","namespace":"dev"}},"check":{"metadata":{"name":"c"}}}`:       "entity.metadata.namespace",
		`{"entity":{"metadata":{"name":"a"}},"check":{"metadata":{"name":"c","namespace":"dev"}}}`:       "check.metadata.namespace",
		`{"metadata":{"name":"x"},"entity":{"metadata":{"name":"a"}},"check":{"metadata":{"name":"c"}}}`: "cannot be named",
		`{"id":"123","entity":{"metadata":{"name":"a"}},"check":{"metadata":{"name":"c"}}}`:              "UUID",
		`{"entity":{"metadata":{"name":"a"}},"check":{"metadata":{"name":"c"},"ttl":3}}`:                 "ttl",
		`{"entity":{"metadata":{"name":"a"}},"check":{"metadata":{"name":"c"},"status":-1}}`:             "status",
		`{"pipelines":[{"name":"p","type":"Handler","api_version":"core/v2"}],"entity":{"metadata":{"name":"a"}},"check":{` +
			`"metadata":{"name":"c"}}}`: "pipeline",
	} {
		if text, code := g.want(400, "POST", ns+"/events", body).error(t); code != codeInvalid ||
			!strings.Contains(text, says) {
			t.Errorf("%s: %q, where %q is to be said", body, text, says)
		}
	}
	for path, says := range map[string]string{"/events/b/c": `"a" does not match "b"`,
		"/events/a/d": `"c" does not match "d"`} {
		if text, _ := g.want(400, "PUT", ns+path,
			`{"entity":{"metadata":{"name":"a"}},"check":{"metadata":{"name":"c"}}}`).error(t); !strings.Contains(text, says) {
			t.Error(text)
		}
	}
	if text, _ := g.want(400, "PUT", ns+"/events/a/c",
		`{"entity":{"metadata":{"name":"a"}}}`).error(t); !strings.Contains(text, `check "c"`) {
		t.Error(text)
	}
	if a := g.want(200, "GET", "/api/core/v2/events", ""); a.body != "[]" {
		t.Error("a refused event left something:", a.body)
	}
	if a := g.want(200, "GET", "/api/core/v2/entities", ""); a.body != "[]" {
		t.Error("a refused event made an entity:", a.body)
	}
}

func TestEntities(t *testing.T) {
	g := newRig(t)
	all := ns + "/entities"
	made := g.want(200, "POST", all, `{"metadata":{"name":"web","namespace":"default","labels":{"password":"hush",`+
		`"region":"eu"}},"entity_class":"agent","subscriptions":["linux"]}`)
	var e sensu.Entity
	made.into(t, &e)
	if e.Name != "web" || e.EntityClass != "agent" || e.Labels["password"] != "REDACTED" || e.Labels["region"] != "eu" {
		t.Errorf("%s", made.body)
	}
	g.want(409, "POST", all, `{"metadata":{"name":"web"}}`)
	g.want(200, "POST", all, `{"metadata":{"name":"router"}}`)
	g.want(200, "PUT", all+"/web", made.body) // the hidden label comes back hidden, and stays what it is
	g.want(200, "PATCH", all+"/web", `{"subscriptions":["windows"]}`)
	c := g.resources.View().Get("entities", "default", "web").Object().(*monitor.EntityConfig)
	if c.Labels["password"] != "hush" || !slices.Equal(c.Subscriptions, []string{"windows"}) {
		t.Errorf("%+v", c)
	}
	// What its agent says of its host is shown with it.
	frame := &monitor.Event{Timestamp: 5000, Entity: &monitor.Entity{Meta: monitor.Meta{Name: "web", Namespace: "default"},
		Class: "agent", AgentVersion: "6.12.0", System: monitor.System{OS: "linux"}},
		Check: &monitor.Check{Meta: monitor.Meta{Name: "keepalive", Namespace: "default"}, Executed: 5000, Interval: 20,
			Timeout: 120}}
	if err := g.ingest.Frame(t.Context(), "default", tagproto.Append(nil, frame)); err != nil {
		t.Fatal(err)
	}
	g.want(200, "GET", all+"/web", "").into(t, &e)
	if e.System.OS != "linux" || e.LastSeen != 5000 || e.SensuAgentVersion != "6.12.0" ||
		!slices.Equal(e.Subscriptions, []string{"windows"}) {
		t.Errorf("%+v", e)
	}
	var state struct {
		Type, APIVersion string
		Metadata         struct{ Name string }
		Spec             struct {
			LastSeen int64 `json:"last_seen"`
			System   struct{ OS string }
		}
	}
	g.want(200, "GET", "/api/core/v3/namespaces/default/entity-states/web", "").into(t, &state)
	if state.Type != "EntityState" || state.Metadata.Name != "web" || state.Spec.LastSeen != 5000 ||
		state.Spec.System.OS != "linux" {
		t.Errorf("%+v", state)
	}
	g.want(404, "GET", "/api/core/v3/namespaces/default/entity-states/router", "")
	if got := g.want(200, "GET", "/api/core/v3/namespaces/default/entity-states", "").names(t); len(got) != 1 {
		t.Error(got)
	}
	g.want(405, "PUT", "/api/core/v3/namespaces/default/entity-states/web", "{}")
	config := g.want(200, "GET", "/api/core/v3/namespaces/default/entity-configs/web", "")
	if !strings.Contains(config.body, `"type":"EntityConfig"`) || strings.Contains(config.body, "hush") {
		t.Error(config.body)
	}
	g.want(201, "PUT", "/api/core/v3/namespaces/default/entity-configs/web", config.body)
	g.want(200, "PATCH", "/api/core/v3/namespaces/default/entity-configs/web", `{"spec":{"deregister":true}}`)
	for query, want := range map[string]string{
		"": "router web", "?fieldSelector=entity.entity_class%3D%3Dproxy": "router",
		"?fieldSelector=windows%20in%20entity.subscriptions": "web",
		"?fieldSelector=entity.deregister%3D%3Dtrue":         "web", "?labelSelector=region%3D%3Deu": "web",
	} {
		if got := strings.Join(g.want(200, "GET", all+query, "").names(t), " "); got != want {
			t.Errorf("%s: %q", query, got)
		}
	}
	g.want(204, "DELETE", all+"/web", "")
	g.want(404, "GET", ns+"/events/web/keepalive", "")
	g.want(404, "DELETE", all+"/web", "")
}

// follow opens a watch and returns its lines.
func (g *rig) follow(ctx context.Context, query string, headers ...string) (lines chan string, resp *http.Response) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", g.url+"/api/corbel/v1/events/watch"+query, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Authorization", key(adminKey))
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if resp, err = http.DefaultClient.Do(req); err != nil {
		g.t.Fatal(err)
	}
	lines = make(chan string, 1000)
	go func() {
		defer resp.Body.Close()
		defer close(lines)
		in := bufio.NewScanner(resp.Body)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			if in.Text() != "" && in.Text() != ":" {
				lines <- in.Text()
			}
		}
	}()
	return lines, resp
}

func TestWatch(t *testing.T) {
	g := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all, resp := g.follow(ctx, "")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatal(resp.Status, resp.Header)
	}
	changes, _ := g.follow(ctx, "?changes=true&entity=web&namespace=default&fieldSelector=event.check.name%3D%3Dcpu")
	sse, resp := g.follow(ctx, "", "Accept", "text/event-stream")
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Error(resp.Header)
	}
	polltest.Until(t, func() bool { n, _ := g.tail.Stats(); return n == 3 }, "three follow")
	for _, status := range []int{0, 2, 0} {
		g.want(201, "PUT", ns+"/events/web/cpu", fmt.Sprintf(`{"check":{"status":%d}}`, status))
		g.want(201, "PUT", ns+"/events/web/disk", fmt.Sprintf(`{"check":{"status":%d}}`, status))
	}
	read := func(lines chan string) (e sensu.Event) {
		t.Helper()
		line := polltest.Get(t, lines, "an event")
		if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &e); err != nil {
			t.Fatal(line, err)
		}
		return e
	}
	for _, status := range []uint32{0, 2, 0} {
		for _, name := range []string{"cpu", "disk"} {
			for _, lines := range []chan string{all, sse} {
				if e := read(lines); e.Check.Status != status || e.Check.Name != name {
					t.Errorf("%s %d, not %s %d", e.Check.Name, e.Check.Status, name, status)
				}
			}
		}
	}
	for _, status := range []uint32{2, 0} {
		if e := read(changes); e.Check.Status != status || e.Check.Name != "cpu" {
			t.Errorf("%s %d, not %d", e.Check.Name, e.Check.Status, status)
		}
	}
	cancel()
	polltest.Until(t, func() bool { n, _ := g.tail.Stats(); return n == 0 }, "nobody follows any more")
	g.want(400, "GET", "/api/corbel/v1/events/watch?changes=perhaps", "")
	g.want(400, "GET", "/api/corbel/v1/events/watch?fieldSelector=x", "")
	g.want(405, "POST", "/api/corbel/v1/events/watch", "")
}

// Who reads too slowly is told, and cut off; nobody waits for it.
func TestSlowWatch(t *testing.T) {
	g := newRigOf(t, subscribers.Config{QueueEvents: 4, MaxFollowers: 1})
	f, err := g.tail.Follow(subscribers.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if _, code := g.want(503, "GET", "/api/corbel/v1/events/watch", "").error(t); code != codeInternal {
		t.Error(code)
	}
	f.Close()
	req, err := http.NewRequestWithContext(t.Context(), "GET", g.url+"/api/corbel/v1/events/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", key(adminKey))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	polltest.Until(t, func() bool { n, _ := g.tail.Stats(); return n == 1 }, "it follows")
	big := strings.Repeat("x", 100_000)
	deadline := time.Now().Add(time.Minute)
	for i := 0; ; i++ { // until its socket takes nothing more, and its queue is full
		if _, cut := g.tail.Stats(); cut == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a follower that reads nothing is never cut")
		}
		g.want(201, "PUT", ns+"/events/web/cpu", fmt.Sprintf(`{"check":{"output":"%d%s"}}`, i, big))
	}
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 1<<20)
	last, events := "", 0
	for in.Scan() {
		if in.Text() != "" {
			last, events = in.Text(), events+1
		}
	}
	if !strings.Contains(last, "missed some") || events < 5 {
		t.Errorf("after %d events its last line is %.200q (%v)", events, last, in.Err())
	}
}

// TestServerAway: no list is short without saying so when a server that has a part of the events does not answer.
func TestServerAway(t *testing.T) {
	g := newRig(t)
	for _, entity := range []string{"a", "b"} {
		g.want(201, "PUT", ns+"/events/"+entity+"/cpu", `{"check":{}}`)
	}
	g.away.Store(new("a"))
	for _, path := range []string{ns + "/events", ns + "/events?limit=5"} {
		if a := g.want(503, "GET", path, ""); !strings.Contains(a.body, "s2") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	g.away.Store(new("b"))
	if a := g.want(200, "GET", ns+"/events", ""); json.Valid([]byte(a.body)) || !strings.Contains(a.body, `"a"`) {
		t.Errorf("the list ends as if it were whole: %s", a.body)
	}
	for _, name := range []string{"export", "history"} {
		if a := g.want(200, "GET", "/api/corbel/v1/events/"+name, ""); !strings.Contains(a.body, `"error"`) ||
			!strings.Contains(a.body, "s2") {
			t.Errorf("%s: %s", name, a.body)
		}
	}
}

// TestEntitiesTogether: lists of entities ask for many states at once, give the same in pages, and do not end as if
// they were whole.
func TestEntitiesTogether(t *testing.T) {
	g := newRig(t)
	const entities = 30
	for i := range entities {
		g.want(201, "PUT", fmt.Sprintf("%s/events/e%02d/cpu", ns, i), `{"entity":{"system":{"hostname":"h"}},"check":{}}`)
	}
	for _, path := range []string{ns + "/entities", "/api/core/v3/namespaces/default/entity-states",
		ns + "/entities?fieldSelector=entity.entity_class==proxy"} {
		g.states.Store(0)
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(g.want(200, "GET", path, "").body), &list); err != nil || len(list) != entities ||
			g.states.Load() != 1 {
			t.Errorf("%s: %d entities, %d questions, %v", path, len(list), g.states.Load(), err)
		}
	}
	var paged []string
	more := ""
	for range entities {
		a := g.want(200, "GET", ns+"/entities?limit=7&continue="+more, "")
		var list []sensu.Entity
		if err := json.Unmarshal([]byte(a.body), &list); err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			paged = append(paged, e.Name)
		}
		if more = a.header.Get("Sensu-Continue"); more == "" {
			break
		}
	}
	if !slices.IsSorted(paged) || len(slices.Compact(paged)) != entities {
		t.Errorf("in pages: %v", paged)
	}
	g.away.Store(new("e20"))
	g.want(503, "GET", ns+"/entities", "")
	g.want(503, "GET", ns+"/entities?continue="+more+"&limit=25", "")
	g.want(200, "GET", ns+"/entities?limit=7", "")
}

func TestExportAndHistory(t *testing.T) {
	g := newRig(t)
	now := time.Now().Unix() - 100
	for i, status := range []int{0, 0, 2, 2, 2, 0} {
		g.want(201, "PUT", ns+"/events/web/cpu", fmt.Sprintf(`{"timestamp":%d,"check":{"status":%d}}`, now+int64(i), status))
	}
	g.want(201, "PUT", ns+"/events/web/disk", `{"check":{}}`)
	lines := strings.Split(g.want(200, "GET", "/api/corbel/v1/events/export", "").body, "\n")
	var e sensu.Event
	if len(lines) != 2 || json.Unmarshal([]byte(lines[0]), &e) != nil || e.Check.Name != "cpu" ||
		len(e.Check.History) != 6 {
		t.Error(lines)
	}
	span := func(status, first, last, runs int64) string {
		return fmt.Sprintf(`{"status":%d,"first":%d,"last":%d,"runs":%d}`, status, now+first, now+last, runs)
	}
	passed, failed, mended := span(0, 0, 1, 2), span(2, 2, 4, 3), span(0, 5, 5, 1)
	for query, want := range map[string]string{
		"": passed + "," + failed + "," + mended, "&status=2": failed, "&status=1": "", "&limit=1": mended,
		"&since=1h":                     passed + "," + failed + "," + mended,
		fmt.Sprintf("&since=%d", now+4): failed + "," + mended, fmt.Sprintf("&until=%d", now+4): passed + "," + failed,
		"&until=2000-01-02T03:04:05Z": "", fmt.Sprintf("&since=%d&until=%d", now+2, now+3): failed,
	} {
		a := g.want(200, "GET", "/api/corbel/v1/namespaces/default/events/history?entity=web&check=cpu"+query, "")
		if want := `{"check":"cpu","entity":"web","namespace":"default","spans":[` + want +
			`]}`; strings.TrimSpace(a.body) != want {
			t.Errorf("%s: %s, want %s", query, a.body, want)
		}
	}
	for query, want := range map[string]int{
		"namespace=default&entity=web": 2, "": 2, "check=cpu": 1, "status=2": 1, "namespace=default&entity=none": 0,
		"fieldSelector=" + url.QueryEscape(`event.check.name == "disk"`): 1,
		"namespace=default&until=1h":                                     0,
	} {
		lines := strings.Fields(g.want(200, "GET", "/api/corbel/v1/events/history?"+query, "").body)
		if len(lines) != want {
			t.Errorf("%s: %q, want %d lines", query, lines, want)
		}
	}
	for _, bad := range []string{"since=yesterday", "until=-5", "status=-1", "limit=x", "since=2h&until=3h",
		"fieldSelector=event.nothing=='a'", "entity=web", "entity=web&check=cpu"} {
		g.want(400, "GET", "/api/corbel/v1/events/history?"+bad, "")
	}
	g.want(404, "GET", "/api/corbel/v1/events/history?namespace=default&entity=web&check=none", "")
	g.want(404, "GET", "/api/corbel/v1/events/else", "")
}
