package substitute

import (
	"strings"
	"testing"

	"corbel.dev/corbel/monitor"
)

func entity() *monitor.Entity {
	return &monitor.Entity{
		Meta: monitor.Meta{Name: "web-1", Namespace: "prod", Labels: map[string]string{"port": "8080", "password": "s3cret",
			"a-b": "dash"}},
		Class: "agent", System: monitor.System{Hostname: "host", OS: "linux"}, Subscriptions: []string{"linux", "web"}}
}

func TestText(t *testing.T) {
	d, err := NewData(entity())
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		"plain":                                        "plain",
		"{{ .name }} in {{.namespace}}":                "web-1 in prod",
		"{{ .labels.port }}":                           "8080",
		`{{ .labels.port | default "80" }}`:            "8080",
		`{{ .labels.none | default "80" }}`:            "80",
		`{{ .annotations.none | default 5 }}`:          "5",
		`{{ index .labels "a-b" }}`:                    "dash",
		"{{ .labels.password }}":                       "s3cret",
		"{{ .system.hostname }} {{ .system.os }}":      "host linux",
		"{{ range .subscriptions }}{{ . }},{{ end }}":  "linux,web,",
		`{{ assetPath "sensu/cpu-checks" }}/bin/check`: "${SENSU_CPU_CHECKS_PATH}/bin/check",
	} {
		if got, err := d.Text("command", in); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"{{ .labels.none }}": `unmatched token: template: command:1:10: executing "command" at ` +
			`<.labels.none>`,
		"{{ .labels.none":  "could not parse",
		"{{ frobnicate }}": "could not parse",
		"{{ .name.x }}":    "could not execute",
		"{{ range 100000000 }}0123456789{{ end }}":                               "was stopped", // by turns or by time
		`{{ $x := .name }}{{ range 40 }}{{ $x = printf "%s%s" $x $x }}{{ end }}`: "too much text",
		`{{ printf "%900000000d" 1 }}`:                                           "a width above",
	} {
		if got, err := d.Text("command", in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func TestCheckAndHook(t *testing.T) {
	d, err := NewData(entity())
	if err != nil {
		t.Fatal(err)
	}
	c := &monitor.CheckConfig{Meta: monitor.Meta{Name: "http", Labels: map[string]string{"url": "http://{{ .name }}"}},
		Command: `check -p {{ .labels.port }} "quoted"`,
		EnvVars: []string{"HOST={{ .system.hostname }}"}, Interval: 10, Scheduler: "memory",
		CheckHooks: []monitor.HookList{{Type: "non-zero", Hooks: []string{"ps"}}}}
	if err := d.Check(c); err != nil {
		t.Fatal(err)
	}
	if c.Command != `check -p 8080 "quoted"` || c.EnvVars[0] != "HOST=host" || c.Labels["url"] != "http://web-1" ||
		c.Interval != 10 || c.Scheduler != "memory" || c.CheckHooks[0].Hooks[0] != "ps" {
		t.Fatalf("%+v", c)
	}
	before := *c
	c.Command = "{{ .labels.none }}"
	if err := d.Check(c); err == nil || c.Command != "{{ .labels.none }}" || c.Interval != before.Interval {
		t.Fatalf("%v, %+v", err, c)
	}
	h := &monitor.HookConfig{Meta: monitor.Meta{Name: "ps"}, Command: "ps {{ .name }}", Timeout: 5}
	if err := d.Hook(h); err != nil || h.Command != "ps web-1" || h.Timeout != 5 {
		t.Fatalf("%v, %+v", err, h)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"{{ .name }}", `{{ .labels.x | default "y" }}`, "{{ range .subscriptions }}{{ end }}", "{{",
		"}}", `{{ assetPath "a" }}`, `{{ printf "%999999999d" 1 }}`} {
		f.Add(s)
	}
	d, err := NewData(entity())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := d.Text("command", text)
		if err == nil && len(got) > 1<<20 || err != nil && got != "" {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	})
}
