package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"corbel.dev/corbel/monitor/users"
)

var (
	hclSample = regexp.MustCompile("(?s)```hcl\n(.*?)```")
	// notOurs begin what other programs read: policies, the secrets plane's own file, the snapshot agent's; and sections
	// of planes, which package node judges.
	notOurs = regexp.MustCompile(`(?m)^(path "|key_prefix "|usage "|storage|seal "|plugin_directory|snapshot_agent|` +
		`(?:jobs|usage) \{|job "|namespace ")`)
	// hclFile is one that a shell's block writes.
	hclFile = regexp.MustCompile("(?s)cat > [a-z]+\\.hcl <<END\n(.*?)\nEND\n")
	elided  = strings.NewReplacer("$(corbel keygen)", gossipKey, "the key of corbel keygen", gossipKey,
		`encrypt   = "..."`, `encrypt = "`+gossipKey+`"`,
		`"BIND"`, `"10.0.0.5"`, "$CORBEL_HTTP_TOKEN", "6f9fe2fe-9b8b-4a37-9e0d-7a3a1f1d8f10")
)

const gossipKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// samples are the pieces of configuration in the documentation, by file and number.
func samples(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	var files []string
	for _, pattern := range []string{"../../README.md", "../../docs/*.md", "../../docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := append(hclFile.FindAllStringSubmatch(string(text), -1), hclSample.FindAllStringSubmatch(string(text), -1)...)
		for i, m := range found {
			if piece := elided.Replace(m[1]); !notOurs.MatchString(piece) {
				out[strings.TrimPrefix(file, "../../")+" "+string(rune('1'+i))] = piece
			}
		}
	}
	return out
}

// unsafe says what a stranger on the network could use; "" is nothing.
func unsafe(c *Config) string {
	switch {
	case c.TLS.Disabled || !c.TLS.InternalRPC.Enabled() && !c.AutoEncrypt.TLS:
		return "no TLS between processes"
	case !c.TLS.InternalRPC.VerifyServerHostname:
		return "server names are not checked"
	case len(c.Gossip.EncryptKey) == 0 && !c.AutoConfig.Enabled:
		return "gossip is not encrypted"
	case !c.ACL.Enabled || c.ACL.DefaultPolicy != "deny":
		return "rights are not denied by default"
	case c.Monitor.AdminSecret == users.AgentPassword || c.ACL.InitialManagement == "root":
		return "a password that everybody knows"
	}
	for _, addr := range append(c.Listen.HTTP, c.Listen.GRPC...) {
		if !loopback(addr) {
			return "plain text at " + addr
		}
	}
	if c.MonitorExposed() && !c.TLS.Monitor.Enabled() {
		return "the monitor plane in plain text"
	}
	return ""
}

// TestSamplesAreSafe: whoever starts a server or an agent beyond loopback with a sample of the documentation has TLS,
// encryption, checked server names and no known password, or it does not start and says what is missing. In the
// surroundings that docs/cluster.md has, each starts.
func TestSamplesAreSafe(t *testing.T) {
	t.Parallel()
	all := samples(t)
	base := all["docs/cluster.md 1"]
	if !strings.Contains(base, "bootstrap_expect") || len(all) < 12 {
		t.Fatalf("the samples of the documentation are gone: %d", len(all))
	}
	load := func(server bool, pieces ...string) (*Config, error) {
		return Load(Options{Server: server, Hostname: "h",
			Fragments: append([]string{"data_dir = \"/d\"\nbind_addr = \"0.0.0.0\"\nadvertise_addr = \"10.0.0.5\""}, pieces...)})
	}
	for name, text := range all {
		pieces := map[bool]string{true: text} // by whether it is a server's
		if servers, agents, both := strings.Cut(text, "\n# agents\n"); both {
			pieces = map[bool]string{true: servers, false: agents}
		}
		for server, piece := range pieces {
			c, err := load(server, piece)
			switch {
			case err == nil && unsafe(c) != "" && (server || c.TLS.InternalRPC.Enabled()):
				t.Errorf("%s alone starts, and there is %s:\n%s", name, unsafe(c), piece)
			case err != nil && !strings.Contains(err.Error(), "encrypt") && !strings.Contains(err.Error(), "tls"):
				t.Errorf("%s alone does not say what is missing: %v", name, err)
			}
			if strings.Contains(piece, "bootstrap") || name == "docs/getting-started.md 1" {
				if err != nil && strings.Contains(piece, "bootstrap") {
					t.Errorf("%s is meant to start as it stands: %v", name, err)
				}
				continue
			}
			around := base
			if !server {
				around = `encrypt = "` + gossipKey + `"`
			}
			if c, err = load(server, around, piece); err != nil || unsafe(c) != "" {
				t.Errorf("%s within docs/cluster.md's: %v, %s\n%s", name, err, unsafeOf(c), piece)
			}
		}
	}
}

func unsafeOf(c *Config) string {
	if c == nil {
		return ""
	}
	return unsafe(c)
}

// What a validation judges without being told which it is: keys of servers make it a server.
func TestEitherKind(t *testing.T) {
	t.Parallel()
	for text, server := range map[string]bool{"bootstrap_expect = 3": true, "bootstrap = true": true,
		"monitor { enabled = true }": true, "log_level = \"info\"": false} {
		c, err := Load(Options{Either: true, Hostname: "h",
			Fragments: []string{"data_dir = \"/d\"\nbind_addr = \"127.0.0.1\"", text}})
		if err != nil || c.Server != server {
			t.Errorf("%s: %v, %v", text, c, err)
		}
	}
}
