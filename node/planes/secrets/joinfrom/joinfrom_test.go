package joinfrom

import (
	"fmt"
	"strings"
	"testing"

	"corbel.dev/corbel/node/vaultconf"
)

// TestCloudsNameServers: a cloud's machines are servers at the port and by the scheme that the stanza says.
func TestCloudsNameServers(t *testing.T) {
	for text, want := range map[string]string{
		`auto_join = "provider=aws tag_key=a tag_value=b"`: "https 8200",
		`auto_join = "provider=mdns service=vault"
  auto_join_scheme = "http"
  auto_join_port = 8300`: "http 8300",
		`auto_join = "provider=aws"
  leader_api_addr = "http://a"`: "exclude each other",
		`auto_join = "provider=aws"
  auto_join_scheme = "ftp"`: "auto_join_scheme: \"ftp\" must be https or http",
		`auto_join = "provider=aws"
  auto_join_port = 0`: "auto_join_port: 0 must be 1 to 65535",
		`leader_tls_servername = "x"`: "leader_api_addr: is missing",
	} {
		cfg, err := vaultconf.Parse([]vaultconf.Source{{Name: "x.hcl", Text: "storage \"raft\" {\n  retry_join {\n  " + text +
			"\n  }\n}\nlistener \"tcp\" { tls_disable = true }\n"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if f, err := Read(cfg.Storage.Keys.Blocks("retry_join")[0], false); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%s %d", f.scheme, f.port)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
