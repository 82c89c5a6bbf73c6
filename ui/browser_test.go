package ui_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/ui"
)

const many = 60_000 // rows, as a fleet has them

// topic is one whose value the test sets.
type topic struct {
	mu    sync.Mutex
	index uint64
	value func(url.Values) any
	moved chan struct{}
}

func newTopic(value func(url.Values) any) *topic {
	return &topic{index: 1, value: value, moved: make(chan struct{})}
}

func (s *topic) Wait(ctx context.Context, _ uiapi.Person, q url.Values, since uint64) (any, uint64, error) {
	for {
		s.mu.Lock()
		index, moved := s.index, s.moved
		s.mu.Unlock()
		if index != since {
			return s.value(q), index, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

func (s *topic) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index++
	close(s.moved)
	s.moved = make(chan struct{})
}

type fields map[string]any

// stage is a server with a page, and a browser that looks at it.
type stage struct {
	t        *testing.T
	ctx      context.Context
	addr     string // at which it listens
	also     string // an address beside it that the browser may go to
	api      *uiapi.API
	server   *http.Server
	overview *topic
	services *topic

	mu    sync.Mutex
	words string // of the overview
	flips int    // are added to what the list tells of each service
	wrong []string
}

func open(t *testing.T) *stage {
	t.Helper()
	return openAt(t, "127.0.0.1")
}

// openAt opens the page at a name of the host.
func openAt(t *testing.T, host string) *stage {
	t.Helper()
	chromium(t)
	s := &stage{t: t, words: "3 servers"}
	s.overview = newTopic(func(url.Values) any {
		s.mu.Lock()
		defer s.mu.Unlock()
		return fields{"planes": []fields{{"name": "Catalog", "state": "passing", "words": s.words, "path": "/services"}},
			"findings": []fields{{"id": "disk-slow", "severity": "warning", "title": "the disk of s1 is slow",
				"since": time.Now().UnixMilli()}}, "services": []fields{}}
	})
	s.services = newTopic(func(q url.Values) any {
		from, _ := strconv.Atoi(q.Get("from"))
		rows, _ := strconv.Atoi(q.Get("rows"))
		if rows == 0 || rows > 500 {
			t.Errorf("the page asks for %q rows", q.Get("rows"))
		}
		s.mu.Lock()
		instances := 1000 + s.flips
		s.mu.Unlock()
		list := []fields{}
		for i := range many {
			name := fmt.Sprintf("service-%05d", i)
			if i == 0 {
				name = `<img src=x onerror=alert(1)>`
			}
			if strings.Contains(name, q.Get("q")) {
				list = append(list, fields{"name": name, "instances": instances, "passing": 1, "warning": 0, "critical": i % 2,
					"tags": []string{"v1"}})
			}
		}
		matching := len(list)
		list = list[min(from, matching):min(from+rows, matching)]
		return fields{"rows": list, "from": min(from, matching), "matching": matching, "all": many}
	})
	s.api = uiapi.New(uiapi.Config{
		Login: func(_ *http.Request, c *uiapi.Credentials) (uiapi.Person, error) {
			if c.Token != "right" {
				return uiapi.Person{}, errkind.New(errkind.Denied, "this token is not known")
			}
			return uiapi.Person{Name: "operator"}, nil
		},
		Open: func(*http.Request) *uiapi.Person { return nil },
		Topics: map[string]uiapi.Topic{"overview": s.overview, "services": s.services,
			"mesh": newTopic(meshOf), "standing": newTopic(standing),
			"instances": newTopic(func(url.Values) any {
				return fields{"rows": []fields{}, "from": 0, "matching": 0, "all": 0}
			})},
		Search: func(context.Context, uiapi.Person, string) ([]uiapi.Place, error) {
			return []uiapi.Place{{Name: "service-00007", Kind: "service", Path: "/services/service-00007"}}, nil
		},
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(s.addr)
	s.also = "http://" + net.JoinHostPort(host, port)
	s.start(l)
	t.Cleanup(func() { _ = s.server.Close() })

	s.browse(s.also+"/ui", chromedp.Flag("host-resolver-rules", "MAP "+host+" 127.0.0.1"))
	return s
}

// meshOf is a map of a service, a group and a service of another datacenter; of the group it is one of two services.
func meshOf(q url.Values) any {
	places := []fields{{"id": "web", "name": "web", "x": 0, "y": 0}, {"id": "pay-*", "prefix": "pay-", "services": 120,
		"within": 7, "x": 1, "y": 0}, {"id": "db@dc2", "name": "db", "dc": "dc2", "x": 2, "y": 0}}
	lines := []fields{{"from": 0, "to": 1, "calls": 30, "denied": 4}, {"from": 1, "to": 2, "calls": 1}}
	if q.Get("prefix") == "pay-" {
		places, lines = []fields{{"id": "web", "name": "web", "x": 0, "y": 0}, {"id": "pay-api", "name": "pay-api", "x": 1,
			"y": 0}}, []fields{{"from": 0, "to": 1, "calls": 1, "denied": 1}}
	}
	return fields{"topology": fields{"calls": []fields{}, "more": 12, "map": fields{"columns": 3, "rows": 1,
		"services": 122, "places": places, "lines": lines}}, "intentions": []fields{}, "problems": fields{},
		"healths": fields{"pay-*": fields{"instances": 9, "passing": 8, "warning": 0, "critical": 1}}}
}

// standing is that of a mesh in which one certificate ended.
func standing(url.Values) any {
	return fields{"Proxies": fields{}, "List": []fields{}, "Partly": false, "Certs": []fields{}, "More": 0,
		"Leaves": fields{"pay-api": fields{"ended": 1}}, "Silent": []fields{}, "Problems": fields{}}
}

// chromium is the browser's path.
func chromium(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		loud.Skip(t, "the page in a browser: there is no chromium")
	}
	return path
}

// browse opens an address in a browser of the stage's own.
func (s *stage) browse(address string, more ...chromedp.ExecAllocatorOption) {
	s.t.Helper()
	options := append(append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(s.t)),
		chromedp.NoSandbox, chromedp.WindowSize(1280, 800)), more...)
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	s.t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	s.t.Cleanup(end)
	s.ctx = ctx
	if err := chromedp.Listen(ctx, s.heard); err != nil {
		s.t.Fatal(err)
	}
	s.run(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, log.Enable, cdp.Empty{})
		return err
	}), chromedp.Navigate(address))
}

// well fails for what was heard that must not happen.
func (s *stage) well() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.wrong {
		s.t.Error(w)
	}
}

// flip changes what the list tells of each service.
func (s *stage) flip() {
	s.mu.Lock()
	s.flips++
	s.mu.Unlock()
	s.services.change()
}

func (s *stage) start(l net.Listener) {
	mux := http.NewServeMux()
	mux.Handle("/ui", ui.Handler())
	mux.Handle("/ui/", ui.Handler())
	mux.Handle("/ui/api/", s.api)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.server.Serve(l) }() // until Close
}

// heard collects what must not happen: errors on the console, requests to elsewhere, violations of the policy.
func (s *stage) heard(event any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		s.wrong = append(s.wrong, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		// the browser's own words for 401 and an unreachable server
		if e.Entry.Level != log.EntryLevelVerbose && e.Entry.Source != log.EntrySourceNetwork {
			s.wrong = append(s.wrong, "log: "+e.Entry.Text)
		}
	case *runtime.EventConsoleAPICalled:
		s.wrong = append(s.wrong, fmt.Sprintf("console: %s", e.Type))
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, "http://"+s.addr+"/") && !strings.HasPrefix(e.Request.URL, "data:") &&
			(s.also == "" || !strings.HasPrefix(e.Request.URL, s.also)) {
			s.wrong = append(s.wrong, "a request to "+e.Request.URL)
		}
	}
}

func (s *stage) run(actions ...chromedp.Action[chromedp.Void]) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, polltest.Deadline)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		s.t.Fatal(err)
	}
}

// see waits until an element with the text is there.
func (s *stage) see(selector, text string) {
	s.t.Helper()
	polltest.Until(s.t, func() bool {
		found, err := evaluate[string](s, fmt.Sprintf(
			"[...document.querySelectorAll(%q)].map(e => e.textContent).join('\\n')", selector))
		return err == nil && strings.Contains(found, text)
	}, "%q in %s", text, selector)
}

func evaluate[T any](s *stage, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(s.ctx, polltest.Deadline)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

func (s *stage) number(expression string) int {
	s.t.Helper()
	n, err := evaluate[int](s, expression)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *stage) keys(keys string) {
	s.t.Helper()
	s.run(chromedp.KeyEvent(keys))
}

// press types one key as a keyboard does: the page may keep its letter from what it moved the focus to.
func (s *stage) press(key string) {
	s.t.Helper()
	s.run(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown,
			input.DispatchKeyEventTypeKeyUp} {
			p := input.DispatchKeyEventParams{Type: kind, Key: key}
			if kind == input.DispatchKeyEventTypeKeyDown {
				p.Text = key
			}
			if _, err := cdp.Call(ctx, tab, input.DispatchKeyEvent, p); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestByKeyboard walks through the page as an operator does, without a mouse.
func TestByKeyboard(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.see("h1", "Log in")
	s.run(chromedp.Focus("input[name=token]"))
	s.keys("wrong" + kb.Enter)
	s.see("[role=alert]", "this token is not known")
	if _, err := evaluate[string](s, "document.querySelector('input[name=token]').value = ''"); err != nil {
		t.Fatal(err)
	}
	s.run(chromedp.Focus("input[name=token]"))
	s.keys("right" + kb.Enter)
	s.see(".planes", "3 servers")
	s.see(".findings", "the disk of s1 is slow")

	// Live: what changes is shown without anybody's doing.
	s.mu.Lock()
	s.words = "2 of 3 servers"
	s.mu.Unlock()
	s.overview.change()
	s.see(".planes", "2 of 3 servers")

	// 60,000 rows, of which few are in the document; hostile names are text.
	s.keys("gs")
	s.see(".count", "60,000 rows")
	s.see(".row", "<img src=x onerror=alert(1)>")
	if n := s.number("document.querySelectorAll('.row').length"); n > 100 {
		t.Errorf("%d rows are in the document", n)
	}
	if n := s.number("document.images.length"); n != 0 {
		t.Error("a service's name became markup")
	}
	s.keys("jjj")
	s.see(".row.selected", "service-00002")
	// A change moves neither the selection nor the scroll.
	s.number("document.querySelector('.body').scrollTop = 28000")
	s.see(".row", "service-01005")
	s.services.change()
	s.see(".age", "as of 0.")
	if n := s.number("document.querySelector('.body').scrollTop"); n != 28000 {
		t.Errorf("the scroll moved to %d", n)
	}
	// The filter is the page's address.
	s.press("/")
	s.keys("00042")
	s.see(".count", "1 rows")
	if at, err := evaluate[string](s, "location.href"); err != nil || !strings.HasSuffix(at, "/ui/services?q=00042") {
		t.Errorf("the address is %s, %v", at, err)
	}
	s.keys(kb.Escape)
	s.press("?")
	s.see("dialog", "Go to anything")
	s.keys(kb.Escape)
	s.run(chromedp.Reload())
	s.see(".count", "1 rows")
	s.keys("j")
	s.keys(kb.Enter)
	s.see("h1", "service-00042")
	// The map is drawn as the server lays it out; a group says what is in it, and leads there.
	s.keys("gt")
	s.see(".map", "pay-* 120: critical; 7 calls stay in it; certificates: 1 ended")
	s.see(".map", "web calls pay-* 120: 30 calls, 4 denied")
	s.see(".map", "db in dc2: unknown")
	s.see("main", "and 12 more calls")
	if n := s.number("document.querySelectorAll('.map path.part').length"); n != 1 {
		t.Errorf("%d lines are denied in part", n)
	}
	s.run(chromedp.Focus(".map a[href*='p=pay-']"))
	s.keys(kb.Enter)
	s.see("h1", "Services pay-*")
	s.see(".map", "web calls pay-api, 1 denied")
	s.well()
}

// TestServerAway: a server that goes is said to be away, with how old the page is; when it is back, the page goes on,
// and what did not change meanwhile is no longer called old.
func TestServerAway(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.see("h1", "Log in")
	s.run(chromedp.Focus("input[name=token]"))
	s.keys("right" + kb.Enter)
	s.see(".planes", "3 servers")
	s.away(func() {})
	polltest.Until(t, func() bool {
		age, err := evaluate[string](s, "document.querySelector('.age').textContent")
		return err == nil && strings.HasPrefix(age, "as of")
	}, "what did not change to be live again")
	s.away(func() {
		s.mu.Lock()
		s.words = "3 servers again"
		s.mu.Unlock()
		s.overview.change()
	})
	s.see(".planes", "3 servers again")
}

// away ends the server until the page says so, does something, and starts it again.
func (s *stage) away(meanwhile func()) {
	s.t.Helper()
	_ = s.server.Close()
	s.see(".age", "stale: as of")
	meanwhile()
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.start(l)
}
