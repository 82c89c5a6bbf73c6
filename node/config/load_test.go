package config

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares got with a file and rewrites the file under -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s differs (%v); run with -update and read the diff\ngot:\n%s", path, err, got)
	}
}

// story loads the files, variables and flags of one testdata archive and tells the result.
func story(t *testing.T, a *txtar.Archive) string {
	dir := t.TempDir()
	t.Chdir(dir)
	o := Options{Hostname: "host-1", Template: func(string) (string, error) { return "10.9.8.7", nil }}
	var show []string
	for _, f := range a.Files {
		lines := strings.Split(strings.TrimSpace(string(f.Data)), "\n")
		switch f.Name {
		case "env":
			o.Env = lines
		case "flags":
			for _, line := range lines {
				key, value, _ := strings.Cut(line, "=")
				o.Flags = append(o.Flags, Setting{key, value, "-" + key})
			}
		case "hcl":
			o.Fragments = append(o.Fragments, string(f.Data))
		case "options":
			for _, word := range strings.Fields(string(f.Data)) {
				switch word {
				case "dev":
					o.Dev = true
				case "server":
					o.Server = true
				case "consul":
					o.Style = Consul
				default:
					t.Fatalf("unknown option %q", word)
				}
			}
		case "show":
			show = lines
		case "golden":
		default:
			if err := os.MkdirAll(filepath.Dir(f.Name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f.Name, f.Data, 0o644); err != nil {
				t.Fatal(err)
			}
			if d := filepath.Dir(f.Name); d != "." {
				if !slices.Contains(o.Dirs, d) {
					o.Dirs = append(o.Dirs, d)
				}
			} else {
				o.Files = append(o.Files, f.Name)
			}
		}
	}
	c, err := Load(o)
	if err != nil {
		return "error: " + strings.Join(Problems(err), "\nerror: ") + "\n"
	}
	var b strings.Builder
	for _, w := range c.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	public := c.Public()
	public["listen.http"], public["listen.rpc"], public["advertise.rpc"] = c.Listen.HTTP, c.Listen.RPC, c.Advertise.RPC
	for _, key := range show {
		v, ok := public[key]
		if !ok {
			t.Fatalf("show: no key %q", key)
		}
		fmt.Fprintf(&b, "%s = %v (%s)\n", key, v, c.Origin(key))
	}
	return b.String()
}

// TestStories loads what testdata/*.txtar describe and compares with their golden section.
func TestStories(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) < 5 {
		t.Fatal("stories are missing", err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			path := filepath.Join(wd, path)
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := story(t, a)
			i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == "golden" })
			if i < 0 {
				a.Files = append(a.Files, txtar.File{Name: "golden"})
				i = len(a.Files) - 1
			}
			if *update {
				a.Files[i].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := string(a.Files[i].Data); got != want {
				t.Errorf("got:\n%swant:\n%s", got, want)
			}
		})
	}
}

// TestNames holds the schema together: no old or ignored name is a key, every old
// name leads to a key, every default is accepted and no two keys share a variable.
func TestNames(t *testing.T) {
	s := schemaOf(new(Config))
	for old, path := range oldNames {
		if s.keys[old] != nil || s.keys[path] == nil {
			t.Errorf("old name %s -> %s", old, path)
		}
	}
	for path := range ignoredKeys {
		if s.keys[path] != nil || oldNames[path] != "" {
			t.Errorf("ignored key %s is not ignored", path)
		}
	}
	variables := map[string]string{}
	for path, k := range s.keys {
		name := strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
		if other, twice := variables[name]; twice {
			t.Errorf("CORBEL_%s is both %s and %s", name, other, path)
		}
		variables[name] = path
		if k.doc == "" {
			t.Errorf("%s has no doc", path)
		}
		if k.def != "" {
			if err := k.assign(k.def); err != nil {
				t.Errorf("%s: default: %v", path, err)
			}
		}
	}
	for _, f := range Flags() {
		if s.keys[f.Key] == nil && ignoredKeys[f.Key] == "" {
			t.Errorf("flag %s sets no key", f.Name)
		}
	}
}

// TestNeedsRestart: a reload takes some keys, others wait for a restart.
func TestNeedsRestart(t *testing.T) {
	load := func(text string) *Config {
		c, err := Load(Options{Dev: true, Hostname: "h", Fragments: []string{text}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	got := NeedsRestart(load(``), load(`log_level = "debug" node_meta { a = "b" } dns_config { node_ttl = "3s" } ports `+
		`{ http = 1 }`))
	if fmt.Sprint(got) != "[node_meta ports.http]" {
		t.Fatal(got)
	}
}

func TestPublicHidesSecrets(t *testing.T) {
	c, err := Load(Options{Dev: true, Hostname: "h",
		Fragments: []string{`acl { tokens { agent = "s3cret" } } encrypt = "c2VjcmV0c2VjcmV0MTIzNA=="`}})
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(c.Public()); strings.Contains(text, "s3cret") || strings.Contains(text, "c2VjcmV0") ||
		strings.Contains(text, ":root") {
		t.Fatal("a secret shows: ", text)
	}
}

// TestReference keeps docs/configuration.md equal to the schema.
func TestReference(t *testing.T) {
	const path = "../../docs/configuration.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- keys: go test ./node/config -update -->\n", "<!-- end of keys -->\n"
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the marks of the key tables are gone")
	}
	golden(t, path, head+begin+reference()+end+tail)
}

func reference() string {
	s := schemaOf(new(Config))
	var b strings.Builder
	b.WriteString("\n### Honoured\n\n\"reload\" means that SIGHUP or `corbel reload` applies a change; all else waits " +
		"for a restart.\n\n")
	b.WriteString(s.table())
	b.WriteString("\n### Old names\n\n| old | use |\n|---|---|\n")
	for _, old := range sortedNames(oldNames) {
		fmt.Fprintf(&b, "| `%s` | `%s` |\n", old, oldNames[old])
	}
	b.WriteString("\n### Accepted without effect\n\nEach gives one warning at start; so does everything below it.\n\n| " +
		"key | why |\n|---|---|\n")
	for _, path := range sortedNames(ignoredKeys) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", path, ignoredKeys[path])
	}
	b.WriteString("\n")
	return b.String()
}

func sortedNames(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// TestReadObject: HCL blocks become objects, or lists where config entries have lists.
func TestReadObject(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`Kind = "service-intentions" Name = "db" Sources { Name = "web" Action = "allow" }`,
			`{"Kind":"service-intentions","Name":"db","Sources":[{"Action":"allow","Name":"web"}]}`},
		{`Kind = "proxy-defaults" Config { protocol = "http" }`, `{"Config":{"protocol":"http"},"Kind":"proxy-defaults"}`},
		{`Subsets = { v1 = { Filter = "x" } } Sources = [ { Name = "a" Permissions = [ { HTTP { PathPrefix = "/" } } ] } ]`,
			`{"Sources":[{"Name":"a","Permissions":[{"HTTP":{"PathPrefix":"/"}}]}],"Subsets":{"v1":{"Filter":"x"}}}`},
		{`{"Kind":"mesh","N":1.5}`, `{"Kind":"mesh","N":1.5}`},
	} {
		object, err := ReadObject("-", []byte(tt.in))
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if got, err := json.Marshal(object); err != nil || string(got) != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.in, got, tt.want)
		}
	}
	if _, err := ReadObject("x.json", []byte("{")); err == nil {
		t.Error("half an object was read")
	}
}

// An offset moves each port that is on, and none that is off or the system's to choose.
func TestPortOffset(t *testing.T) {
	load := func(by int) (*Config, error) {
		return Load(Options{Dev: true, Server: true, PortOffset: by,
			Fragments: []string{"ports { https = -1 dns = 0 http = 9500 }"}})
	}
	c, err := load(1000)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Ports
	got := []int{p.HTTP, p.HTTPS, p.DNS, p.Server, p.SerfLAN, p.GRPC, p.Secrets, p.Monitor, p.MonitorAgents}
	if want := []int{10500, -1, 0, 9300, 9301, 9502, 9200, 9080, 9081}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if c.Listen.HTTP[0] != "127.0.0.1:10500" {
		t.Errorf("listens at %s", c.Listen.HTTP)
	}
	for _, by := range []int{-1, maxPortOffset + 1} {
		if _, err := load(by); err == nil || !strings.Contains(err.Error(), "-port-offset") {
			t.Errorf("%d: %v", by, err)
		}
	}
}
