package cli

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/command"
)

// TestUsageSaysWhose: an estimate names its tenant, and a list that is empty says what was asked for: where no tenant
// is named that is the tenant default.
func TestUsageSaysWhose(t *testing.T) {
	s := httptest.NewServer(&recorder{answers: map[string]string{"GET /v1/usage/top": "[]",
		"GET /v1/usage/estimates": `{"tenant":"acme","product":"calls","value":7,"error":{"method":"sum"}}`}})
	defer s.Close()
	for line, want := range map[string]string{
		"usage estimates calls --tenant acme":                "acme\n",
		"usage top calls":                                    "Nobody used calls within 1h",
		"usage top calls --by team":                          "Tenant default used no calls within 1h: --tenant names",
		"usage top calls --by team --tenant x --window 24h":  "Tenant x used no calls within 24h",
		"usage top calls --by team --tenant default --json ": "[]",
	} {
		var out bytes.Buffer
		e := &command.Env{In: strings.NewReader(""), Out: &out, Err: &out, Getenv: func(k string) string {
			return map[string]string{"CORBEL_HTTP_ADDR": s.URL}[k]
		}}
		if code := dispatch(t.Context(), e, append([]string{"corbel"}, args(line)...)); code != 0 ||
			!strings.Contains(out.String(), want) {
			t.Errorf("%s: code %d, printed:\n%s\nwant %q", line, code, &out, want)
		}
	}
}
