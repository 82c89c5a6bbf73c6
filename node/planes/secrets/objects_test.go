package secretsplane

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/node/vaultconf"
)

// What the environment says wrong of Google's storage is named, and nothing is asked of the network for it.
func TestGCSEnvironment(t *testing.T) {
	account := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(account, []byte(`{"type":"authorized_user"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"STORAGE_EMULATOR_HOST": "127.0.0.1:1"}, "bucket: is missing"},
		{map[string]string{"GOOGLE_STORAGE_BUCKET": "b", "GOOGLE_STORAGE_HA_ENABLED": "perhaps"},
			`GOOGLE_STORAGE_HA_ENABLED: "perhaps" must be true or false`},
		{map[string]string{"GOOGLE_STORAGE_BUCKET": "b", "GOOGLE_APPLICATION_CREDENTIALS": account + "x"},
			"GOOGLE_APPLICATION_CREDENTIALS: "},
		{map[string]string{"GOOGLE_STORAGE_BUCKET": "b", "GOOGLE_APPLICATION_CREDENTIALS": account}, "account.json: type: "},
		{map[string]string{"GOOGLE_STORAGE_BUCKET": "b", "STORAGE_EMULATOR_HOST": "ftp://a"}, "the endpoint"},
	} {
		for _, name := range []string{"GOOGLE_STORAGE_BUCKET", "GOOGLE_STORAGE_HA_ENABLED", "GOOGLE_APPLICATION_CREDENTIALS",
			"STORAGE_EMULATOR_HOST"} {
			t.Setenv(name, c.env[name])
		}
		h := &secretsHost{clock: clock.Real{}, log: slog.New(slog.DiscardHandler)}
		_, err := openStorage(t.Context(), h, vaultconf.Block{Type: "gcs", Keys: vaultconf.NewKeys(nil)})
		if err == nil || !strings.HasPrefix(err.Error(), `storage "gcs": `) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.env, err)
		}
	}
}

// Keys of Vault's that change nothing here are named at the start.
func TestKeysOfStoragesWithoutEffect(t *testing.T) {
	for text, want := range map[string]string{
		`"postgresql" { connection_url = "host=/nowhere", max_parallel = 8, skip_create_table = true, ha_table = "x" }`:       "ha_table",
		`"consul" { address = "127.0.0.1:1", session_ttl = "30s", consistency_mode = "strong", disable_registration = true }`: "session_ttl",
		`"s3" { bucket = "b", access_key = "a", secret_key = "s", region = "r", max_parallel = 8 }`:                           "max_parallel",
	} {
		cfg, err := vaultconf.Parse([]vaultconf.Source{{Name: "test", Text: "storage " + strings.NewReplacer(",", "\n", "{",
			"{\n", "}", "\n}").Replace(text) + "\nlistener \"tcp\" { tls_disable = true }"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := secretsRemotes[cfg.Storage.Type](&secretsHost{log: slog.New(slog.DiscardHandler)},
			cfg.Storage.Keys); err != nil {
			t.Fatal(err)
		}
		if len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0], want+": is not supported and has no effect") ||
			len(cfg.Storage.Keys.Rest()) > 0 {
			t.Errorf("%s: %q, left %v", text, cfg.Warnings, cfg.Storage.Keys.Rest())
		}
	}
}
