package uiapi

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// counter is a topic whose value is its index, for those whose token is "right".
type counter struct {
	mu     sync.Mutex
	index  uint64
	moved  chan struct{}
	denied bool
}

func (c *counter) Wait(ctx context.Context, p Person, query url.Values, since uint64) (any, uint64, error) {
	for {
		c.mu.Lock()
		index, moved, denied := c.index, c.moved, c.denied
		c.mu.Unlock()
		if denied || p.Catalog != "right" {
			return nil, 0, errkind.Errorf(errkind.Denied, "no rights on %s", query.Get("of"))
		}
		if index != since {
			return map[string]uint64{"n": index}, index, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

func (c *counter) change(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
	close(c.moved)
	c.moved = make(chan struct{})
}

type served struct {
	*httptest.Server
	t       *testing.T
	clock   *clock.Fake
	counter *counter
	api     *API
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{t: t, clock: clock.NewFake(time.Unix(1e9, 0)), counter: &counter{index: 1, moved: make(chan struct{})}}
	s.api = New(Config{
		Clock: s.clock,
		Login: func(_ *http.Request, c *Credentials) (Person, error) {
			if c.User != "" {
				return Person{}, dueOf(c.User)
			}
			if c.Token == "" {
				return Person{}, errkind.New(errkind.Denied, "token: it is empty")
			}
			return Person{Name: "of " + c.Token, Catalog: c.Token}, nil
		},
		Open:   func(*http.Request) *Person { return nil },
		Topics: map[string]Topic{"counter": s.counter},
		Search: func(_ context.Context, p Person, text string) ([]Place, error) {
			return []Place{{Name: text, Kind: p.Name, Path: "/"}}, nil
		},
		Planes: map[string]Plane{"catalog": {
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.Method+" "+r.RequestURI+" "+r.Header.Get("X-Consul-Token")+r.Header.Get("Cookie"))
			}),
			Attach: func(r *http.Request, p *Person) error { r.Header.Set("X-Consul-Token", p.Catalog); return nil },
		}},
	})
	s.Server = httptest.NewServer(s.api)
	t.Cleanup(s.Close)
	return s
}

// browser is a client with cookies of its own.
func (s *served) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Transport: &http.Transport{}}
	s.t.Cleanup(c.CloseIdleConnections)
	return c
}

// do returns the status and the body of an answer.
func (s *served) do(c *http.Client, method, path, body string, headers ...string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	a, err := c.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return a.StatusCode, strings.TrimSpace(string(text))
}

func (s *served) want(c *http.Client, method, path, body string, status int, text string, headers ...string) {
	s.t.Helper()
	if gotStatus, got := s.do(c, method, path, body, headers...); gotStatus != status || got != text {
		s.t.Errorf("%s %s: %d %q, want %d %q", method, path, gotStatus, got, status, text)
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.browser()
	s.want(b, "GET", "/ui/api/me", "", 401, "log in first")
	s.want(b, "GET", "/ui/api/topic/counter", "", 401, "log in first")
	s.want(b, "POST", "/ui/api/login", `{"token":""}`, 403, "token: it is empty")
	s.want(b, "POST", "/ui/api/login", `{"token":1}`, 400,
		"the request's body: json: cannot unmarshal number into Go struct field Credentials.token of type string")
	s.want(b, "POST", "/ui/api/login", `{"token":"right"}`, 200, `{"name":"of right"}`)
	s.want(b, "GET", "/ui/api/me", "", 200, `{"name":"of right","open":false}`)
	s.want(b, "GET", "/ui/api/topic/counter", "", 200, `{"topic":"counter","index":1,"value":{"n":1}}`)
	s.want(b, "GET", "/ui/api/topic/other", "", 404, `no topic "other": there are counter`)
	s.want(b, "GET", "/ui/api/search?q=x", "", 200, `[{"name":"x","kind":"of right","path":"/"}]`)
	s.want(b, "PUT", "/ui/api/as/catalog/v1/kv/a%2Fb?cas=1", "v", 200, "PUT /v1/kv/a%2Fb?cas=1 right")
	s.want(b, "GET", "/ui/api/as/other/v1/kv/a", "", 404, "no plane other")

	other := s.browser()
	s.want(other, "POST", "/ui/api/login", `{"token":"wrong"}`, 200, `{"name":"of wrong"}`)
	s.want(other, "GET", "/ui/api/topic/counter?of=web", "", 403, "no rights on web")

	s.want(b, "POST", "/ui/api/logout", "", 204, "")
	s.want(b, "GET", "/ui/api/me", "", 401, "log in first")
	s.want(other, "GET", "/ui/api/me", "", 200, `{"name":"of wrong","open":false}`)
}

func TestSessionEnds(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.browser()
	s.want(b, "POST", "/ui/api/login", `{"token":"right"}`, 200, `{"name":"of right"}`)
	for range 3 { // used, it lives on
		s.clock.Advance(idleTime - time.Minute)
		s.want(b, "GET", "/ui/api/me", "", 200, `{"name":"of right","open":false}`)
	}
	s.clock.Advance(time.Hour)
	s.want(b, "GET", "/ui/api/me", "", 401, "log in first") // but not for ever
	s.want(b, "POST", "/ui/api/login", `{"token":"right"}`, 200, `{"name":"of right"}`)
	s.clock.Advance(idleTime)
	s.want(b, "GET", "/ui/api/me", "", 401, "log in first")
}

// TestFixation: who plants a session in a browser has none after the login.
func TestFixation(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.browser()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.want(b, "POST", "/ui/api/login", `{"token":"planted"}`, 200, `{"name":"of planted"}`)
	planted := b.Jar.Cookies(u)
	s.want(b, "POST", "/ui/api/login", `{"token":"right"}`, 200, `{"name":"of right"}`)
	thief := s.browser()
	thief.Jar.SetCookies(u, planted)
	s.want(thief, "GET", "/ui/api/me", "", 401, "log in first")
}

func TestCookie(t *testing.T) {
	t.Parallel()
	s := NewSessions(clock.NewFake(time.Unix(1e9, 0)), nil)
	c := s.Begin(httptest.NewRequest(http.MethodPost, "https://x/ui/api/login", nil), Person{Name: "a"})
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || len(c.Value) < 26 {
		t.Errorf("%v", c)
	}
}

// TestSessionsAreBounded: nobody's sessions push those of others out.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	s := NewSessions(clock.NewFake(time.Unix(1e9, 0)), nil)
	login := func(name string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.AddCookie(s.Begin(httptest.NewRequest(http.MethodPost, "/", nil), Person{Name: name}))
		return r
	}
	first := login("a")
	for i := range 3 * maxOfOne {
		login("cheap")
		if i == 0 {
			first = login("a")
		}
	}
	if _, _, ok := s.Of(first); !ok {
		t.Error("somebody else's logins ended the session")
	}
	if n := len(s.live); n > maxOfOne+2 {
		t.Errorf("%d sessions", n)
	}
}

// TestOtherSites: another site's page gets nothing and does nothing.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.browser()
	s.want(b, "POST", "/ui/api/login", `{"token":"right"}`, 200, `{"name":"of right"}`)
	for _, site := range []string{"cross-site", "same-site"} {
		s.want(b, "GET", "/ui/api/me", "", 403, "this page belongs to another site", "Sec-Fetch-Site", site)
		s.want(b, "PUT", "/ui/api/as/catalog/v1/kv/a", "v", 403, "this page belongs to another site",
			"Sec-Fetch-Site", site)
	}
	if status, _ := s.do(b, "PUT", "/ui/api/as/catalog/v1/kv/a", "v", "Origin", "https://evil.example"); status != 403 {
		t.Errorf("a write of another origin: %d", status)
	}
	s.want(b, "PUT", "/ui/api/as/catalog/v1/kv/a", "v", 200, "PUT /v1/kv/a right", "Sec-Fetch-Site", "same-origin")
}

// open begins a stream and returns what reads its lines, heartbeats left out.
func (s *served) open(ctx context.Context, c *http.Client, body string) func() (Line, error) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/ui/api/stream", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := c.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = a.Body.Close() })
	if a.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(a.Body)
		s.t.Fatalf("%d %s", a.StatusCode, text)
	}
	lines := bufio.NewScanner(a.Body)
	return func() (line Line, err error) {
		for lines.Scan() {
			line = Line{}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Topic != "" {
				return line, err
			}
		}
		return line, io.EOF
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.browser()
	s.want(b, "POST", "/ui/api/stream", `{"topics":[{"name":"counter"}]}`, 401, "log in first")
	s.want(b, "POST", "/ui/api/login", `{"token":"right"}`, 200, `{"name":"of right"}`)
	s.want(b, "POST", "/ui/api/stream", `{"topics":[]}`, 400, "topics: 0, want 1 to 64")
	next := s.open(t.Context(), b, `{"topics":[{"name":"counter?of=a"},{"name":"nothing"}]}`)
	seen := map[string]Line{}
	for range 2 {
		line, err := next()
		if err != nil {
			t.Fatal(err)
		}
		seen[line.Topic] = line
	}
	if l := seen["counter?of=a"]; l.Index != 1 || l.Error != "" {
		t.Errorf("%+v", l)
	}
	if l := seen["nothing"]; l.Error != `no topic "nothing": there are counter` {
		t.Errorf("%+v", l)
	}
	// A hundred changes in a row are told in a few lines, the newest last.
	for range 100 {
		s.counter.change(func() { s.counter.index++ })
	}
	told := 0
	for {
		line, err := next()
		if err != nil {
			t.Fatal(err)
		}
		if told++; line.Index == 101 {
			break
		}
	}
	if told > 3 {
		t.Errorf("%d lines for changes within a moment", told)
	}
	// A page that has the newest is told nothing until something changes.
	again := s.open(t.Context(), b, `{"topics":[{"name":"counter","since":101}]}`)
	s.counter.change(func() { s.counter.index++ })
	if line, err := again(); err != nil || line.Index != 102 {
		t.Errorf("%+v %v", line, err)
	}
	// Rights that are taken end what is told.
	s.counter.change(func() { s.counter.denied = true })
	for {
		line, err := again()
		if err != nil {
			t.Fatal(err)
		}
		if line.Error == "no rights on " {
			break
		}
	}
}

// TestStreamEndsWithItsSession: a logout in one tab ends what the others read.
func TestStreamEndsWithItsSession(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.browser()
	s.want(b, "POST", "/ui/api/login", `{"token":"right"}`, 200, `{"name":"of right"}`)
	next := s.open(t.Context(), b, `{"topics":[{"name":"counter"}]}`)
	if _, err := next(); err != nil {
		t.Fatal(err)
	}
	s.want(b, "POST", "/ui/api/logout", "", 204, "")
	if line, err := next(); err != io.EOF {
		t.Errorf("%+v %v", line, err)
	}
	polltest.Until(t, func() bool { return s.api.streams.Load() == 0 }, "the stream's end")
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.browser()
	s.want(b, "POST", "/ui/api/login", `{"token":"right"}`, 200, `{"name":"of right"}`)
	var many []string
	for i := range maxTopics + 1 {
		many = append(many, `{"name":"counter?of=`+strconv.Itoa(i)+`"}`)
	}
	s.want(b, "POST", "/ui/api/stream", `{"topics":[`+strings.Join(many, ",")+`]}`, 400, "topics: 65, want 1 to 64")
	s.api.streams.Store(maxStreams)
	s.want(b, "POST", "/ui/api/stream", `{"topics":[{"name":"counter"}]}`, 503,
		"this server has as many open pages as it can serve")
	s.api.streams.Store(0)
	if status, _ := s.do(b, "POST", "/ui/api/login", strings.Repeat("x", maxBody+1)); status != 400 {
		t.Errorf("a body without end: %d", status)
	}
}

// TestHeartbeat: a heartbeat names what was looked at since the last one and has not changed, and nothing of which a
// newer line is on the way.
func TestHeartbeat(t *testing.T) {
	l := &lines{next: map[string]Line{}, same: map[string]unchanged{}, some: make(chan struct{}, 1)}
	l.keep("quiet", unchanged{7, time.Now().Add(-3 * time.Second)})
	l.keep("busy", unchanged{1, time.Now()})
	l.put(Line{Topic: "busy", Index: 2})
	beat := l.beat()
	if same := beat.Same["quiet"]; len(beat.Same) != 1 || same.Index != 7 || same.AgeMillis < 3000 || beat.Topic != "" {
		t.Errorf("the heartbeat is %+v", beat)
	}
	if again := l.beat(); len(again.Same) != 0 {
		t.Errorf("the next one is %+v", again)
	}
}
