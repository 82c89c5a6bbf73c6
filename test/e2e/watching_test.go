package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
)

var (
	docsDir   = filepath.Join("..", "..", "docs")
	rulesFile = filepath.Join(docsDir, "alerts", "corbel.rules.yml")
)

// runbookURL is where the alerts say that the pages are.
const runbookURL = "https://corbel.dev/docs/runbook/"

type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// TestRunbook: one page and one alert for each finding, no page beside them, and each page has all its parts, a line
// in the table, and links that lead somewhere.
func TestRunbook(t *testing.T) {
	codes := doctor.Codes()
	pages, err := filepath.Glob(filepath.Join(docsDir, "runbook", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, page := range pages {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); name != "README" {
			named = append(named, name)
			checkPage(t, page, name)
		}
	}
	sameNames(t, "pages in docs/runbook", named, codes)

	table, err := os.ReadFile(filepath.Join(docsDir, "runbook", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed, alerted []string
	for _, m := range regexp.MustCompile(
		`(?m)^\| \[([a-z-]+)\]\(([a-z-]+)\.md\) \| .+ \| (critical|warning) \|$`).FindAllStringSubmatch(string(table), -1) {
		if m[1] != m[2] {
			t.Errorf("the table's %s leads to %s", m[1], m[2])
		}
		listed = append(listed, m[1])
	}
	sameNames(t, "lines of the table in docs/runbook/README.md", listed, codes)
	for _, a := range alerts(t) {
		code := a.Labels["code"]
		if url := a.Annotations["runbook_url"]; url != "" &&
			!slices.Contains(codes, strings.TrimSuffix(strings.TrimPrefix(url, runbookURL), ".md")) {
			t.Errorf("%s: no such page: %s", a.Alert, url)
		}
		if a.Annotations["summary"] == "" || !slices.Contains([]string{"critical", "warning"}, a.Labels["severity"]) {
			t.Errorf("%s: summary %q, severity %q", a.Alert, a.Annotations["summary"], a.Labels["severity"])
		}
		if code == "" {
			continue
		}
		alerted = append(alerted, code)
		if !strings.Contains(a.Expr, `consul_doctor_findings{code="`+code+`"} > 0`) ||
			a.Annotations["runbook_url"] != runbookURL+code+".md" {
			t.Errorf("%s: expression %s, page %s", a.Alert, a.Expr, a.Annotations["runbook_url"])
		}
		if !strings.Contains(string(table), "]("+code+".md) |") ||
			!regexp.MustCompile(`\(`+code+`\.md\) .*\| `+a.Labels["severity"]+` \|`).Match(table) {
			t.Errorf("%s: the table in docs/runbook says another severity than %s", a.Alert, a.Labels["severity"])
		}
	}
	sameNames(t, "alerts with the label code", alerted, codes)
}

func sameNames(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v\nfindings of the doctor: %v", what, got, want)
	}
}

func checkPage(t *testing.T, page, code string) {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if !strings.HasPrefix(text, "# "+code+": ") {
		t.Errorf("%s: its heading does not begin with its code", page)
	}
	at := 0
	for _, part := range []string{"What it means.", "What the doctor saw.", "Confirm it.", "Do now.",
		"Keep it from coming back.", "Often mistaken for."} {
		next := strings.Index(text, "\n**"+part+"** ")
		if next < 0 {
			next = strings.Index(text, "\n**"+part+"**\n")
		}
		if next < at {
			t.Errorf("%s: %q is missing, or not in its place", page, part)
			continue
		}
		at = next
	}
	if n := strings.Count(text, "\n"); n > 40 {
		t.Errorf("%s: %d lines are more than a screen", page, n)
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
			t.Errorf("%s: a link leads nowhere: %s", page, m[1])
		}
	}
}

// expression is PromQL with where it stands.
type expression struct{ where, text string }

// expressions are all of the dashboards and the alerts, dashboards' variables filled in.
func expressions(t *testing.T) []expression {
	t.Helper()
	var all []expression
	for _, a := range alerts(t) {
		all = append(all, expression{a.Alert, a.Expr})
	}
	files, err := filepath.Glob(filepath.Join(docsDir, "dashboards", "*.json"))
	if err != nil || len(files) < 6 {
		t.Fatalf("dashboards: %v %v", files, err)
	}
	fill := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*")
	uids := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			UID        string `json:"uid"`
			Templating struct {
				List []struct{ Definition string } `json:"list"`
			} `json:"templating"`
			Annotations struct {
				List []struct{ Name, Expr string } `json:"list"`
			} `json:"annotations"`
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			} `json:"panels"`
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if d.UID == "" || uids[d.UID] || len(d.Panels) == 0 {
			t.Errorf("%s: uid %q, %d panels", file, d.UID, len(d.Panels))
		}
		uids[d.UID] = true
		for _, v := range d.Templating.List {
			if name, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
				name, _, _ = strings.Cut(name, ",")
				all = append(all, expression{file + ": variable", name})
			}
		}
		for _, a := range d.Annotations.List {
			all = append(all, expression{file + ": " + a.Name, a.Expr})
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				text := fill.Replace(target.Expr)
				if text == "" || strings.Contains(text, "$") {
					t.Errorf("%s, %s: empty, or a variable that the dashboard does not define: %q", file, p.Title, target.Expr)
				}
				all = append(all, expression{file + ": " + p.Title, text})
			}
		}
	}
	return all
}

var (
	// notNames are parts of an expression in which no metric's name stands: strings, selectors, ranges, and the labels
	// of a grouping.
	notNames = regexp.MustCompile(`"[^"]*"|\[[^\]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	selector = regexp.MustCompile(`\{[^}]*\}`)
	word     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?`)
)

// metricNames are the names of metrics in an expression: words that are no operator and are not called as functions.
func metricNames(expr string) []string {
	var names []string
	for _, w := range word.FindAllString(selector.ReplaceAllString(notNames.ReplaceAllString(expr, " "), " "), -1) {
		if w = strings.TrimSpace(w); !strings.HasSuffix(w, "(") &&
			!slices.Contains([]string{"and", "or", "unless", "bool", "offset", "up"}, w) {
			names = append(names, w)
		}
	}
	return names
}

func TestMetricNames(t *testing.T) {
	for expr, want := range map[string]string{
		`sum by (a, b) (rate(x_sum{i=~"$i"}[5m])) / sum by (a) (rate(x_count[5m])) > 30`: "x_sum x_count",
		`max by (group) (a) == 0 and on () max(b) > 2`:                                   "a b",
		`(a{code="x"} > 0) or (up{job="c"} == 0)`:                                        "a",
		`0 < a:b < 7 * 24 * 3600`:                                                        "a:b",
	} {
		if got := strings.Join(metricNames(expr), " "); got != want {
			t.Errorf("%s: %s, want %s", expr, got, want)
		}
	}
}

// sometimes are metrics that a server alone on a machine like this one need not have, each with what it takes. Their
// names must be the product's all the same.
var sometimes = map[string]string{
	"consul_host_cgroup_throttled":     "a CPU quota",
	"consul_host_conntrack_used":       "connection tracking",
	"consul_host_io_busy_ms":           "a data folder on a disk",
	"consul_host_io_ms":                "a data folder on a disk",
	"consul_host_io_requests":          "a data folder on a disk",
	"consul_host_net_listen_overflows": "/proc/net/netstat",
	"consul_host_nic_dropped":          "a network card",
	"consul_host_nic_exceeded":         "a cloud's network card",
	"consul_host_nic_queue_packets":    "a card that counts by queue",
	"consul_host_psi":                  "a kernel with PSI",
	"consul_host_tcp_retransmits":      "another member",
	"consul_host_tcp_segments":         "another member",
	"consul_peer_clock_offset_ms":      "another member",
	"consul_telemetry_sink_dropped":    "a sink",
	"consul_usage_statsd_dropped":      "a port for dogstatsd",
}

// TestWatchedMetrics: each metric that a dashboard or an alert reads is there when Corbel runs.
func TestWatchedMetrics(t *testing.T) {
	wanted := map[string]string{}
	for _, e := range expressions(t) {
		names := metricNames(e.text)
		if len(names) == 0 {
			t.Errorf("%s reads no metric: %s", e.where, e.text)
		}
		for _, name := range names {
			wanted[name] = e.where
		}
	}
	words := productWords(t)
	for name, needs := range sometimes {
		dotted := strings.TrimPrefix(name, "consul_")
		if wanted[name] == "" || !words[dotted] {
			t.Errorf("%s (needs %s): read by %q, a name in the product: %v", name, needs, wanted[name], words[dotted])
		}
		delete(wanted, name)
	}
	sources := startWatched(t)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); ; <-tick.C {
		have := map[string]bool{}
		for _, s := range sources {
			scrape(t, s, have)
		}
		missing := slices.DeleteFunc(slices.Sorted(maps.Keys(wanted)), func(name string) bool { return have[name] })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, name := range missing {
				t.Errorf("%s, read by %s, does not exist", name, wanted[name])
			}
			return
		}
	}
}

// productWords are the string literals of the product that could name a metric, cleaned as the text form cleans names.
func productWords(t *testing.T) map[string]bool {
	t.Helper()
	words := map[string]bool{}
	literal := regexp.MustCompile(`"[a-zA-Z][a-zA-Z0-9_.-]*"`)
	clean := strings.NewReplacer(".", "_", "-", "_", `"`, "")
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && path != root && (strings.HasPrefix(e.Name(), ".") || e.Name() == "test" || e.Name() == "testdata") {
			return fs.SkipDir
		}
		// The doctor's rules name what they read, which nobody need report.
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			filepath.Dir(path) == filepath.Join(root, "doctor") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, w := range literal.FindAllString(string(text), -1) {
			words[clean.Replace(w)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return words
}

// source is where metrics are read.
type source struct{ url, header string }

// watchedJobs are a job that is deployed, and one that no node has room for.
var watchedJobs = []string{`{"Job":{"ID":"watched","Datacenters":["*"],"TaskGroups":[{"Name":"g","Count":1,
	"Update":{"HealthCheck":"task_states","MinHealthyTime":1000000},"Tasks":[{"Name":"t","Driver":"raw_exec",
	"Config":{"command":"/bin/sleep","args":["600"]},"Resources":{"CPU":1,"MemoryMB":10}}]}]}}`,
	`{"Job":{"ID":"waits","Type":"batch","Datacenters":["*"],"TaskGroups":[{"Name":"g","Count":1,"Tasks":[{"Name":"t",
	"Driver":"raw_exec","Config":{"command":"/bin/true"},"Resources":{"MemoryMB":900000000}}]}]}}`}

// startWatched runs a server of all planes: dev for catalog, mesh, monitor and jobs, and one of the secrets plane.
func startWatched(t *testing.T) []source {
	t.Helper()
	ports := map[string]int{}
	for _, name := range []string{"http", "dns", "server", "serf", "grpc", "monitor", "agents", "secrets", "jobs"} {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		ports[name] = port
	}
	start := func(args ...string) {
		cmd := exec.Command(filepath.Join(binDir, "corbel"), args...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		})
	}
	flag := func(name string) string { return strconv.Itoa(ports[name]) }
	start("dev", "--log-level", "error", "--http-port", flag("http"), "--dns-port", flag("dns"), "--server-port",
		flag("server"), "--serf-lan-port", flag("serf"),
		"--hcl", fmt.Sprintf("ports { grpc = %d\n monitor = %d\n monitor_agents = %d }\njobs { port = %d }",
			ports["grpc"], ports["monitor"], ports["agents"], ports["jobs"]))
	start("vault", "server", "-dev", "-dev-root-token-id=root", "-dev-listen-address=127.0.0.1:"+flag("secrets"),
		"-dev-no-store-token")
	for _, job := range watchedJobs {
		polltest.NoError(t, 2*time.Minute, func() error {
			resp, err := http.Post("http://127.0.0.1:"+flag("jobs")+"/v1/jobs", "application/json", strings.NewReader(job))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %s", resp.Status, text)
			}
			return err
		}, "a job")
	}
	return []source{
		{"http://127.0.0.1:" + flag("http") + "/v1/agent/metrics?format=prometheus", "X-Consul-Token"},
		{"http://127.0.0.1:" + flag("jobs") + "/v1/metrics?format=prometheus", "X-None"},
		{"http://127.0.0.1:" + flag("http") + "/v1/usage/metrics", "X-Consul-Token"},
		{"http://127.0.0.1:" + flag("secrets") + "/v1/sys/metrics?format=prometheus", "X-Vault-Token"},
		{"http://127.0.0.1:" + flag("monitor") + "/metrics", "X-None"},
	}
}

// scrape adds the names at a source. What does not answer yet has none.
func scrape(t *testing.T, s source, have map[string]bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(s.header, "root")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return
	}
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, "#") {
			have[line[:strings.IndexAny(line, "{ \n")]] = true
		}
	}
}

// TestPromtool has Prometheus's own tool read the alerts, play them on figures, and read every expression of the
// dashboards.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		loud.Skip(t, "promtool is not installed: nobody has checked the alert rules and the dashboards' expressions "+
			"(Debian: apt-get install prometheus)")
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	run("check", "rules", "--lint-fatal", rulesFile)
	run("test", "rules", filepath.Join("testdata", "alerts.test.yml"))

	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	for i, e := range expressions(t) {
		rules = append(rules, rule{"x:" + strconv.Itoa(i), e.text})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "dashboards", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dashboards.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	run("check", "rules", file)
}
