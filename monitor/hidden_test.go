package monitor_test

import (
	"encoding/json"
	"strings"
	"testing"

	"corbel.dev/corbel/monitor"
)

// TestHiddenSecretsGoNowhereElse: who may change a provider and not see its secret cannot have it sent elsewhere.
func TestHiddenSecretsGoNowhereElse(t *testing.T) {
	old := &monitor.AuthProvider{Server: "https://idp.example", ClientSecret: "s3cret"}
	for server, kept := range map[string]bool{"https://idp.example": true, "https://evil.example": false} {
		next := old.Shown()
		next.Server = server
		if next.Keep(old); (next.ClientSecret == "s3cret") != kept {
			t.Errorf("%s: the client's secret is %q", server, next.ClientSecret)
		}
	}
	for _, spec := range []string{`{"Client":{"address":"https://vault.example","Token":"s3cret"}}`,
		`{"client":{"address":"https://vault.example","token":"s3cret","TOKEN":"s3cret"}}`,
		`{"client":{"address":"https://vault.example","token":"s3cret","to\u212aen":"s3cret"}}`,         // Kelvin
		`{"client":{"address":"https://vault.example","token":"s3cret","addre\u017fs":"https://evil"}}`, // a long s
	} {
		odd := &monitor.Provider{Meta: monitor.Meta{Name: "vault"}, Kind: "VaultProvider", Spec: json.RawMessage(spec)}
		if err := odd.Validate(); err == nil || !strings.Contains(err.Error(), "lower-case letters") {
			t.Errorf("%s is taken: %v", spec, err)
		}
		if shown := string(odd.Shown().Spec); strings.Contains(shown, "s3cret") {
			t.Errorf("what was stored before is shown: %s", shown)
		}
	}
	spec := `{"client":{"address":"https://vault.example","token":"s3cret","version":"v2"}}`
	vault := &monitor.Provider{Spec: json.RawMessage(spec)}
	for address, kept := range map[string]bool{"vault.example": true, "evil.example": false} {
		next := vault.Shown()
		next.Spec = json.RawMessage(strings.Replace(string(next.Spec), "vault.example", address, 1))
		if next.Keep(vault); strings.Contains(string(next.Spec), "s3cret") != kept {
			t.Errorf("%s: %s", address, next.Spec)
		}
	}
}
