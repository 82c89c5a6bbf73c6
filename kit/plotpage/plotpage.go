// Package plotpage writes what was measured or found as one page for a browser: headings, words, bars and tables.
//
// A page is one file that asks for nothing: no script, no picture, no font, no address. Whatever text it is given is
// shown as text. It reads in light and in dark, and on paper.
package plotpage

import (
	"fmt"
	"html/template"
	"io"
	"os"
	"time"
)

// Page is what is written.
type Page struct {
	Title string
	// Words stand below the title.
	Words []string
	At    time.Time
	Parts []Part
}

// Part is a section. What is empty is left out.
type Part struct {
	Head string
	// State is passing, warning, critical or nothing: it is shown by colour beside its word.
	State string
	Words []string
	// List are lines, each with a point before it.
	List    []string
	Bars    []Bar
	Columns []string // of Rows
	Rows    [][]string
	Flame   *Frame // drawn as a flame graph, with what functions spent themselves
	// Pre is text as a terminal shows it.
	Pre string
}

// Bar is a quantity as a length.
type Bar struct {
	Name string
	// Value is drawn against the largest value of the part, or against Of where that is above 0.
	Value, Of float64
	// Words are the quantity as text.
	Words string
}

// width is the length of a bar in 1/10 %.
func (p Part) width(b Bar) float64 {
	most := b.Of
	for _, other := range p.Bars {
		if b.Of <= 0 {
			most = max(most, other.Value)
		}
	}
	if most <= 0 || b.Value <= 0 {
		return 0
	}
	return min(b.Value/most, 1) * 1000
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"width": func(p Part, b Bar) string { return fmt.Sprintf("%.1f", p.width(b)) },
	"flame": func(p Part) *picture { return p.layout() },
	"px":    func(v float64) string { return fmt.Sprintf("%.1f", v) },
	"time":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
}).Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{.Title}}</title>
<style>
:root { color-scheme: light dark; --soft: light-dark(#56606c, #98a3b0); --line: light-dark(#e1e5ea, #262d37);
--raised: light-dark(#f6f7f9, #161b22); --bar: light-dark(#0b57c2, #82b1ff); --passing: light-dark(#12703a, #4ccb7f);
--warning: light-dark(#8a5700, #e5b454); --critical: light-dark(#b3122c, #ff7d78); }
body { font: 14px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 24px auto; padding: 0 16px; }
h1 { font-size: 20px; } h2 { font-size: 15px; margin: 28px 0 6px; } p { margin: 4px 0; }
.soft { color: var(--soft); } .passing { color: var(--passing); } .warning { color: var(--warning); }
.critical { color: var(--critical); }
table { border-collapse: collapse; width: 100%; margin: 8px 0; }
th { text-align: left; font-weight: 400; color: var(--soft); }
th, td { padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; vertical-align: top; }
.bars td { border: 0; padding: 2px 10px 2px 0; white-space: nowrap; } .bars td:nth-child(2) { width: 60%; }
svg { display: block; width: 100%; height: 14px; } .flame { height: auto; } .flame rect { stroke: var(--raised); }
.flame text { font: 10px ui-monospace, monospace; fill: light-dark(#fff, #10141a); } svg rect { fill: var(--bar); }
pre { background: var(--raised); border: 1px solid var(--line); border-radius: 6px; padding: 10px 12px;
overflow: auto; font: 12px ui-monospace, monospace; }
</style></head><body>
<h1>{{.Title}}</h1>
{{range .Words}}<p class="soft">{{.}}</p>
{{end}}{{if not .At.IsZero}}<p class="soft">{{time .At}}</p>
{{end}}{{range $p := .Parts}}<section>
{{if .Head}}<h2>{{if .State}}<span class="{{.State}}">{{.State}}:</span> {{end}}{{.Head}}</h2>
{{end}}{{range .Words}}<p>{{.}}</p>
{{end}}{{if .List}}<ul>
{{range .List}}<li>{{.}}</li>
{{end}}</ul>
{{end}}{{if .Bars}}<table class="bars">
{{range .Bars}}<tr><td>{{.Name}}</td><td><svg viewBox="0 0 1000 14" preserveAspectRatio="none" aria-hidden="true">` +
	`<rect width="{{width $p .}}" height="14"/></svg></td><td>{{.Words}}</td></tr>
{{end}}</table>
{{end}}{{if .Rows}}<table>
{{if .Columns}}<tr>{{range .Columns}}<th scope="col">{{.}}</th>{{end}}</tr>
{{end}}{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
{{end}}{{with flame $p}}<svg class="flame" viewBox="0 0 1000 {{px .Height}}" role="img" aria-label="Flame graph">
{{range .Boxes}}<g><title>{{.Title}}</title><rect x="{{px .X}}" y="{{px .Y}}" width="{{px .Width}}" height="16"/>` +
	`{{if .Text}}<text x="{{px .X}}" y="{{px .Y}}" dx="3" dy="12">{{.Text}}</text>{{end}}</g>
{{end}}</svg>
<table><tr><th scope="col">Spent by itself</th><th scope="col">Share</th></tr>
{{range .Self}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
{{end}}{{if .Pre}}<pre>{{.Pre}}</pre>
{{end}}</section>
{{end}}</body></html>
`))

// Write writes the page.
func (p *Page) Write(w io.Writer) error { return page.Execute(w, p) }

// Save writes the page to a file.
func (p *Page) Save(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := p.Write(f); err != nil {
		_ = f.Close() // the first error tells
		return err
	}
	return f.Close()
}
