package curve

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
	"testing"
	"time"
)

func TestStats(t *testing.T) {
	var took []time.Duration
	for i := 1000; i > 0; i-- {
		took = append(took, time.Duration(i)*time.Millisecond)
	}
	want := Stats{Count: 1003, Missing: 3, P50: 500, P90: 900, P95: 950, P99: 990, P999: 999, Max: 1000, Min: 1}
	if got := Of(took, 3); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := Of(nil, 2); got != (Stats{Count: 2, Missing: 2}) {
		t.Errorf("of nothing: %+v", got)
	}
	if got := Of([]time.Duration{1500 * time.Microsecond}, 0); got.P50 != 1.5 || got.P999 != 1.5 {
		t.Errorf("of one: %+v", got)
	}
}

func TestPage(t *testing.T) {
	var b bytes.Buffer
	p := Page{Title: "a <b>", Lines: []string{"x & y"}, Table: [][]string{{"round"}, {"1"}}, Runs: []Series{
		{"round 1", []time.Duration{time.Microsecond, 90 * time.Millisecond, time.Second, time.Hour}}, {"none", nil}}}
	if err := WriteHTML(&b, p); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a &lt;b&gt;", "x &amp; y", "32 s", "<td>1</td>", "round 1"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(b.String(), "<rect"); n != 4 {
		t.Errorf("%d bars, want 4", n)
	}
	// Each drawing must be well-formed.
	for _, svg := range strings.SplitAfter(b.String(), "<svg")[1:] {
		body, _, _ := strings.Cut("<svg"+svg, "</svg>")
		d := xml.NewDecoder(strings.NewReader(body + "</svg>"))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("a drawing is broken: %v", err)
			}
		}
	}
}
