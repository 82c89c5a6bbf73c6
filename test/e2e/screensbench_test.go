package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"corbel.dev/corbel/kit/polltest"
)

const (
	scaleOnNode  = 6   // instances of a node
	scaleChanges = 100 // a second
	scaleHost    = "corbel.example"
)

// scaleNode is a node of the fleet with its instances and a check of each.
func scaleNode(b *bytes.Buffer, n int) {
	fmt.Fprintf(b, `{"Node":{"Verb":"set","Node":{"Node":"fleet-%05d","Address":"10.%d.%d.%d"}}}`, n, n>>16&255, n>>8&255,
		n&255)
	for i := range scaleOnNode {
		name := fmt.Sprintf("app-%04d", (n*scaleOnNode+i*331)%2000)
		fmt.Fprintf(b, `,{"Service":{"Verb":"set","Node":"fleet-%05d","Service":{"ID":"%s-%d","Service":"%s","Port":%d,`+
			`"Tags":["v%d"]}}}`, n, name, i, name, 20000+i, i)
	}
	b.WriteByte(',')
	scaleCheck(b, n, "passing")
}

func scaleCheck(b *bytes.Buffer, n int, status string) {
	fmt.Fprintf(b, `{"Check":{"Verb":"set","Check":{"Node":"fleet-%05d","CheckID":"host","Name":"host","Status":%q,`+
		`"Output":"load %d"}}}`, n, status, rand.IntN(100))
}

func scaleTxn(base string, write func(*bytes.Buffer)) error {
	b := bytes.NewBufferString("[")
	write(b)
	b.WriteByte(']')
	_, err := ask(base, "PUT", "/ui/api/as/catalog/v1/txn", b.String())
	return err
}

// fillScale registers nodes, seven a transaction.
func fillScale(b testing.TB, base string, nodes int) {
	b.Helper()
	const each = 7
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for from := w * each; from < nodes; from += 4 * each {
				if err := scaleTxn(base, func(t *bytes.Buffer) {
					for n := from; n < min(from+each, nodes); n++ {
						if n > from {
							t.WriteByte(',')
						}
						scaleNode(t, n)
					}
				}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
}

// churn flips checks until the context ends, and returns how many it flipped.
func churn(ctx context.Context, base string, nodes int) (flips int) {
	tick := time.NewTicker(time.Second / scaleChanges)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return flips
		case <-tick.C:
		}
		status := [...]string{"warning", "passing", "critical"}[flips%3]
		if scaleTxn(base, func(t *bytes.Buffer) { scaleCheck(t, rand.IntN(nodes), status) }) == nil {
			flips++
		}
	}
}

// measuring has the page scroll by a page each tenth of a second, and keeps the times between frames.
const measuring = `(() => {
	const m = window.m = {frames: [], repaints: 0, lines: 0, end: false}
	new MutationObserver(() => m.repaints++).observe(document.querySelector('.space'),
		{subtree: true, childList: true, characterData: true, attributes: true})
	const feed = new BroadcastChannel('corbel-live-2')
	feed.onmessage = e => { if (e.data.line) m.lines++ }
	const body = document.querySelector('.body')
	let last = 0, jump = 0
	const frame = at => {
		if (m.end) return // nothing scrolls from here on, however late the last frame is
		if (last > 0) m.frames.push(at - last)
		last = at
		if (at - jump > 100) { jump = at; body.scrollTop = (body.scrollTop + 14000) % (body.scrollHeight - 1000) }
		requestAnimationFrame(frame)
	}
	requestAnimationFrame(frame)
	return 0
})()`

// BenchmarkScreens measures the web UI of a server with 60,000 instances, of which 100 a second change, in a real
// browser: the time from the login's Enter to the first rows, the times between frames while somebody scrolls by
// 14,000 pixels ten times a second, and the time from the server's return after kill -9 to the first new answer.
// SCREENS_NODES sets another number of nodes than 10,000, SCREENS_SECONDS another time than 20 s.
func BenchmarkScreens(b *testing.B) {
	nodes, seconds := fromEnv("SCREENS_NODES", 10000), fromEnv("SCREENS_SECONDS", 20)
	d := newDev(b, "--data-dir", b.TempDir(), "--hcl", `acl { default_policy = "deny" }`)
	d.start()
	fillScale(b, d.base(), nodes)
	named := fmt.Sprintf("http://%s:%d", scaleHost, d.ports[0]) // where dev asks for a login
	v := view(b, named, chromedp.Flag("host-resolver-rules", "MAP "+scaleHost+" 127.0.0.1"))
	for b.Loop() {
		v.run(chromedp.Navigate(named + "/ui/instances"))
		v.see("h1", "Log in")
		v.number(`(() => { addEventListener('submit', () => { window.entered = performance.now() }, true)
			new MutationObserver(() => { if (!window.shown && document.querySelector('.space > .row'))
				window.shown = performance.now() }).observe(document.body, {subtree: true, childList: true}); return 0 })()`)
		v.run(chromedp.Focus("input[name=token]"))
		v.keys("root" + kb.Enter)
		v.see(".count", "rows")
		b.ReportMetric(v.number("shown - entered"), "first-rows-ms")
		v.run(chromedp.Navigate(d.base() + "/ui/instances"))
		v.see(".count", "rows")
		v.frames(b, d.base(), nodes, seconds)
		b.ReportMetric(float64(v.resumes(d).Milliseconds()), "resumed-ms")
	}
	b.ReportMetric(0, "ns/op")
}

func fromEnv(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

func (v *viewer) number(expression string) float64 {
	v.t.Helper()
	n, err := evaluate[float64](v, expression)
	if err != nil {
		v.t.Fatal(err)
	}
	return n
}

// frames reports the times between frames while the fleet changes and somebody scrolls.
func (v *viewer) frames(b *testing.B, base string, nodes, seconds int) {
	b.Helper()
	ctx, stop := context.WithTimeout(b.Context(), time.Duration(seconds)*time.Second)
	defer stop()
	v.number(measuring)
	flips := churn(ctx, base, nodes)
	v.number(`(m.end = true, m.sorted = m.frames.slice().sort((a, b) => a - b), 0)`)
	count := v.number("m.frames.length")
	b.ReportMetric(v.number("m.sorted[m.sorted.length >> 1]"), "frame-p50-ms")
	b.ReportMetric(v.number("m.sorted[Math.floor(m.sorted.length * 0.99)]"), "frame-p99-ms")
	b.ReportMetric(v.number("m.sorted.at(-1)"), "frame-max-ms")
	b.ReportMetric(count/float64(seconds), "frames/s")
	b.ReportMetric(float64(flips)/float64(seconds), "changes/s")
	b.ReportMetric(v.number("m.lines")/float64(seconds), "lines/s")
	b.ReportMetric(v.number("m.repaints")/count, "repaints/frame")
	b.ReportMetric(v.number("document.querySelectorAll('.space > .row').length"), "rows-in-document")
}

// resumes kills the server and tells how long after its return the page is live again, with its scroll.
func (v *viewer) resumes(d *viewedDev) time.Duration {
	v.t.Helper()
	place := v.number("(() => { const b = document.querySelector('.body'); " +
		"return b.scrollTop = Math.floor(b.scrollHeight / 56) * 28 })()")
	polltest.NoError(v.t, polltest.Deadline, func() error { // the rows of that place, not those from before the scroll
		is, err := evaluate[string](v, fmt.Sprintf(`(() => {
			const age = document.querySelector('.age').textContent, b = document.querySelector('.body')
			const rows = [...document.querySelectorAll('.space > .row')].map(r => Number(r.getAttribute('aria-rowindex')))
			return age.startsWith('as of') && rows.some(n => Math.abs(n - %f / 28) < 10) ? '' :
				age + ', scrolled to ' + b.scrollTop + ', rows from ' + rows[0] + ' to ' + rows.at(-1)
		})()`, place))
		if err == nil && is != "" {
			err = errors.New(is)
		}
		return err
	}, "the rows in the middle")
	d.end(syscall.SIGKILL)
	v.see(".age", "stale: as of")
	d.start()
	began := time.Now()
	polltest.Until(v.t, func() bool {
		live, err := evaluate[bool](v, "!document.querySelector('.age.stale') && !!document.querySelector('.space > .row')")
		return err == nil && live
	}, "the page to be live again")
	took := time.Since(began)
	if at := v.number("document.querySelector('.body').scrollTop"); at != place {
		v.t.Errorf("the scroll moved to %.0f", at)
	}
	return took
}

// TestPageOutlivesTheServer: with access control, the page of somebody who has logged in goes on when the server was
// killed and is back: the session, the stream and the scroll. A logout holds over a restart as well.
func TestPageOutlivesTheServer(t *testing.T) {
	const nodes = 50
	d := newDev(t, "--data-dir", t.TempDir(), "--hcl", `acl { default_policy = "deny" }`)
	d.start()
	fillScale(t, d.base(), nodes)
	named := fmt.Sprintf("http://%s:%d", scaleHost, d.ports[0]) // where dev asks for a login
	v := view(t, named, chromedp.Flag("host-resolver-rules", "MAP "+scaleHost+" 127.0.0.1"))
	v.run(chromedp.Navigate(named + "/ui/instances"))
	v.see("h1", "Log in")
	v.run(chromedp.Focus("input[name=token]"))
	v.keys("root" + kb.Enter)
	v.see(".count", "rows")
	v.resumes(d)
	v.see("h1", "Instances")
	who := func() string {
		t.Helper()
		text, err := evaluate[string](v, `(() => { const r = new XMLHttpRequest(); r.open('GET', '/ui/api/me', false)
			r.send(); return r.status + ' ' + r.responseText })()`)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if said := who(); !strings.Contains(said, `"open":false`) {
		t.Errorf("after the restart the session is %s", said)
	}
	v.number(`(() => { const r = new XMLHttpRequest(); r.open('POST', '/ui/api/logout', false); r.send(); return 0 })()`)
	d.end(syscall.SIGKILL)
	d.start()
	if said := who(); !strings.HasPrefix(said, "401 ") {
		t.Errorf("after a logout and a restart the session is %s", said)
	}
}
