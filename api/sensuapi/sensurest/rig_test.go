package sensurest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"corbel.dev/corbel/api/sensuapi"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/ingest/ingesttest"
	"corbel.dev/corbel/monitor/logins"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/resources/resourcestest"
	"corbel.dev/corbel/monitor/subscribers"
	"corbel.dev/corbel/monitor/users"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	adminPassword = "P@ssw0rd!"
	adminKey      = "1f5d9a1e-6f6c-4a0e-9f0b-0c6a2f6f9a01"
)

// rig is the API over a real plane without servers.
type rig struct {
	t         *testing.T
	url       string
	resources *resources.Resources
	ingest    *ingest.Ingest
	logins    *logins.Logins
	tail      *subscribers.Subscribers
	now       atomic.Int64 // seconds to add to the clock
	writes    *atomic.Int64
	asked     chan string            // checks to run now
	away      atomic.Pointer[string] // the entity whose server does not answer
	states    atomic.Int64           // questions for states of entities
}

// servers are what events are asked of; one of them may not answer.
type servers struct {
	ingest.Local
	away  *atomic.Pointer[string]
	asked *atomic.Int64
}

func (s servers) Events(ctx context.Context, namespace, entity string) ([]*ingest.Published, error) {
	if away := s.away.Load(); away != nil && *away == entity {
		return nil, errkind.Errorf(errkind.Unavailable, "the server s2 has these events, and does not answer")
	}
	return s.Local.Events(ctx, namespace, entity)
}

func (s servers) List(ctx context.Context, r ingest.Range) iter.Seq2[*ingest.Published, error] {
	return func(yield func(*ingest.Published, error) bool) {
		for p, err := range s.Local.List(ctx, r) {
			if away := s.away.Load(); err == nil && away != nil && *away == p.Entity {
				yield(nil, errkind.Errorf(errkind.Unavailable, "the server s2 has a part of the events, and does not answer"))
				return
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

func (s servers) EntityStates(ctx context.Context, names []ingest.EntityName) ([]*monitor.EntityState, error) {
	s.asked.Add(1)
	if away := s.away.Load(); away != nil &&
		slices.ContainsFunc(names, func(n ingest.EntityName) bool { return n.Name == *away }) {
		return nil, errkind.Errorf(errkind.Unavailable, "the server s2 has a part of the entities, and does not answer")
	}
	return s.Local.EntityStates(ctx, names)
}

func (s servers) EntityState(ctx context.Context, namespace, entity string) (*monitor.EntityState, error) {
	s.asked.Add(1)
	return s.Local.EntityState(ctx, namespace, entity)
}

func newRig(t *testing.T) *rig { return newRigOf(t, subscribers.Config{}) }

func newRigOf(t *testing.T, followers subscribers.Config, change ...func(*Config)) *rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	config, direct := resourcestest.New()
	g := &rig{t: t, resources: config, writes: &direct.Writes, asked: make(chan string, 10)}
	clock := func() time.Time { return time.Now().Add(time.Duration(g.now.Load()) * time.Second) }
	ops, err := users.Seed("admin", adminPassword, adminKey, bcrypt.MinCost, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.resources.Write(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	g.ingest, err = ingest.New(ingesttest.Config(log, &ingesttest.Double{T: t, Resources: g.resources}))
	if err != nil {
		t.Fatal(err)
	}
	g.tail = subscribers.New(followers, g.ingest.Follow)
	if g.logins, err = logins.New(logins.Config{Resources: g.resources, Now: clock}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Resources: g.resources, Users: users.New(users.Config{Resources: g.resources, Cost: bcrypt.MinCost}),
		Logins: g.logins, Events: servers{ingest.Local{Ingest: g.ingest}, &g.away, &g.states}, Follow: g.tail.Follow,
		Now: clock, Log: log,
		Execute: func(_ context.Context, namespace, check string, subscriptions []string, creator,
			reason string) (int64, error) {
			g.asked <- fmt.Sprintf("%s/%s %v by %s: %s", namespace, check, subscriptions, creator, reason)
			return 77, nil
		},
		Cluster: func() sensuapi.Cluster {
			id := "11111111-2222-3333-4444-555555555555"
			return sensuapi.Cluster{ID: id, Self: id, Term: 3, Members: []sensuapi.Member{{ID: id, Name: "s1"}}}
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	server := httptest.NewServer(New(cfg))
	g.url = server.URL
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.ingest.Run(ctx) }()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		cancel()
		if err := <-done; err != nil && !errkind.Is(err, errkind.Unavailable) {
			t.Error(err)
		}
	})
	return g
}

// answer is what came of a request.
type answer struct {
	code   int
	header http.Header
	body   string
}

// key and bearer are values of Authorization.
func key(k string) string      { return "Key " + k }
func bearer(tok string) string { return "Bearer " + tok }

func (g *rig) send(method, path, auth, body string, headers ...string) answer {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, strings.TrimSpace(string(b))}
}

// do asks as the administrator.
func (g *rig) do(method, path, body string, headers ...string) answer {
	g.t.Helper()
	return g.send(method, path, key(adminKey), body, headers...)
}

// want asks as the administrator and wants a status.
func (g *rig) want(code int, method, path, body string, headers ...string) answer {
	g.t.Helper()
	a := g.do(method, path, body, headers...)
	if a.code != code {
		g.t.Errorf("%s %s: %d %s, not %d", method, path, a.code, a.body, code)
	}
	return a
}

func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
}

// error returns an error body's text and code, whichever way its names are written.
func (a answer) error(t *testing.T) (text string, code int) {
	t.Helper()
	var e struct {
		Message string
		Code    *int
	}
	a.into(t, &e)
	if e.Code == nil || e.Message == "" {
		t.Fatalf("%s is no error body", a.body)
	}
	return e.Message, *e.Code
}

// names lists metadata.name of a list.
func (a answer) names(t *testing.T) (out []string) {
	t.Helper()
	var list []struct {
		Name     string
		Username string
		Metadata struct{ Name string }
	}
	a.into(t, &list)
	for _, o := range list {
		out = append(out, o.Metadata.Name+o.Name+o.Username)
	}
	return out
}

func (g *rig) login(user, password string) logins.Tokens {
	g.t.Helper()
	a := g.send("GET", "/auth", basic(user, password), "")
	if a.code != 200 {
		g.t.Fatalf("login of %s: %d %s", user, a.code, a.body)
	}
	var tokens logins.Tokens
	a.into(g.t, &tokens)
	return tokens
}

func basic(user, password string) string {
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, password)
	return r.Header.Get("Authorization")
}

// user makes a user with rules in namespace default.
func (g *rig) user(name string, rules string) logins.Tokens {
	g.t.Helper()
	g.want(201, "POST", "/api/core/v2/users", fmt.Sprintf(`{"username":%q,"password":"long enough"}`, name))
	if rules != "" {
		g.want(201, "PUT", "/api/core/v2/namespaces/default/roles/"+name, fmt.Sprintf(`{"rules":[%s]}`, rules))
		g.want(201, "PUT", "/api/core/v2/namespaces/default/rolebindings/"+name,
			fmt.Sprintf(`{"subjects":[{"type":"User","name":%q}],"role_ref":{"type":"Role","name":%q}}`, name, name))
	}
	return g.login(name, "long enough")
}
