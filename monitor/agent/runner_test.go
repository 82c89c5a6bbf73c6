package agent

import (
	"archive/tar"
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/asset"
)

// check is a request of a check with a command.
func check(name, command string, issued int64) *monitor.CheckRequest {
	return &monitor.CheckRequest{Issued: issued,
		Config: &monitor.CheckConfig{Meta: monitor.Meta{Name: name, Namespace: "default"}, Command: command, Interval: 10}}
}

func TestChecksRun(t *testing.T) {
	b := newBackend(t)
	a, _ := start(t, b, func(c *Config) { c.Labels = map[string]string{"port": "8080", "secret": "s3cret"} })
	connected(t, a)
	for name, c := range map[string]struct {
		change func(*monitor.CheckRequest)
		status uint32
		output string
	}{
		"ok":      {func(r *monitor.CheckRequest) { r.Config.Command = "echo fine" }, 0, "fine\n"},
		"warning": {func(r *monitor.CheckRequest) { r.Config.Command = "echo hm >&2; exit 1" }, 1, "hm\n"},
		"other":   {func(r *monitor.CheckRequest) { r.Config.Command = "exit 42" }, 42, ""},
		"absent":  {func(r *monitor.CheckRequest) { r.Config.Command = "corbel-no-such-plugin 2>/dev/null" }, 127, ""},
		"tokens": {func(r *monitor.CheckRequest) {
			r.Config.Command = `echo {{ .labels.port }} {{ .labels.none | default "x" }} {{ .labels.secret }}`
		}, 0, "8080 x s3cret\n"},
		"unmatched": {func(r *monitor.CheckRequest) { r.Config.Command = "echo {{ .labels.none }}" }, 3, "unmatched token"},
		"environment": {func(r *monitor.CheckRequest) {
			r.Config.Command, r.Config.EnvVars = "echo $A$SECRET", []string{"A=b"}
			r.Secrets = []string{"SECRET=c"}
		}, 0, "bc\n"},
		"timeout": {func(r *monitor.CheckRequest) { r.Config.Command, r.Config.Timeout = "echo begun; sleep 600", 1 }, 2,
			"Execution timed out\nbegun\n"},
		"discarded": {func(r *monitor.CheckRequest) { r.Config.Command, r.Config.DiscardOutput = "echo much; exit 1", true },
			1, ""},
		"load": {func(r *monitor.CheckRequest) { r.Config.Command = testCommand }, 0, cannedOutput},
		"invalid": {func(r *monitor.CheckRequest) {
			r.Config.Command, r.Config.CheckHooks = "echo", []monitor.HookList{{Type: "strange"}}
		}, 3, "given check is invalid: "},
		"assets are off": {func(r *monitor.CheckRequest) {
			r.Config.Command, r.Assets = "echo", []monitor.Asset{{Meta: monitor.Meta{Name: "a"}}}
		}, 3, "check requested assets, but they are disabled on this agent"},
	} {
		t.Run(name, func(t *testing.T) {
			r := check(strings.ReplaceAll(name, " ", "-"), "", 5)
			c.change(r)
			asked := r.Config.Command
			b.request(t, "linux", r)
			e := b.event(t, "web-1", r.Config.Name, nil)
			exact := e.Check.Output == c.output || c.status == 3 && strings.Contains(e.Check.Output, c.output)
			if e.Check.Status != c.status || !exact || e.Check.Issued != 5 || e.Check.ProcessedBy != "web-1" || len(e.ID) != 16 {
				t.Errorf("%d %q, %+v", e.Check.Status, e.Check.Output, e.Check)
			}
			if e.Check.Command != asked {
				t.Errorf("the event tells what tokens stand for: %q", e.Check.Command)
			}
		})
	}
}

func TestAnEventOnStandardInput(t *testing.T) {
	b := newBackend(t)
	a, _ := start(t, b, nil)
	connected(t, a)
	r := check("stdin", "cat", 1)
	r.Config.Stdin = true
	b.request(t, "linux", r)
	var got monitor.Event
	if e := b.event(t, "web-1", "stdin", nil); json.Unmarshal([]byte(e.Check.Output), &got) != nil ||
		got.Entity.Name != "web-1" || got.Check.Name != "stdin" {
		t.Fatalf("%s", e.Check.Output)
	}
}

func TestHooks(t *testing.T) {
	b := newBackend(t)
	a, _ := start(t, b, nil)
	connected(t, a)
	r := check("hooked", "echo bad; exit 2", 1)
	r.Config.CheckHooks = []monitor.HookList{{Type: "critical", Hooks: []string{"ps", "gone"}},
		{Type: "non-zero", Hooks: []string{"ps", "slow"}}, {Type: "ok", Hooks: []string{"never"}},
		{Type: "2", Hooks: []string{"name"}}}
	hook := func(name, command string, timeout uint32) monitor.HookConfig {
		return monitor.HookConfig{Meta: monitor.Meta{Name: name, Namespace: "default"}, Command: command, Timeout: timeout}
	}
	r.Hooks = []monitor.HookConfig{hook("ps", "echo processes; exit 1", 10), hook("slow", "sleep 600", 1),
		hook("never", "echo no", 1), hook("name", "echo {{ .name }}; cat", 10)}
	r.Hooks[3].Stdin = true
	b.request(t, "linux", r)
	e := b.event(t, "web-1", "hooked", nil)
	var got []string
	for _, h := range e.Check.Hooks {
		got = append(got, fmt.Sprintf("%s %d %.20q", h.Name, h.Status, h.Output))
	}
	want := []string{`ps 1 "processes\n"`, `gone 2 "hook gone: missing h"`, `slow 2 "Execution timed out\n"`}
	if len(got) != 4 || strings.Join(got[:3], "|") != strings.Join(want, "|") {
		t.Fatalf("%q", got)
	}
	if h := e.Check.Hooks[3]; !strings.HasPrefix(h.Output, "web-1\n") || !strings.Contains(h.Output, `"output":"bad\n"`) ||
		h.Command != "echo {{ .name }}; cat" {
		t.Fatalf("%+v", h)
	}
}

func TestMetricsAndThresholds(t *testing.T) {
	b := newBackend(t)
	a, _ := start(t, b, nil)
	connected(t, a)
	r := check("disk", "echo 'OK | used=95%;;;0;100 free=5'", 1)
	r.Config.MetricFormat, r.Config.MetricHandlers = "nagios_perfdata", []string{"influx"}
	r.Config.MetricTags = []*monitor.MetricTag{{Name: "dc", Value: "eu"}}
	r.Config.MetricThresholds = []*monitor.MetricThreshold{{Name: "used",
		Thresholds: []*monitor.ThresholdLimits{{Max: "90", Status: 1}}}}
	b.request(t, "linux", r)
	for {
		e := polltest.Get(t, b.published, "the event")
		if e.Check == nil || e.Check.Name != "disk" {
			continue
		}
		m := e.Metrics
		if e.Check.Status != 1 || m == nil || len(m.Points) != 2 || m.Points[0].Name != "used" || m.Points[0].Value != 95 ||
			m.Points[0].Tags[0].Value != "eu" || m.Handlers[0] != "influx" {
			t.Fatalf("%+v %+v", e.Check, m)
		}
		if !strings.Contains(e.Annotations["sensu.io/notifications/warning"], "The value of used exceeded") {
			t.Fatalf("%v", e.Annotations)
		}
		return
	}
}

func TestARequestRunsOnce(t *testing.T) {
	b := newBackend(t)
	dir := t.TempDir()
	a, _ := start(t, b, nil)
	connected(t, a)
	file := filepath.Join(dir, "runs")
	runs := func() string {
		text, _ := os.ReadFile(file)
		return string(text)
	}
	for _, issued := range []int64{1000, 1000, 900, 1001} { // again, older, newer
		b.request(t, "linux", check("once", fmt.Sprintf("echo %d >> %s", issued, file), issued))
		done := check("done", "true", issued*10+int64(len(runs())))
		b.request(t, "linux", done)
		b.event(t, "web-1", "done", func(e *monitor.Event) bool { return e.Check.Issued == done.Issued })
		polltest.Until(t, func() bool { a.runner.mu.Lock(); defer a.runner.mu.Unlock(); return len(a.runner.busy) == 0 },
			"the end of the runs")
	}
	if got := runs(); got != "1000\n1001\n" {
		t.Fatalf("%q", got)
	}
	// A clock that was set back by an hour does not silence a check for an hour.
	b.request(t, "linux", check("once", "echo back >> "+file, 1001-3600))
	polltest.Until(t, func() bool { return strings.HasSuffix(runs(), "back\n") }, "the run after the clock was set back")
	// One that still runs is not run beside itself.
	b.request(t, "linux", check("long", "echo begun >> "+file+"; while [ ! -e "+dir+"/stop ]; do sleep 0.05; done", 1))
	polltest.Until(t, func() bool { return strings.HasSuffix(runs(), "begun\n") }, "the long run")
	b.request(t, "linux", check("long", "echo twice >> "+file, 2))
	proxy := check("long", "echo proxy >> "+file, 2)
	proxy.Config.ProxyEntityName = "router"
	b.request(t, "linux", proxy)
	polltest.Until(t, func() bool { return strings.HasSuffix(runs(), "proxy\n") }, "the run for another entity")
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.event(t, "web-1", "long", nil)
	if strings.Contains(runs(), "twice") {
		t.Fatal(runs())
	}
}

func TestSequencesBeginAnewWithEachSession(t *testing.T) {
	b := newBackend(t)
	a, _ := start(t, b, nil)
	connected(t, a)
	for i := range int64(2) {
		b.request(t, "linux", check("seq", "true", i+1))
		b.event(t, "web-1", "seq", func(e *monitor.Event) bool { return e.Check.Issued == i+1 && e.Sequence == i+1 })
	}
	b.down()
	polltest.Until(t, func() bool { return !a.Connected() }, "the end of the session")
	b.up()
	connected(t, a)
	// A request goes to the session of the moment, at most once: on a busy machine that one may end before it has run.
	issued, first := int64(9), int64(0)
	polltest.Until(t, func() bool {
		b.request(t, "linux", check("seq", "true", issued))
		issued++
		e, err := b.ingest.Get("default", "web-1", "seq")
		if err != nil || e.Check.Issued < 9 {
			return false
		}
		first = e.Sequence
		return true
	}, "an event of the new session")
	if first > issued-9 {
		t.Errorf("sequence %d after %d requests of the new session", first, issued-9)
	}
}

// TestResultsWaitWhileThereIsNoBackend: the check began with a session, and ended without.
func TestResultsWaitWhileThereIsNoBackend(t *testing.T) {
	b := newBackend(t)
	a, _ := start(t, b, nil)
	connected(t, a)
	stop := filepath.Join(t.TempDir(), "stop")
	b.request(t, "linux", check("late", "while [ ! -e "+stop+" ]; do sleep 0.05; done; echo late", 1))
	polltest.Until(t, func() bool { a.runner.mu.Lock(); defer a.runner.mu.Unlock(); return a.runner.busy["late"] },
		"the run")
	b.down()
	polltest.Until(t, func() bool { return !a.Connected() }, "the end of the session")
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { return a.results.depth.Load() == 1 }, "the result on disk")
	b.up()
	if e := b.event(t, "web-1", "late", nil); e.Check.Output != "late\n" {
		t.Fatalf("%+v", e.Check)
	}
}

func TestTheAllowList(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "plugin")
	text := []byte("#!/bin/sh\necho $A$1\n")
	if err := os.WriteFile(plugin, text, 0o700); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(text)
	b := newBackend(t)
	a, _ := start(t, b, func(c *Config) {
		c.Allow = []Allowed{
			{Exec: plugin, Args: []string{"-w", "-w 10", "x"}, SHA512: hex.EncodeToString(sum[:])},
			{Exec: "/bin/echo", Args: []string{"a"}, EnableEnv: true},
			{Exec: "/bin/sleep", Args: []string{"0"}, SHA512: strings.Repeat("00", 64)},
		}
	})
	connected(t, a)
	for i, c := range []struct {
		command string
		status  uint32
		output  string
	}{
		{plugin + " -w 10", 0, "-w\n"}, {plugin + " x -w", 0, "x\n"}, {plugin, 0, "\n"},
		{plugin + " -c", 3, "denied"}, {plugin + "; rm x", 3, "denied"}, {plugin + " -w 10; x", 3, "denied"},
		{"/bin/cat", 3, "denied"},
		{"/bin/echo a", 0, "a\n"}, {"/bin/sleep 0", 3, "denied"},
	} {
		r := check(fmt.Sprint("allow-", i), c.command, 1)
		r.Config.EnvVars = []string{"A=leaked"}
		b.request(t, "linux", r)
		e := b.event(t, "web-1", r.Config.Name, nil)
		if e.Check.Status != c.status || e.Check.Output != c.output && (c.status != 3 ||
			!strings.Contains(e.Check.Output, c.output)) {
			t.Errorf("%s: %d %q", c.command, e.Check.Status, e.Check.Output)
		}
	}
	r := check("quiet", "/bin/cat", 1)
	r.Config.Annotations = map[string]string{annotationOnDeny: "0"}
	b.request(t, "linux", r)
	if e := b.event(t, "web-1", "quiet", nil); e.Check.Status != 0 || !strings.Contains(e.Check.Output, "denied") {
		t.Errorf("%d %q", e.Check.Status, e.Check.Output)
	}
}

func TestRuntimeAssets(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	body := "#!/bin/sh\necho from the asset\n"
	if err := w.WriteHeader(&tar.Header{Name: "bin/corbel-test-plugin", Mode: 0o755, Size: int64(len(body)),
		Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(body))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(archive.Bytes())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(archive.Bytes())
	}))
	defer s.Close()
	fetcher, err := asset.New(asset.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	b := newBackend(t)
	a, _ := start(t, b, func(c *Config) { c.Assets = fetcher })
	connected(t, a)
	r := check("with-asset", `corbel-test-plugin; test -x {{ assetPath "my/plugin" }}/bin/corbel-test-plugin`, 1)
	r.Assets = []monitor.Asset{{Meta: monitor.Meta{Name: "my/plugin"}, URL: s.URL + "/a.tar",
		SHA512: hex.EncodeToString(sum[:])}}
	b.request(t, "linux", r)
	if e := b.event(t, "web-1", "with-asset", nil); e.Check.Status != 0 || e.Check.Output != "from the asset\n" {
		t.Errorf("%d %q", e.Check.Status, e.Check.Output)
	}
	r = check("bad-asset", "true", 1)
	r.Assets = []monitor.Asset{{Meta: monitor.Meta{Name: "bad"}, URL: s.URL + "/a.tar", SHA512: strings.Repeat("0", 128)}}
	b.request(t, "linux", r)
	if e := b.event(t, "web-1", "bad-asset", nil); e.Check.Status != 3 ||
		!strings.Contains(e.Check.Output, "error getting assets for check") {
		t.Errorf("%d %q", e.Check.Status, e.Check.Output)
	}
}

func TestHookTypes(t *testing.T) {
	for _, c := range []struct {
		kind   string
		status uint32
		want   bool
	}{
		{"0", 0, true}, {"ok", 0, true}, {"non-zero", 0, false}, {"1", 1, true}, {"warning", 1, true}, {"critical", 1, false},
		{"2", 2, true}, {"critical", 2, true},
		{"unknown", 2, false}, {"unknown", 3, true}, {"unknown", 255, true}, {"non-zero", 255, true}, {"255", 255, true},
		{"", 0, false}, {"strange", 1, false},
	} {
		if got := hookFits(c.kind, c.status); got != c.want {
			t.Errorf("%q after %d: %t", c.kind, c.status, got)
		}
	}
}
