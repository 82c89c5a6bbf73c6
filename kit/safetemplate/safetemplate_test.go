package safetemplate_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"text/template"
	"time"

	. "corbel.dev/corbel/kit/safetemplate"
)

var data = map[string]any{
	"name": "web", "labels": map[string]any{"port": "8080"}, "list": []any{"a", "b"}, "n": 3.0,
	"long": strings.Repeat("x", 1<<18),
}

func run(text string) (string, error) {
	t, err := Parse("command", text, func(b *Budget) template.FuncMap {
		return template.FuncMap{"twice": func(s string) (string, error) { return s + s, b.Spend(2 * len(s)) }}
	}, Limits{})
	if err != nil {
		return "", err
	}
	return t.Execute(data, false)
}

// What is within the limits is what text/template makes of it.
func TestAsTextTemplate(t *testing.T) {
	for _, text := range []string{
		"", "plain", "{{ .name }}", "{{ .labels.port }}:{{ .none }}",
		`{{ printf "%s-%5.2f|%-8q|%x|%v|%%" .name .n .name .name .labels }}`,
		"{{ range $i, $x := .list }}{{ $i }}={{ $x }},{{ else }}none{{ end }}", "{{ range .none }}{{ else }}none{{ end }}",
		"{{ range 3 }}{{ . }}{{ end }}",
		"{{ with .labels }}{{ .port }}{{ end }}{{ if eq .name \"web\" }}yes{{ else }}no{{ end }}",
		`{{ html "<a>" }}{{ js "'" }}{{ urlquery "a b" }}{{ print .n .name }}{{ println .list }}`,
		`{{ define "x" }}[{{ . }}]{{ end }}{{ template "x" .name }}{{ block "y" .n }}({{ . }}){{ end }}`,
		"{{ range .list }}{{ if eq . \"a\" }}{{ continue }}{{ end }}{{ . }}{{ break }}{{ end }}",
		`{{ len .list }}{{ index .list 1 }}{{ slice .name 1 2 }}{{ not true }}{{ and 1 0 }}{{ or 0 2 }}{{ lt 1 2 }}`,
		`{{ printf "%[2]*[1]d" 1 2 | len | print "" }}`,
	} {
		got, err := run(text)
		var want strings.Builder
		plain, wantErr := template.New("command").Parse(text)
		if wantErr == nil {
			wantErr = plain.Execute(&want, data)
		}
		if strings.Contains(text, "*") { // the one thing that is refused
			if err == nil {
				t.Errorf("%q: %q", text, got)
			}
			continue
		}
		if got != want.String() || (err == nil) != (wantErr == nil) {
			t.Errorf("%q: %q, %v; text/template: %q, %v", text, got, err, want.String(), wantErr)
		}
	}
}

// Each of these would run for minutes or make gigabytes.
func TestLimits(t *testing.T) {
	for name, text := range map[string]string{
		"empty loops":          "{{ range 1000000000 }}{{ end }}",
		"nested loops":         "{{ range 1000 }}{{ range 1000 }}{{ range 1000 }}{{ end }}{{ end }}{{ end }}",
		"output":               "{{ range 10000 }}" + strings.Repeat("x", 10_000) + "{{ end }}",
		"doubled by printf":    `{{ $x := .long }}{{ range 40 }}{{ $x = printf "%s%s" $x $x }}{{ end }}`,
		"doubled by print":     `{{ $x := .long }}{{ range 40 }}{{ $x = print $x $x }}{{ end }}`,
		"one argument, often":  `{{ printf "` + strings.Repeat("%[1]s", 10_000) + `" .long }}`,
		"javascript's":         `{{ $x := "<<<<<<<<" }}{{ range 30 }}{{ $x = js $x }}{{ end }}`,
		"quotes of quotes":     `{{ $x := "\\\\\\\\" }}{{ range 40 }}{{ $x = printf "%q" $x }}{{ end }}`,
		"hexadecimal":          `{{ $x := .long }}{{ range 40 }}{{ $x = printf "%x" $x }}{{ end }}`,
		"a wide verb":          `{{ printf "%1000000d" 1 }}`,
		"wide verbs":           `{{ printf "` + strings.Repeat("%4000d", 5000) + `" }}`,
		"a width from outside": `{{ printf "%*d" 1000000 1 }}`,
		"recursion":            `{{ define "x" }}{{ template "x" . }}{{ end }}{{ template "x" . }}`,
		"branching recursion":  `{{ define "x" }}{{ template "x" . }}{{ template "x" . }}{{ end }}{{ template "x" . }}`,
		"a caller's function":  `{{ $x := .long }}{{ range 40 }}{{ $x = twice $x }}{{ end }}`,
		"a long text":          strings.Repeat("{{ .name }}", 10_000),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := time.Now()
		got, err := run(text)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: %d bytes, no error", name, len(got))
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 64<<20 {
			t.Errorf("%s: allocated %d MiB", name, made>>20)
		}
		if lasted := time.Since(begin); lasted > 20*time.Second { // a busy machine's; the limit is 100 ms
			t.Errorf("%s: ran for %s", name, lasted)
		}
	}
	if _, err := run("{{ range 1000000000 }}{{ end }}"); !errors.Is(err, ErrLimit) {
		t.Errorf("%v is not ErrLimit", err)
	}
}

func TestStrict(t *testing.T) {
	p, err := Parse("command", "{{ .none }}", nil, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Execute(data, false); got != "<no value>" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := p.Execute(data, true); err == nil || !strings.Contains(err.Error(), "none") {
		t.Error(err)
	}
}

func FuzzExecute(f *testing.F) {
	for _, seed := range []string{"{{ .name }}", `{{ range .list }}{{ printf "%5s" . }}{{ end }}`,
		`{{ define "x" }}{{ end }}{{ template "x" }}`, `{{ with $x := .n }}{{ $x }}{{ else with .name }}{{ end }}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { _, _ = run(text) })
}
