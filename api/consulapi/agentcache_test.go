package consulapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
)

// toServer passes requests to the API of a server in the same process.
type toServer struct {
	server *API
	mu     sync.Mutex
	down   bool
	sent   int
}

func (f *toServer) Forward(w http.ResponseWriter, r *http.Request, _ bool) error {
	f.mu.Lock()
	f.sent++
	down := f.down
	f.mu.Unlock()
	if down {
		return errkind.New(errkind.Unavailable, "No known Consul servers")
	}
	f.server.ServeHTTP(w, r)
	return nil
}

func (f *toServer) ForwardStream(w http.ResponseWriter, r *http.Request, toLeader bool) error {
	return f.Forward(w, r, toLeader)
}

func (f *toServer) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent
}

// clientAgent is an agent without a State, with its cache running, and the server behind it.
func clientAgent(t *testing.T) (agent, server *rig, link *toServer) {
	t.Helper()
	return clientAgentWith(t, func(*Config) {})
}

// clientAgentWith changes the configuration of both.
func clientAgentWith(t *testing.T, change func(*Config)) (agent, server *rig, link *toServer) {
	t.Helper()
	server = newRig(t, change)
	link = &toServer{server: server.api}
	agent = newRig(t, func(c *Config) {
		change(c)
		c.Registry, c.Operator.Group, c.Forward = nil, nil, link
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.api.Cache().Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	until(t, "the cache to run", func() bool {
		c := agent.api.Cache()
		return c.Running()
	})
	return agent, server, link
}

// grantFunc is an Authorizer that gives everybody the same rights.
type grantFunc func() *acl.Grant

// Grant implements Authorizer.
func (f grantFunc) Grant(context.Context, string) (*acl.Grant, error) { return f(), nil }

// GrantWithin implements Authorizer.
func (f grantFunc) GrantWithin(context.Context, string, time.Duration) (*acl.Grant, error) {
	return f(), nil
}

// register puts an instance into the State, past the API.
func (s *store) register(t *testing.T, name, id string) {
	t.Helper()
	res, err := s.Apply(t.Context(), &catalog.Register{Node: catalog.Node{Name: "n2", Address: "10.0.0.9"},
		Service: &catalog.Service{ID: id, Name: name}})
	if err != nil || res.Err != nil {
		t.Fatal(err, res.Err)
	}
}

const oneInstance = `{"Node":"n2","Address":"10.0.0.9","Service":{"Service":"web","ID":"%","Port":80}}`

func (r *rig) instance(id string) {
	r.Helper()
	r.want("PUT", "/v1/catalog/register", strings.Replace(oneInstance, "%", id, 1), 200, "true")
}

func TestClientAgentKeepsAnswersUpToDate(t *testing.T) {
	agent, server, link := clientAgent(t)
	server.instance("web-1")
	const path = "/v1/health/service/web?cached"
	a := agent.want("GET", path, "", 200, "*")
	if a.header.Get("X-Cache") != "MISS" || a.header.Get("Age") != "" || !strings.Contains(a.body, `"web-1"`) {
		t.Errorf("first: %v %s", a.header, a.body)
	}
	if a.header.Get("X-Consul-Query-Backend") != "streaming" {
		t.Errorf("the backend is %q", a.header.Get("X-Consul-Query-Backend"))
	}
	for range 10 {
		a = agent.want("GET", path, "", 200, "*")
		if a.header.Get("X-Cache") != "HIT" || a.header.Get("Age") != "0" {
			t.Fatalf("then: %v", a.header)
		}
	}
	if link.count() > 3 {
		t.Errorf("%d requests went to the server", link.count())
	}
	server.instance("web-2")
	until(t, "the change to arrive by itself", func() bool {
		a := agent.do("GET", path, "")
		return strings.Contains(a.body, `"web-2"`) && a.header.Get("X-Cache") == "HIT"
	})
	if n := agent.api.Cache().Len(); n != 1 {
		t.Errorf("%d questions are kept", n)
	}
}

func TestCachedBlockingQueryWakesOnTheChange(t *testing.T) {
	agent, server, _ := clientAgent(t)
	server.instance("web-1")
	index := agent.want("GET", "/v1/catalog/service/web?cached", "", 200, "*").header.Get("X-Consul-Index")
	woken := make(chan response, 1)
	go func() { woken <- agent.do("GET", "/v1/catalog/service/web?cached&wait=5m&index="+index, "") }()
	begun := agent.want("GET", "/v1/catalog/service/web?cached&wait=1ms&index="+index, "", 200, "*")
	if begun.header.Get("X-Consul-Index") != index {
		t.Errorf("a wait that ran out gave index %s", begun.header.Get("X-Consul-Index"))
	}
	server.instance("web-2")
	select {
	case a := <-woken:
		if !strings.Contains(a.body, `"web-2"`) || a.header.Get("X-Consul-Index") == index {
			t.Errorf("woke with %s %s", a.header.Get("X-Consul-Index"), a.body)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("a cached blocking query did not wake")
	}
}

// TestKeptAnswersOutliveTheServers: what is known is given on, with its age.
func TestKeptAnswersOutliveTheServers(t *testing.T) {
	agent, server, link := clientAgent(t)
	server.instance("web-1")
	agent.want("GET", "/v1/health/service/web?cached", "", 200, "*")
	link.mu.Lock()
	link.down = true
	link.mu.Unlock()
	server.instance("web-2") // ends the query under way; the next one fails
	until(t, "an age", func() bool {
		a := agent.do("GET", "/v1/health/service/web?cached", "")
		age, err := strconv.Atoi(a.header.Get("Age"))
		return err == nil && age > 0 && a.status == 200
	})
	if a := agent.do("GET", "/v1/health/service/other?cached", ""); a.status != 500 ||
		a.body != "No known Consul servers" {
		t.Errorf("a question without an answer: %d %s", a.status, a.body)
	}
	if n := agent.api.Cache().Len(); n != 1 {
		t.Errorf("%d questions are kept: one that failed must not be", n)
	}
}

func TestCacheControlOfSimpleRows(t *testing.T) {
	r := newRig(t, nil)
	get := func(control string) response {
		req := httptest.NewRequest("GET", "/v1/catalog/datacenters?cached", nil)
		if control != "" {
			req.Header.Set("Cache-Control", control)
		}
		return r.send(req)
	}
	for _, step := range []struct{ control, want string }{
		{"", "MISS"}, {"", "HIT"}, {"max-age=60", "HIT"}, {"max-age=0", "MISS"}, {"must-revalidate", "MISS"},
		{"no-transform, max-age=60, stale-if-error=5", "HIT"},
	} {
		if a := get(step.control); a.status != 200 || a.body != `["dc1"]` || a.header.Get("X-Cache") != step.want {
			t.Errorf("%q: %d %s %v, want %s", step.control, a.status, a.body, a.header, step.want)
		}
	}
	for _, control := range []string{"max-age=soon", "max-age=", "stale-if-error=-1"} {
		if a := get(control); a.status != 400 || a.body != "Invalid Cache-Control header." {
			t.Errorf("%q: %d %s", control, a.status, a.body)
		}
	}
	r.want("GET", "/v1/health/service/web?cached&consistent", "", 400, "*")
	off := newRig(t, func(c *Config) { c.NoCache = true })
	if a := off.want("GET", "/v1/catalog/datacenters?cached", "", 200, `["dc1"]`); a.header["X-Cache"] != nil {
		t.Errorf("a cache that is off answered: %v", a.header)
	}
}

func TestServerAnswersCachedFromItsState(t *testing.T) {
	r := newRig(t, nil)
	r.instance("web-1")
	for _, want := range []string{"MISS", "HIT", "HIT"} {
		a := r.want("GET", "/v1/catalog/service/web?cached", "", 200, "*")
		if a.header.Get("X-Cache") != want || (want == "HIT") != (a.header.Get("Age") == "0") {
			t.Errorf("X-Cache %q, Age %q, want %s", a.header.Get("X-Cache"), a.header.Get("Age"), want)
		}
	}
}

// What a token sees follows its rights as soon as the agent knows of them, also where nothing else changes.
func TestCachedAnswersFollowRights(t *testing.T) {
	wide, narrow := rules(`service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }`),
		rules(`node_prefix "" { policy = "read" }`)
	var mu sync.Mutex
	now := wide
	current := grantFunc(func() *acl.Grant {
		mu.Lock()
		defer mu.Unlock()
		return now
	})
	agent, server, _ := clientAgentWith(t, func(c *Config) { c.Authorizer = current })
	server.store.register(t, "web", "web-1")
	for _, path := range []string{"/v1/health/service/web?cached", "/v1/catalog/services?cached"} {
		if a := agent.want("GET", path, "", 200, "*"); !strings.Contains(a.body, `"web`) {
			t.Fatalf("%s at first: %s", path, a.body)
		}
	}
	index := agent.do("GET", "/v1/health/service/web?cached", "").header.Get("X-Consul-Index")
	parked := make(chan response, 1)
	go func() { parked <- agent.do("GET", "/v1/health/service/web?cached&wait=5m&index="+index, "") }()
	mu.Lock()
	now = narrow
	mu.Unlock()
	for _, path := range []string{"/v1/health/service/web?cached", "/v1/catalog/services?cached"} {
		if a := agent.want("GET", path, "", 200, "*"); strings.Contains(a.body, `"web`) || a.header.Get("X-Cache") != "MISS" {
			t.Errorf("%s with fewer rights: %s %s", path, a.header.Get("X-Cache"), a.body)
		}
	}
	if n := agent.api.Cache().Len(); n != 2 {
		t.Errorf("%d questions are kept", n)
	}
	server.store.register(t, "web", "web-2") // ends the wait
	if a := <-parked; strings.Contains(a.body, `"web`) {
		t.Errorf("the parked query got %s", a.body)
	}
}
