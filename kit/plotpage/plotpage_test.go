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
