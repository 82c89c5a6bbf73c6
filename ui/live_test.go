package ui_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// watching counts in the page: frames, repaints of the table's rows (all that changes between two turns of the page's
// loop is one), those that came in the frame of another one, rows that a repaint touched at most, lines of the stream,
// and times that it said something was old.
const watching = `(() => {
	const seen = window.seen = {frames: 0, repaints: 0, crowded: 0, touched: 0, lines: 0, stale: 0}
	let inFrame = 0
	const frame = () => { seen.frames++; inFrame = 0; requestAnimationFrame(frame) }
	requestAnimationFrame(frame)
	new MutationObserver(all => {
		seen.repaints++
		if (++inFrame > 1) seen.crowded++
		const rows = new Set(all.map(m => (m.target.parentElement ?? m.target).closest('.row')))
		seen.touched = Math.max(seen.touched, rows.size)
	}).observe(document.querySelector('.space'), {subtree: true, childList: true, characterData: true, attributes: true})
	new MutationObserver(() => { if (document.querySelector('.age.stale')) seen.stale++ }).observe(document.body,
		{subtree: true, childList: true, characterData: true, attributes: true})
	window.newest = {} // by topic
	window.feed = new BroadcastChannel('corbel-live-2')
	window.feed.onmessage = e => {
		const line = e.data.line
		if (line?.value?.rows) { seen.lines++; window.newest[line.topic] = line.value }
	}
	return 0
})()`

// openServices logs in and goes far down the list of services.
func (s *stage) openServices() {
	s.t.Helper()
	s.see("h1", "Log in")
	s.run(chromedp.Focus("input[name=token]"))
	s.keys("right" + kb.Enter)
	s.see(".planes", "3 servers")
	s.keys("gs")
	s.see(".count", "60,000 rows")
	s.number("document.querySelector('.body').scrollTop = 28000")
	s.see(".row", "service-01005")
	s.run(chromedp.Click(".row:nth-child(20)"))
	s.see(".row.selected", "service-01")
}

// TestCalm: a thousand lines in one burst are painted at most once a frame; the newest is shown, the rows that are seen
// are all that is touched, and neither scroll nor selection moves.
func TestCalm(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.openServices()
	s.number(watching)
	// Pages that were scrolled past are followed for a moment yet; when they go, the stream begins anew and tells what is.
	for flips := 1; s.number("Object.keys(window.newest).length") != 1; {
		s.number("(window.newest = {}, 0)")
		for range 2 { // the second comes after all that the first one changed
			s.flip()
			s.see(".row", fmt.Sprintf("1,%03d", flips))
			flips++
		}
	}
	chosen, err := evaluate[string](s, "document.querySelector('.row.selected').textContent.slice(0, 20)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := evaluate[string](s, `for (let i = 1; i <= 1000; i++) {
		const [topic, newest] = Object.entries(window.newest)[0], value = structuredClone(newest)
		for (const row of value.rows) row.instances = 500000 + i
		window.feed.postMessage({line: {topic, index: 1000 + i, value}})
	} ''`); err != nil {
		t.Fatal(err)
	}
	s.see(".row", "501,000")
	rows := s.number("document.querySelectorAll('.space > .row').length")
	if n := s.number("window.seen.crowded"); n != 0 {
		t.Errorf("%d repaints came in the frame of another one", n)
	}
	if repaints, frames := s.number("window.seen.repaints"), s.number("window.seen.frames"); repaints > frames ||
		repaints > 500 || repaints == 0 {
		t.Errorf("%d repaints in %d frames", repaints, frames)
	}
	if n := s.number("window.seen.touched"); n > rows || rows > 100 {
		t.Errorf("a repaint touched %d rows, of %d in the document", n, rows)
	}
	s.stays(chosen)
	if n := s.number("window.seen.stale"); n != 0 {
		t.Errorf("it was said %d times that what is shown is old", n)
	}
}

// stays checks that what the reader looks at is where it was.
func (s *stage) stays(chosen string) {
	s.t.Helper()
	if n := s.number("document.querySelector('.body').scrollTop"); n != 28000 {
		s.t.Errorf("the scroll moved to %d", n)
	}
	if at, err := evaluate[string](s, "document.querySelector('.row.selected').textContent.slice(0, 20)"); err != nil ||
		at != chosen {
		s.t.Errorf("the selection moved from %q to %q, %v", chosen, at, err)
	}
}

// TestPlainName: at a name of the network and without TLS browsers give a page neither locks nor the clipboard. What
// it shows is live all the same.
func TestPlainName(t *testing.T) {
	t.Parallel()
	s := openAt(t, "corbel.example")
	s.see("h1", "Log in")
	if secure, err := evaluate[bool](s, "isSecureContext || 'locks' in navigator"); err != nil || secure {
		t.Fatalf("this page has what the test is about: %v", err)
	}
	s.run(chromedp.Focus("input[name=token]"))
	s.keys("right" + kb.Enter)
	s.see(".planes", "3 servers")
	s.mu.Lock()
	s.words = "2 of 3 servers"
	s.mu.Unlock()
	s.overview.change()
	s.see(".planes", "2 of 3 servers")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.wrong {
		if !strings.Contains(w, "Cross-Origin-Opener-Policy header has been ignored") { // as it must be without TLS
			t.Error(w)
		}
	}
}

// TestScrollStays: the server goes while somebody reads far down a list, and comes back with other values: they are
// shown, and nothing moved. Then scrolling on shows what is there, without a word of anything being old.
func TestScrollStays(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.openServices()
	chosen, err := evaluate[string](s, "document.querySelector('.row.selected').textContent.slice(0, 20)")
	if err != nil {
		t.Fatal(err)
	}
	_ = s.server.Close()
	s.see(".age", "stale: as of")
	s.stays(chosen)
	s.flip()
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	s.start(l)
	s.see(".row", "1,001")
	s.see(".age", "as of 0.")
	s.stays(chosen)
	s.number(watching)
	for _, at := range []string{"29000", "140000", "28000", "1400000", "28000"} {
		s.number("document.querySelector('.body').scrollTop = " + at)
	}
	s.number("document.querySelector('.body').scrollTop = 560000")
	s.see(".row", "service-20005")
	if n := s.number("window.seen.stale"); n != 0 {
		t.Errorf("it was said %d times that what is shown is old", n)
	}
}
