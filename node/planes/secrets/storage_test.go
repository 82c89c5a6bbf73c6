package secretsplane

import (
	"io"
	"strings"
	"testing"

	"corbel.dev/corbel/node/vaultconf"
)

// TestRetryJoinOfClouds: servers that a cloud would name stop neither -check nor a start; TLS files that are missing
// stop both.
func TestRetryJoinOfClouds(t *testing.T) {
	const text = `storage "raft" {
  path = "/none"
  retry_join { auto_join = "provider=other tag_key=x" }
  retry_join { leader_api_addr = "http://a:8200" }
}
`
	parse := func(more string) *vaultconf.Config {
		t.Helper()
		cfg, err := vaultconf.Parse([]vaultconf.Source{{Name: "x.hcl", Text: text + more}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	none := func(string) string { return "" }
	var told strings.Builder
	if err := CheckServer(parse(`listener "tcp" { tls_disable = true }`), none, &told); err != nil ||
		!strings.Contains(told.String(), "auto_join: has no effect") {
		t.Errorf("%v, %s", err, told.String())
	}
	bad := `listener "tcp" { tls_cert_file = "/none/c" tls_key_file = "/none/k" }`
	if err := CheckServer(parse(bad), none, io.Discard); err == nil || !strings.Contains(err.Error(), "/none/c") {
		t.Error(err)
	}
	if _, err := NewServer(parse(bad), io.Discard); err == nil || !strings.Contains(err.Error(), "/none/c") {
		t.Error(err)
	}
}
