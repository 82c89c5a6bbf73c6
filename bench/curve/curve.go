// Package curve turns arrival times into figures and into a page that people
// look at: quantiles, and a histogram and a distribution drawn beside a
// published curve. It is pure: times go in, numbers and HTML come out.
package curve

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Point says that a share of all had it after so many milliseconds.
type Point struct {
	Share  float64
	Millis float64
}

// Published is what the largest public run of the experiment gave: an endpoint
// change, 178,000 proxies on 10,000 nodes, five servers of 36 processors each.
var Published = []Point{{0.50, 361}, {0.90, 485}, {0.95, 535}, {0.96, 564}, {0.97, 4300}, {0.98, 15600}, {0.99, 32000}}

// Stats are the figures of a set of arrivals.
type Stats struct {
	Count   int     `json:"count"`
	Missing int     `json:"missing"`
	P50     float64 `json:"p50_ms"`
	P90     float64 `json:"p90_ms"`
	P95     float64 `json:"p95_ms"`
	P99     float64 `json:"p99_ms"`
	P999    float64 `json:"p999_ms"`
	Max     float64 `json:"max_ms"`
	Min     float64 `json:"min_ms"`
}

// Of sorts took, which must hold no negative time, and gives its figures.
// missing ones have no time: they count in no quantile, only in Missing.
func Of(took []time.Duration, missing int) Stats {
	slices.Sort(took)
	s := Stats{Count: len(took) + missing, Missing: missing}
	if len(took) == 0 {
		return s
	}
	s.P50, s.P90, s.P95, s.P99, s.P999 = At(took, 0.5), At(took, 0.9), At(took, 0.95), At(took, 0.99), At(took, 0.999)
	s.Min, s.Max = ms(took[0]), ms(took[len(took)-1])
	return s
}

func ms(d time.Duration) float64 { return math.Round(float64(d)/1e4) / 100 }

// At is the quantile of sorted times in milliseconds: the least time that at least that share had.
func At(sorted []time.Duration, share float64) float64 {
	i := int(math.Ceil(share*float64(len(sorted)))) - 1
	return ms(sorted[max(0, min(i, len(sorted)-1))])
}

// Series is one curve of a page.
type Series struct {
	Name   string
	Sorted []time.Duration
}

// Page is what WriteHTML draws.
type Page struct {
	Title string
	Lines []string // facts in words
	Runs  []Series
	Table [][]string // its first row is the head
}

const (
	width, height            = 860.0, 300.0
	left, right, top, bottom = 52.0, 16.0, 14.0, 34.0
	fromMillis, toMillis     = 1.0, 60_000.0
	buckets                  = 120
)

// x places milliseconds on a logarithmic axis.
func x(millis float64) float64 {
	f := math.Log(max(millis, fromMillis)/fromMillis) / math.Log(toMillis/fromMillis)
	return left + min(f, 1)*(width-left-right)
}

func y(share float64) float64 { return top + (1-share)*(height-top-bottom) }

func path(points []Point) string {
	var b strings.Builder
	for i, p := range points {
		word := "L"
		if i == 0 {
			word = "M"
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", word, x(p.Millis), y(p.Share))
	}
	return b.String()
}

// distribution picks the points that a curve of sorted times needs.
func distribution(sorted []time.Duration) []Point {
	const steps = 400
	var out []Point
	for i := 0; i <= steps && len(sorted) > 0; i++ {
		share := float64(i) / steps
		out = append(out, Point{share, At(sorted, share)})
	}
	return out
}

type bar struct{ X, Y, W, H float64 }

// histogram counts in buckets that are equally wide on the axis.
func histogram(runs []Series) []bar {
	counts := make([]int, buckets)
	most := 1
	for _, r := range runs {
		for _, d := range r.Sorted {
			at := int((x(float64(d)/1e6) - left) / (width - left - right) * buckets)
			at = max(0, min(at, buckets-1))
			counts[at]++
			most = max(most, counts[at])
		}
	}
	var out []bar
	w := (width - left - right) / buckets
	for i, n := range counts {
		if n > 0 {
			v := y(float64(n) / float64(most))
			out = append(out, bar{left + float64(i)*w, v, w - 0.5, height - bottom - v})
		}
	}
	return out
}

type tick struct {
	X    float64
	Text string
}

func ticks() []tick {
	var out []tick
	for _, v := range []float64{1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000} {
		text := fmt.Sprintf("%g ms", v)
		if v >= 1000 {
			text = fmt.Sprintf("%g s", v/1000)
		}
		out = append(out, tick{x(v), text})
	}
	return out
}

var colours = []string{"#1f6feb", "#2da44e", "#8250df", "#bf8700", "#cf222e", "#57606a"}

// WriteHTML writes the page: one file that needs nothing else.
func WriteHTML(w io.Writer, p Page) error {
	type line struct{ Name, Path, Colour string }
	var lines []line
	for i, r := range p.Runs {
		lines = append(lines, line{r.Name, path(distribution(r.Sorted)), colours[i%len(colours)]})
	}
	return page.Execute(w, map[string]any{
		"Page": p, "Bars": histogram(p.Runs), "Lines": lines, "Published": path(Published), "Points": Published,
		"Ticks": ticks(), "W": width, "H": height, "Left": left, "Right": width - right, "Top": top, "Base": height - bottom,
		"Shares": []struct {
			Y    float64
			Text string
		}{{y(0), "0"}, {y(0.5), "50 %"}, {y(0.9), "90 %"}, {y(0.99), "99 %"}},
	})
}

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{{.Page.Title}}</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#1f2328;background:#fff}
svg{width:100%;height:auto;font:11px system-ui,sans-serif}table{border-collapse:collapse;margin:1em 0}
td,th{border:1px solid #d0d7de;padding:.2em .6em;text-align:right}th:first-child,td:first-child{text-align:left}
.axis{stroke:#8c959f}.grid{stroke:#eaeef2}.pub{stroke:#cf222e;stroke-dasharray:5 4;fill:none;stroke-width:1.5}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}text{fill:#e6edf3}.grid{stroke:#21262d}td,th{border-color:#30363d}}
</style>
<h1>{{.Page.Title}}</h1>
{{range .Page.Lines}}<p>{{.}}</p>{{end}}
{{define "axes"}}{{$r := .}}{{range .Ticks}}<line class="grid" x1="{{.X}}" x2="{{.X}}" y1="{{$r.Top}}" y2="{{$r.Base}}"/>
<text x="{{.X}}" y="{{$r.H}}" dy="-16" text-anchor="middle">{{.Text}}</text>{{end}}
<line class="axis" x1="{{.Left}}" x2="{{.Right}}" y1="{{.Base}}" y2="{{.Base}}"/>{{end}}
<h2>How many proxies had the change, by time</h2>
<svg viewBox="0 0 {{.W}} {{.H}}" role="img" aria-label="distribution">{{template "axes" .}}{{$r := .}}
{{range .Shares}}<line class="grid" x1="{{$r.Left}}" x2="{{$r.Right}}" y1="{{.Y}}" y2="{{.Y}}"/><text x="{{$r.Left}}" y="{{.Y}}" dx="-6" dy="4" text-anchor="end">{{.Text}}</text>{{end}}
<path class="pub" d="{{.Published}}"><title>published</title></path>
{{range .Lines}}<path d="{{.Path}}" fill="none" stroke="{{.Colour}}" stroke-width="1.5"><title>{{.Name}}</title></path>{{end}}
</svg>
<p>Dashed: published (p50 361 ms, p90 485 ms, p95 535 ms, p96 564 ms, p97 4.3 s, p98 15.6 s, p99 32 s; five servers with 36 processors each).{{range .Lines}}
<span style="color:{{.Colour}}">&#9632;</span> {{.Name}}{{end}}</p>
<h2>When they arrived</h2>
<svg viewBox="0 0 {{.W}} {{.H}}" role="img" aria-label="histogram">{{template "axes" .}}
{{range .Bars}}<rect x="{{.X}}" y="{{.Y}}" width="{{.W}}" height="{{.H}}" fill="#1f6feb"/>{{end}}
</svg>
{{if .Page.Table}}<table>{{range $i, $row := .Page.Table}}<tr>{{range $row}}{{if $i}}<td>{{.}}</td>{{else}}<th>{{.}}</th>{{end}}{{end}}</tr>{{end}}</table>{{end}}
</html>
`))
