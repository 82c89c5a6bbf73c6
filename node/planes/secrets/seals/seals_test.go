package seals

import (
	"log/slog"
	"strings"
	"testing"

	"corbel.dev/corbel/node/vaultconf"
)

func blocks(t *testing.T, text string, getenv func(string) string) []vaultconf.Block {
	t.Helper()
	cfg, err := vaultconf.Parse([]vaultconf.Source{{Name: "test", Text: `storage "inmem" {}
listener "tcp" { tls_disable = true }
` + text}}, getenv)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Seals
}

const awsStanza = `seal "awskms" {
  kms_key_id = "k"
  region     = "r"
}
`

// TestOpenSeals: each type is made by its stanza, or by the variables that stand for it.
func TestOpenSeals(t *testing.T) {
	for name, c := range map[string]struct {
		text     string
		env      map[string]string
		now, old string
	}{
		"none":   {},
		"shamir": {text: `seal "shamir" {}`},
		"aws":    {text: awsStanza, now: "awskms"},
		"aws by variables": {env: map[string]string{"VAULT_SEAL_TYPE": "awskms", "VAULT_AWSKMS_SEAL_KEY_ID": "k"},
			now: "awskms"},
		"google by variables": {env: map[string]string{"VAULT_SEAL_TYPE": "gcpckms", "GOOGLE_PROJECT": "p",
			"GOOGLE_REGION": "global", "VAULT_GCPCKMS_SEAL_KEY_RING": "r", "VAULT_GCPCKMS_SEAL_CRYPTO_KEY": "k"},
			now: "gcpckms"},
		"azure by variables": {env: map[string]string{"VAULT_SEAL_TYPE": "azurekeyvault", "AZURE_TENANT_ID": "t",
			"AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s", "VAULT_AZUREKEYVAULT_VAULT_NAME": "vault",
			"VAULT_AZUREKEYVAULT_KEY_NAME": "k"}, now: "azurekeyvault"},
		"from aws to azure": {text: strings.Replace(awsStanza, "{\n", "{\n  disabled = true\n", 1) +
			`seal "azurekeyvault" { 
  vault_name = "vault"
  key_name   = "k"
}`, now: "azurekeyvault", old: "awskms"},
	} {
		t.Run(name, func(t *testing.T) {
			getenv := func(name string) string { return c.env[name] }
			list := blocks(t, c.text, getenv)
			s, err := Open(list, getenv, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range list {
				if rest := b.Keys.Rest(); len(rest) > 0 {
					t.Errorf("%s: %v are not read", b.Type, rest)
				}
			}
			if kind := func() string {
				if s.Now == nil {
					return ""
				}
				return s.Now.Type()
			}(); kind != c.now || (s.Old != nil) != (c.old != "") || s.Old != nil && s.Old.Type() != c.old {
				t.Error(kind, s.Old)
			}
		})
	}
}

// TestOpenSealsRefuses: an error names the stanza and the key.
func TestOpenSealsRefuses(t *testing.T) {
	none := func(string) string { return "" }
	for text, want := range map[string]string{
		`seal "awskms" {}`:                 `seal "awskms": kms_key_id: `,
		`seal "gcpckms" { project = "p" }`: `seal "gcpckms": region: `,
		`seal "azurekeyvault" {}`:          `seal "azurekeyvault": vault_name: `,
		`seal "transit" {}`:                `seal "transit": address: `,
		`seal "static" {}`:                 `seal "static": current_key: `,
		`seal "pkcs11" {}`:                 `seal "pkcs11": the type is unknown`,
		awsStanza + awsStanza:              "disabled = true",
		awsStanza + `seal "shamir" {}`:     "disabled = true",
	} {
		if _, err := Open(blocks(t, text, none), none, slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
