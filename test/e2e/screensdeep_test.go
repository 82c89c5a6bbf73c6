package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"corbel.dev/corbel/kit/polltest"
)

// press clicks the first button or link in selector with the text, once it is there.
func (v *viewer) press(selector, text string) {
	v.t.Helper()
	polltest.Until(v.t, func() bool {
		done, err := evaluate[bool](v, fmt.Sprintf(`(() => { const e = [...document.querySelectorAll(%q)].find(
			e => e.textContent.trim() === %q); e?.click(); return !!e })()`, selector, text))
		return err == nil && done
	}, "%q in %s, to press", text, selector)
}

// worksOnJobs follows a task's log, runs a command in it and changes how many run.
func (v *viewer) worksOnJobs() {
	v.t.Helper()
	body := fmt.Sprintf(`{"Job":{"ID":"clock","Name":"clock","Type":"service","Datacenters":["*"],"TaskGroups":[{`+
		`"Name":"app","Count":1,"Tasks":[{"Name":"tick","Driver":"raw_exec","Config":{"command":"/bin/sh","args":["-c",%q]},`+
		`"Resources":{"CPU":20,"MemoryMB":16}}]}]}}`, "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo 'begun "+
		hostile+"'; while :; do sleep 1; done")
	broken := fmt.Sprintf(`{"Job":{"ID":"broken","Type":"batch","Datacenters":["*"],"TaskGroups":[{"Name":"g","Count":1,`+
		`"RestartPolicy":{"Attempts":0,"Mode":"fail"},"ReschedulePolicy":{"Attempts":0},"Tasks":[{"Name":"t",`+
		`"Driver":"raw_exec","Config":{"command":"/bin/sh","args":["-c",%q]},"Resources":{"CPU":20,"MemoryMB":16}}]}]}}`,
		"echo 'no such table "+hostile+"' >&2; exit 3")
	for _, job := range []string{body, broken} {
		if _, err := ask(v.base, "PUT", "/ui/api/as/jobs/v1/jobs", job); err != nil {
			v.t.Fatal(err)
		}
	}
	polltest.NoError(v.t, 2*time.Minute, func() error {
		text, err := ask(v.base, "GET", "/ui/api/as/jobs/v1/job/clock/allocations", "")
		if err == nil && !strings.Contains(text, `"ClientStatus":"running"`) {
			err = fmt.Errorf("nothing runs yet: %.3000s", text)
		}
		return err
	}, "the allocation")
	v.run(chromedp.Navigate(v.base + "/ui/jobs/default/broken"))
	v.see("pre.value", "no such table "+hostile)
	v.run(chromedp.Navigate(v.base + "/ui/jobs/default/clock"))
	v.see("main", "clock.app[0]")
	v.press("main a", "clock.app[0]")
	v.see(".screen", "begun "+hostile)
	v.axe("an allocation")
	v.press("main button", "Run")
	v.see("dialog .curl", "corbel allocs exec --task tick")
	v.press("dialog button", "Do it")
	v.see("main", "End")
	v.run(chromedp.Focus("input[name=line]"))
	v.keys("echo the answer is $((6*7))" + kb.Enter)
	v.see("main", "the answer is 42")
	v.keys("echo '" + hostile + "'" + kb.Enter)
	v.see("main", "\n"+hostile)
	v.press("main button", "End")
	v.run(chromedp.Navigate(v.base + "/ui/jobs/default/clock"))
	v.see("main", "How many run")
	v.see("main", "successful") // no job is scaled while a rollout goes on
	v.run(chromedp.Focus("input[type=number]"))
	v.keys(kb.End + kb.Backspace + "0" + kb.Enter)
	v.see("dialog .curl", "/scale")
	v.press("dialog button", "Do it")
	polltest.NoError(v.t, time.Minute, func() error {
		text, err := ask(v.base, "GET", "/ui/api/as/jobs/v1/job/clock", "")
		if err == nil && !strings.Contains(text, `"Count":0`) {
			err = fmt.Errorf("the count is not 0: %.400s", text)
		}
		return err
	}, "the count")
}

// hostileNames looks at what somebody may have named so that a page which builds markup from text would run it. What
// became of them is checked at the end.
func (v *viewer) hostileNames() {
	v.t.Helper()
	for _, at := range []struct{ path, selector string }{
		{"/services?q=img", ".row"}, {"/instances?q=img", ".row"}, {"/nodes?q=img", ".row"}, {"/kv/app/", ".row"},
		{"/services/" + url.PathEscape(hostile), "h1"}, {"/kv/app/" + url.PathEscape(hostile) + "?key=1", "h1"},
		{"/topology?s=" + url.QueryEscape(hostile), "h1"}, {"/incidents?q=img", ".row"},
		{"/jobs/default/" + url.PathEscape(hostile), "h1"},
	} {
		v.run(chromedp.Navigate(v.base + "/ui" + at.path))
		v.see(at.selector, hostile)
		if n, err := evaluate[int](v, "document.images.length"); err != nil || n != 0 {
			v.t.Errorf("%s: %d images: a name became markup, %v", at.path, n, err)
		}
	}
	v.run(chromedp.Navigate(v.base + "/ui"))
	v.see(".planes", "failing checks")
}

// answers waits until a row of the screen says each of the answers. A row is its cells with " | " between them; … in an
// answer stands for what lies between its parts.
func (v *viewer) answers(question, rows string, answers ...string) {
	v.t.Helper()
	says := func(row, answer string) bool {
		for part := range strings.SplitSeq(answer, "…") {
			_, after, found := strings.Cut(row, part)
			if !found {
				return false
			}
			row = after
		}
		return true
	}
	polltest.NoError(v.t, polltest.Deadline, func() error {
		shown, err := evaluate[string](v, fmt.Sprintf(`[...document.querySelectorAll(%q)].map(
			r => [...r.children].map(c => c.textContent.trim()).join(" | ")).join("\n")`, rows))
		for _, a := range answers {
			if err == nil && !slices.ContainsFunc(strings.Split(shown, "\n"), func(row string) bool { return says(row, a) }) {
				err = fmt.Errorf("no row says %q:\n%.3000s", a, shown)
			}
		}
		return err
	}, "%s?", question)
}

// fiveQuestions finds what operators ask first, from the overview, in at most three keys each, and reads the answer:
// the names and the reasons, not only that something is there. How long that takes is logged: time is no matter of a
// test.
func (v *viewer) fiveQuestions() {
	v.t.Helper()
	for _, w := range [][2]string{{"roles/growing", `{"allowed_policies":"default"}`}, {"create/growing", `{"ttl":"1h"}`},
		{"create/growing", `{"ttl":"1h"}`}} {
		if _, err := ask(v.base, "POST", "/ui/api/as/secrets/v1/auth/token/"+w[0], w[1]); err != nil {
			v.t.Fatal(err)
		}
	}
	for _, q := range []struct {
		question, keys, rows string
		says                 []string
	}{
		{"which service is unhealthy, and why", "gs", `[aria-label="Services"] .row`, []string{
			"critical: billing | … | dial tcp 10.0.0.2:8000: connect: connection refused | ",
			"critical: web | … | 503 Service Unavailable: the pool of connections to db is exhausted | ",
			"passing: orders | "}},
		{"who may call db", "gt", `[aria-label="Topology"] tr`, []string{
			"auth | db | ● passing: allowed | intention auth => db", "billing | db | ● passing: allowed | intention",
			"orders | db | ● passing: allowed | intention", "web | db | ■ critical: denied | intention web => db"}},
		{"what is slow right now", "gd", "", nil}, // slowNow compares it with what the doctor says
		{"whose leases grow", "ge", `[aria-label="Roles"] tr`, []string{"auth/token/ | growing | 2 | 0 | +2 | "}},
		{"what pages nobody", "gi", `[aria-label="Incidents"] .row`, []string{
			"ntp | host-07 | offset 0.4 s | … | nobody | ", "backup | host-05 | no backup for 26 h | … | pager | "}},
	} {
		if len(q.keys) > 3 {
			v.t.Errorf("%s? %d keys, at most three are wanted", q.question, len(q.keys))
		}
		v.keys("go")
		v.see(".planes", "failing checks")
		begin := time.Now()
		v.keys(q.keys)
		if q.rows != "" {
			v.answers(q.question, q.rows, q.says...)
		} else {
			v.slowNow()
		}
		v.t.Logf("%s? %d keys, %s", q.question, len(q.keys), time.Since(begin).Round(time.Millisecond))
	}
	v.callersOf("db", "auth", "billing", "orders")
	v.keys("gi")
	v.see(".row", "no backup for 26 h")
	v.keys("j")
	v.keys("b")
	v.see("dialog", "What changed before")
	v.axe("what changed before")
	v.keys(kb.Escape)
}

// slowNow waits until the screen of the doctor says what the doctor says: that all members answered, and each of its
// findings, or that there is none.
func (v *viewer) slowNow() {
	v.t.Helper()
	v.see(".title .words", "1 of 1 members answered")
	polltest.NoError(v.t, polltest.Deadline, func() error {
		text, err := ask(v.base, "GET", "/ui/api/topic/doctor", "")
		if err != nil {
			return err
		}
		var got struct {
			Value struct{ Findings []struct{ Title string } }
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			return err
		}
		shown, err := evaluate[string](v, `[...document.querySelectorAll("details.finding summary, .empty")].map(
			e => e.textContent).join("\n")`)
		if err == nil && len(got.Value.Findings) == 0 && !strings.Contains(shown, "The doctor has no findings.") {
			err = fmt.Errorf("the doctor has no findings, the screen says %q", shown)
		}
		for _, f := range got.Value.Findings {
			if err == nil && !strings.Contains(shown, f.Title) {
				err = fmt.Errorf("the doctor finds %q, the screen says %q", f.Title, shown)
			}
		}
		return err
	}, "what is slow right now")
}

// callersOf reads from the topology who may call a service: these, and nobody else.
func (v *viewer) callersOf(service string, callers ...string) {
	v.t.Helper()
	v.keys("gt")
	want := strings.Join(callers, " ")
	polltest.Until(v.t, func() bool {
		got, err := evaluate[string](v, fmt.Sprintf(`[...document.querySelectorAll('[aria-label="Topology"] tr')].map(
			r => [...r.children].map(c => c.textContent.trim())).filter(c => c[1] === %q && c[2].endsWith("allowed")).map(
			c => c[0]).sort().join(" ")`, service))
		return err == nil && got == want
	}, "the callers of %s to be %s", service, want)
}

// looksCloser opens what the lists name: an incident with what became of it, nodes by class, a product hour by hour,
// the certificate of a service, what the catalog keeps beside its keys, a service by a part of its name.
func (v *viewer) looksCloser() {
	v.t.Helper()
	v.keys("go")
	v.see(".planes", "failing checks")
	v.keys("gi")
	v.see(".row", "no backup for 26 h")
	v.keys("j")
	v.keys(kb.Enter)
	v.see("pre.value", "no backup for 26 h")
	v.see(".grid", "the filter third-time kept it away")
	v.see(".timeline", "backup")
	v.axe("an incident")
	v.shoot("incident")
	v.keys("gn")
	v.see("option", "class")
	v.run(chromedp.Navigate(v.base + "/ui/nodes?by=class"))
	v.see("h2", "class app: 15 nodes, 1 warning, 1 critical")
	v.see("main", "Room for jobs")
	v.axe("nodes by class")
	v.shoot("nodes-by-class")
	v.open("/nodes?show=cpu", "h2", "dc1: 1 nodes, 0 % of")
	v.see("h2", "Without jobs: ")
	v.axe("nodes by what jobs have of them")
	v.keys("gu")
	v.see(".grid", "hosts")
	v.press(".grid a", "hosts")
	v.see(".facts", "shards are warm")
	v.press("main button", "by team")
	v.axe("a product")
	v.shoot("usage-product")
	v.open("/topology?s=db", "h2", "Leaf certificates")
	v.see(".grid", "valid")
	v.axe("a service of the topology")
	v.shoot("topology-service")
	v.open("/queries", ".row", "near-db")
	v.open("/entries", ".row", "mail")
	v.keys("j" + kb.Enter)
	v.see("pre.value", `"Protocol": "tcp"`)
	v.axe("a config entry")
	v.shoot("config-entry")
	v.run(chromedp.KeyEvent("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	v.see("dialog", "")
	v.keys("propag")
	v.see("dialog li", "Propagation")
	v.keys(kb.Enter)
	v.see("h1", "Propagation")
}

// versionsOfSecrets compares two versions of a secret: values are shown only to who asks for them.
func (v *viewer) versionsOfSecrets() {
	v.t.Helper()
	if _, err := ask(v.base, "POST", "/ui/api/as/secrets/v1/secret/data/web/db",
		`{"data":{"password":"changed","user":"web"}}`); err != nil {
		v.t.Fatal(err)
	}
	v.run(chromedp.Navigate(v.base + "/ui/secrets?mount=secret%2F&q=db"))
	v.see(".grid", "web/db")
	v.press(".grid a", "web/db")
	v.press(".grid button", "Compare")
	v.see("main", "From version 1 to 2")
	if text, err := evaluate[string](v, "document.body.textContent"); err != nil || strings.Contains(text, "hidden") {
		v.t.Errorf("a value is shown before anybody asked for it, %v", err)
	}
	v.press("main button", "Show values")
	v.see(".grid", "hidden")
	v.axe("versions of a secret")
	v.press(".grid button", "Delete")
	v.see("dialog .curl", "secret/delete/web/db")
	v.press("dialog button", "Do it")
	v.press(".grid button", "Undelete")
	v.see("dialog .curl", "secret/undelete/web/db")
	v.keys(kb.Escape)
	v.run(chromedp.Navigate(v.base + "/ui/kv"))
	v.see("main", "Export")
}

// otherWords walks through the screens in a language of longer words that is read from the right: no heading is left in
// English, and nothing makes the page wider than the window.
func (v *viewer) otherWords() {
	v.t.Helper()
	v.run(chromedp.Navigate(v.base + "/ui?pseudo=rtl"))
	v.see("h1", "⟦")
	for _, screen := range screens {
		v.keys("g" + screen.key)
		polltest.Until(v.t, func() bool {
			there, err := evaluate[bool](v, fmt.Sprintf("location.pathname === %q && !!document.querySelector('h1')",
				strings.TrimSuffix("/ui/"+strings.TrimPrefix(screen.name, "overview"), "/")))
			return err == nil && there
		}, "%s in other words", screen.name)
		found, err := evaluate[string](v, `[...document.querySelectorAll('nav a, h1, h2, th, [role=columnheader]')].map(
			e => e.textContent.trim()).filter(t => /[A-Za-z]{4}/.test(t) && !t.includes('⟦')).concat(
			document.documentElement.scrollWidth > innerWidth ? ['the page is wider than the window'] : []).join('; ')`)
		if err != nil || found != "" {
			v.t.Errorf("%s in other words: %s %v", screen.name, found, err)
		}
	}
	v.run(chromedp.Navigate(v.base + "/ui"))
	v.see(".planes", "failing checks")
}
