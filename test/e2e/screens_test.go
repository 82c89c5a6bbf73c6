package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
)

// hostile is a name that would become markup where a page builds any from text.
const hostile = `<img src=x onerror=alert(1)>`

// viewer is a browser that looks at the web UI of a dev server.
type viewer struct {
	t    testing.TB
	base string // of the HTTP port
	ctx  context.Context
	env  []string // of a shell into which its commands are pasted

	mu    sync.Mutex
	wrong []string
}

// viewedDev is a dev server whose ports are kept when it is started again: HTTP, RPC, gossip, secrets, monitor, its
// agents, and jobs.
type viewedDev struct {
	t     testing.TB
	ports [7]int
	args  []string
	cmd   *exec.Cmd
	out   bytes.Buffer
}

func newDev(t testing.TB, args ...string) *viewedDev {
	t.Helper()
	d := &viewedDev{t: t, args: args}
	for i := range d.ports {
		var err error
		if d.ports[i], err = freePort(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		d.end(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("%s", d.out.Bytes())
		}
	})
	return d
}

func (d *viewedDev) base() string { return fmt.Sprintf("http://127.0.0.1:%d", d.ports[0]) }

// start starts it and waits for all planes.
func (d *viewedDev) start() {
	d.t.Helper()
	p := &d.ports
	d.cmd = exec.Command(filepath.Join(binDir, "corbel"), append([]string{"dev", "--log-level", "error", "--node", "dev",
		"--http-port", strconv.Itoa(p[0]), "--dns-port", "-1", "--server-port", strconv.Itoa(p[1]),
		"--serf-lan-port", strconv.Itoa(p[2]), "--hcl", fmt.Sprintf("jobs { port = %d }\nports { secrets = %d, "+
			"monitor = %d, monitor_agents = %d, serf_wan = -1, grpc = -1, grpc_tls = -1 }", p[6], p[3], p[4],
			p[5])}, d.args...)...)
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	polltest.NoError(d.t, time.Minute, func() error {
		_, err := ask(d.base(), "GET", "/ui/api/topic/incidents", "")
		return err
	}, "all planes of dev")
}

// end ends it by a signal and waits for that.
func (d *viewedDev) end(by syscall.Signal) {
	if d.cmd != nil && d.cmd.Process != nil {
		_ = d.cmd.Process.Signal(by)
		_ = d.cmd.Wait()
	}
	d.cmd = nil
}

// startViewed starts dev with something on each of its planes, and tells what a shell needs to know of it.
func startViewed(t *testing.T) (base string, env []string) {
	t.Helper()
	d := newDev(t)
	d.start()
	for _, w := range fleetOfScreens() {
		polltest.NoError(t, time.Minute, func() error {
			_, err := ask(d.base(), w[0], w[1], w[2])
			return err
		}, "%s", w[1])
	}
	return d.base(), environment(t, d.base(), d.ports[3], d.ports[4], d.ports[6])
}

func ask(base, method, path, body string) (string, error) {
	r, err := http.NewRequest(method, base+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s %s", method, path, resp.Status, text)
	}
	return string(text), err
}

// fleetOfScreens are writes that give each screen something to show.
func fleetOfScreens() (list [][3]string) {
	put := func(path, body string, args ...any) {
		list = append(list, [3]string{"PUT", path, fmt.Sprintf(body, args...)})
	}
	class := map[bool]string{true: "app", false: "db"}
	instance := func(n int, service, status, output string) {
		put("/v1/catalog/register", `{"Node":"host-%02d","Address":"10.0.0.%d","NodeMeta":{"class":%q},`+
			`"Service":{"ID":"%s-%d","Service":%q,"Port":8000,"Tags":["eu","v2"]},"Checks":[{"CheckID":"%s-%d","Name":"http",`+
			`"ServiceID":"%s-%d","Status":%q,"Output":%q}]}`, n, n, class[n%3 > 0], service, n, service, service, n, service, n,
			status, output)
	}
	for n := 1; n <= 24; n++ {
		status, output := "passing", "200 OK"
		switch n {
		case 3:
			status, output = "critical", "503 Service Unavailable: the pool of connections to db is exhausted"
		case 7:
			status, output = "warning", "answered after 1.8 s, more than 1 s"
		}
		instance(n, "web", status, output)
	}
	for i, name := range []string{"orders", "billing", "search", "auth", "db", "cache", "mail"} {
		for n := 1; n <= 3+i%3; n++ {
			status, output := "passing", "connected"
			if name == "billing" && n == 2 {
				status, output = "critical", "dial tcp 10.0.0.2:8000: connect: connection refused"
			}
			instance(n, name, status, output)
		}
	}
	put("/v1/catalog/register", `{"Node":"host-01","Address":"10.0.0.1","Service":{"ID":"h","Service":"hostile",`+
		`"Tags":[%q]}}`, hostile)
	put("/v1/catalog/register", `{"Node":%[1]q,"Address":"10.0.0.99","Service":{"ID":"h2","Service":%[1]q},"Checks":[{`+
		`"CheckID":"x","Name":%[1]q,"ServiceID":"h2","Status":"critical","Output":%[2]q}]}`, hostile,
		hostile+" \u202e"+strings.Repeat("x", 1<<16))
	calls := map[string][]string{"web": {"orders", "search", "auth", "db"}, "orders": {"db", "billing"},
		"billing": {"db"}, "auth": {"db", "cache"}}
	for from, all := range calls {
		var upstreams []string
		for i, to := range all {
			upstreams = append(upstreams, fmt.Sprintf(`{"DestinationName":%q,"LocalBindPort":%d}`, to, 9000+i))
			if from != "web" || to != "db" {
				put("/v1/connect/intentions/exact?source="+from+"&destination="+to, `{"Action":"allow"}`)
			}
		}
		put("/v1/catalog/register", `{"Node":"host-01","Address":"10.0.0.1","Service":{"Kind":"connect-proxy",`+
			`"ID":"%s-proxy","Service":"%s-sidecar-proxy","Port":21000,`+
			`"Proxy":{"DestinationServiceName":%q,"Upstreams":[%s]}}}`,
			from, from, from, strings.Join(upstreams, ","))
	}
	put("/v1/connect/intentions/exact?source=web&destination=db", `{"Action":"deny"}`)
	for _, key := range []string{"config/web/limits", "config/web/features", "config/db/pool", "app/motd",
		"app/%3Cimg%20src=x%20onerror=alert(1)%3E"} {
		put("/v1/kv/"+key, `{ "requests": 100 }`)
	}
	put("/v1/config", `{"Kind":"service-defaults","Name":"mail","Protocol":"tcp"}`)
	list = append(list, [3]string{"POST", "/v1/query", `{"Name":"near-db","Service":{"Service":"db","Tags":["v2"]}}`},
		[3]string{"GET", "/v1/agent/connect/ca/leaf/db", ""})
	put("/ui/api/as/monitor/api/core/v2/namespaces/default/filters/third-time", `{"metadata":{"name":"third-time",`+
		`"namespace":"default"},"action":"allow","expressions":["event.check.occurrences >= 3"]}`)
	put("/ui/api/as/monitor/api/core/v2/namespaces/default/handlers/pager", `{"metadata":{"name":"pager",`+
		`"namespace":"default"},"type":"pipe","command":"cat","filters":["third-time"]}`)
	for _, e := range [][4]string{{"host-03", "disk", "2", "/var is 97 % full"}, {"host-05", "backup", "2",
		"no backup for 26 h"}, {"host-07", "ntp", "1", "offset 0.4 s"}, {"host-09", "cert", "1", "ends in 9 days"},
		{"host-11", "mail", "1", hostile}, {"host-12", "long", "1", strings.Repeat("\u202ex", 1<<14)}} {
		handlers := `["pager"]`
		if e[1] == "ntp" {
			handlers = `[]`
		}
		list = append(list, [3]string{"POST", "/ui/api/as/monitor/api/core/v2/namespaces/default/events", fmt.Sprintf(
			`{"entity":{"entity_class":"proxy","metadata":{"name":%q,"namespace":"default"}},"check":{"metadata":{"name":%q,`+
				`"namespace":"default"},"status":%s,"output":%q,"interval":60,"handlers":%s}}`, e[0], e[1], e[2], e[3], handlers)})
	}
	put("/ui/api/as/monitor/api/core/v2/namespaces/default/silenced/entity:host-09:cert",
		`{"metadata":{"name":"entity:host-09:cert","namespace":"default"},"subscription":"entity:host-09","check":"cert",`+
			`"reason":"renewal is booked","expire":7200}`)
	list = append(list, [3]string{"POST", "/ui/api/as/secrets/v1/secret/data/web/db", `{"data":{"password":"hidden"}}`},
		[3]string{"POST", "/ui/api/as/secrets/v1/auth/token/create", `{"policies":["default"],"ttl":"1h"}`})
	return list
}

func view(t testing.TB, base string, more ...chromedp.ExecAllocatorOption) *viewer {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		loud.Skip(t, "the screens of the web UI: there is no chromium")
	}
	v := &viewer{t: t, base: base}
	options := append(append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-quic", true), chromedp.WindowSize(1280, 800)), more...)
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	v.ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	if err := chromedp.Listen(v.ctx, v.heard); err != nil {
		t.Fatal(err)
	}
	v.run(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, log.Enable, cdp.Empty{})
		return err
	}), chromedp.Navigate(base+"/ui"))
	return v
}

// heard collects what must not happen: errors on the console, requests to elsewhere, violations of the policy.
func (v *viewer) heard(event any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		v.wrong = append(v.wrong, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		// No job can have the hostile name: its page asks for it all the same, and browsers log what is not found.
		absent := strings.Contains(e.Entry.URL, "/jobs/v1/job/%3Cimg") && strings.Contains(e.Entry.Text, "404")
		// A wrong passcode is refused, and browsers log that too.
		refused := strings.HasSuffix(e.Entry.URL, "/login/factor") && strings.Contains(e.Entry.Text, "403")
		if e.Entry.Level != log.EntryLevelVerbose && !absent && !refused {
			v.wrong = append(v.wrong, "log: "+e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		v.wrong = append(v.wrong, fmt.Sprintf("console: %s", e.Type))
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, v.base+"/") && !strings.HasPrefix(e.Request.URL, "data:") {
			v.wrong = append(v.wrong, "a request to "+e.Request.URL)
		}
	}
}

func (v *viewer) run(actions ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, polltest.Deadline)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		v.t.Fatal(err)
	}
}

func evaluate[T any](v *viewer, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(v.ctx, polltest.Deadline)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

// see waits until an element with the text is there.
func (v *viewer) see(selector, text string) {
	v.t.Helper()
	polltest.Until(v.t, func() bool {
		found, err := evaluate[string](v, fmt.Sprintf(
			"[...document.querySelectorAll(%q)].map(e => e.textContent).join('\\n')", selector))
		return err == nil && strings.Contains(found, text)
	}, "%q in %s", text, selector)
}

func (v *viewer) keys(keys string) {
	v.t.Helper()
	v.run(chromedp.KeyEvent(keys))
}

// axe runs axe-core, which stands beside the tests and is no part of the page.
func (v *viewer) axe(screen string) {
	v.t.Helper()
	if there, _ := evaluate[bool](v, "typeof axe !== 'undefined'"); !there {
		f, err := os.Open("testdata/axe/axe.min.js.gz")
		if err != nil {
			v.t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			v.t.Fatal(err)
		}
		source, err := io.ReadAll(z)
		if err != nil {
			v.t.Fatal(err)
		}
		if _, err := evaluate[string](v, string(source)+";''"); err != nil {
			v.t.Fatal(err)
		}
	}
	if _, err := evaluate[string](v, `window.found = ''; axe.run().then(r => { window.found = JSON.stringify(
		r.violations.map(v => v.id + ': ' + v.nodes.map(n =>
			n.html.slice(0, 120) + ' ' + n.failureSummary).slice(0, 3).join(' | '))) }); ''`); err != nil {
		v.t.Fatal(err)
	}
	var violations []string
	polltest.Until(v.t, func() bool {
		text, err := evaluate[string](v, "window.found")
		return err == nil && text != "" && json.Unmarshal([]byte(text), &violations) == nil
	}, "axe on %s", screen)
	for _, one := range violations {
		v.t.Errorf("%s: axe: %s", screen, one)
	}
}

// scheme sets whether the person wants it dark.
func (v *viewer) scheme(name string) {
	v.run(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
		return err
	}))
}

// width sets the width of the window.
func (v *viewer) width(pixels int64) {
	v.run(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: pixels, Height: 800, DeviceScaleFactor: 1})
		return err
	}))
}

// shoot keeps a picture of a screen for docs/ui.md where the person who runs the test asks for them.
func (v *viewer) shoot(name string) {
	v.t.Helper()
	dir := os.Getenv("CORBEL_SCREENSHOTS")
	if dir == "" {
		return
	}
	v.run(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		r, err := cdp.Call(ctx, tab, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: "png"})
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name+".png"), r.Data, 0o644)
	}))
}

// screens are the keys that lead to each, and what a reader finds there.
var screens = []struct{ key, name, selector, text string }{
	{"o", "overview", ".planes", "failing checks"},
	{"s", "services", ".row", "billing"},
	{"n", "nodes", ".row", "host-03"},
	{"f", "federation", "main", "There is one datacenter"},
	{"t", "topology", ".grid", "web"},
	{"p", "propagation", "main", "No change has reached a proxy"},
	{"e", "secrets", ".grid", "secret/"},
	{"i", "incidents", ".row", "97 % full"},
	{"j", "jobs", "main", "No job is registered"},
	{"u", "usage", ".grid", "service_instances"},
	{"d", "doctor", "h1", "Doctor"},
	{"k", "kv", ".row", "config/"},
	{"c", "cluster", ".grid", "catalog"},
}

// TestScreens walks through all screens of the web UI of a real dev server by keyboard alone, with what a reader of the
// screen must find there.
func TestScreens(t *testing.T) {
	base, _ := startViewed(t)
	v := view(t, base)
	v.scheme("light")
	for _, screen := range screens {
		v.keys("g" + screen.key)
		v.see(screen.selector, screen.text)
		v.axe(screen.name)
		v.shoot(screen.name)
	}
	v.writesByKeyboard()
	v.fiveQuestions()
	v.looksCloser()
	v.worksOnJobs()
	v.versionsOfSecrets()
	v.hostileNames()
	v.otherWords()
	v.scheme("dark")
	v.keys("go")
	v.see(".planes", "failing checks")
	v.axe("overview, dark")
	v.shoot("overview-dark")
	v.width(320)
	v.axe("overview, 320 px")
	v.shoot("overview-narrow")
	if n, err := evaluate[int](v, "document.images.length"); err != nil || n != 0 {
		t.Errorf("%d images: a name became markup, %v", n, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, w := range v.wrong {
		t.Error(w)
	}
}

// writesByKeyboard silences an incident and edits a key, as an operator does, and asks the planes what came of it.
func (v *viewer) writesByKeyboard() {
	v.t.Helper()
	v.keys("gi")
	v.see(".row", "no backup for 26 h")
	v.keys("j")
	v.keys("s")
	v.see("dialog:focus-within", "Matches 1 now")
	v.shoot("silence")
	v.keys(kb.Tab + kb.Tab + kb.Tab + kb.Enter)
	v.see("dialog:focus-within .curl", "silenced")
	v.keys(kb.Enter)
	polltest.NoError(v.t, time.Minute, func() error {
		text, err := ask(v.base, "GET", "/ui/api/topic/silences", "")
		if err == nil && strings.Count(text, `"expire_at"`) != 2 {
			err = fmt.Errorf("two silences are wanted: %s", text)
		}
		return err
	}, "the silence")
	v.run(chromedp.Navigate(v.base + "/ui/kv/app/motd?key=1"))
	v.see("pre.value", "requests")
	v.run(chromedp.Focus("main button.primary"))
	v.keys(kb.Enter)
	v.see("pre.curl", "cas=")
	v.run(chromedp.Focus("textarea"))
	v.keys("x")
	v.see(".difference ins", "x")
	v.shoot("kv-edit")
	v.run(chromedp.Focus("main button.primary"))
	v.keys(kb.Enter)
	v.see("pre.value", "x")
	if text, err := ask(v.base, "GET", "/v1/kv/app/motd?raw", ""); err != nil || !strings.Contains(text, "x") {
		v.t.Errorf("the key is %q, %v", text, err)
	}
	if _, err := ask(v.base, "PUT", "/v1/kv/app/motd", "of another"); err != nil {
		v.t.Error(err)
	}
	v.see("pre.value", "of another")
	v.see("main p.words", "Written")
}
