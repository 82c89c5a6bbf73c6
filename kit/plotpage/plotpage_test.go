package plotpage

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestPage: everything is shown, as text, and nothing is asked for.
func TestPage(t *testing.T) {
	p := Page{Title: "kv <b>", Words: []string{"2 cores"}, At: time.Unix(0, 0), Parts: []Part{
		{Head: "Writes", State: "critical", Words: []string{"slow"}, List: []string{`<img src=x onerror=alert(1)>`},
			Bars:    []Bar{{Name: "put", Value: 50, Words: "50/s"}, {Name: "get", Value: 100, Words: "100/s"}},
			Columns: []string{"What"}, Rows: [][]string{{"put"}}, Pre: "a\nb"},
		{Head: "Against a floor", Bars: []Bar{{Name: "x", Value: 1, Of: 4}, {Name: "y", Value: 9, Of: 4}, {Name: "z"}}}}}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"kv &lt;b&gt;", "1970-01-01 00:00:00 UTC", `<span class="critical">critical:</span> Writes`,
		`width="500.0"`, `width="1000.0"`, `width="250.0"`, `width="0.0"`, "&lt;img src=x", "<pre>a\nb</pre>"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	if found := regexp.MustCompile(`<(script|img|link|iframe)|https?:|url\(|@import`).FindString(text); found != "" {
		t.Errorf("the page asks for something: %q", found)
	}
}

// TestFlame: frames stand below their callers, as wide as their share; what is too thin is not drawn, and counts all
// the same for what a function spent itself.
func TestFlame(t *testing.T) {
	p := Part{Flame: &Frame{Name: "all", Value: 1000, Calls: []Frame{
		{Name: "a/b.run", Value: 600, Calls: []Frame{{Name: "thin", Value: 1}}}, {Name: "<b>", Value: 300}}}}
	got := p.layout()
	if len(got.Boxes) != 3 || got.Boxes[1].Text != "b.run" || got.Boxes[1].Width != 600 || got.Boxes[2].X != 600 ||
		got.Boxes[2].Y != flameRow || got.Height != 2*flameRow {
		t.Errorf("drawn: %+v", got.Boxes)
	}
	if len(got.Self) != 4 || got.Self[0][0] != "a/b.run" || got.Self[0][1] != "59.9 %" || got.Self[2][0] != "all" {
		t.Errorf("by themselves: %v", got.Self)
	}
	if (Part{Flame: &Frame{}}).layout() != nil || (Part{}).layout() != nil {
		t.Error("nothing was spent, and something is drawn")
	}
	var b bytes.Buffer
	if err := (&Page{Parts: []Part{p}}).Write(&b); err != nil || !strings.Contains(b.String(), "&lt;b&gt;: 30.0 %") ||
		strings.Contains(b.String(), "<b>") {
		t.Errorf("%v %s", err, b.String())
	}
}
