package agentgen

import "testing"

func TestVariable(t *testing.T) {
	for name, want := range map[string]string{"app/db_pass-word": "APP_DB_PASS_WORD", "1a": "_1A", "ä_b": "__B"} {
		if got := variable(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
