package entry

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestExtAuthzArguments: what of the extension's arguments is taken, and which field is named when not.
func TestExtAuthzArguments(t *testing.T) {
	t.Parallel()
	read := func(text string) (*Authz, error) {
		t.Helper()
		e := EnvoyExtension{Name: ExtAuthzExtension}
		if err := json.Unmarshal([]byte(text), &e.Arguments); err != nil {
			t.Fatal(err)
		}
		return ExtAuthzOf([]EnvoyExtension{{Name: "builtin/lua"}, e}, APIGateway)
	}
	const gateway = `{"ProxyType":"api-gateway","Config":`
	a, err := read(gateway + `{"HttpService":{"Target":{"URI":"http://127.0.0.1:9191","Timeout":"2s"},"PathPrefix":"/a",` +
		`"AuthorizationRequest":{"AllowedHeaders":[{"SafeRegex":"x-.*"}]}},"StatusOnError":503}}`)
	if err != nil || a.Config.HTTPService.PathPrefix != "/a" || a.Config.Target().Within() != 2*time.Second {
		t.Fatal(a, err)
	}
	if host, port, err := a.Config.Target().HostPort(); host != "127.0.0.1" || port != 9191 || err != nil {
		t.Error(host, port, err)
	}
	for _, text := range []string{`{"Config":{}}`, `{"ProxyType":"connect-proxy","Config":{}}`} {
		if a, err := read(text); a != nil || err != nil {
			t.Errorf("%s is for sidecars: %v, %v", text, a, err)
		}
	}
	for text, want := range map[string]string{
		`{}`: "exactly one of GrpcService and HttpService",
		`{"GrpcService":{"Target":{"URI":"a:1"}},"HttpService":{"Target":{"URI":"a:1"}}}`: "exactly one of",
		`{"GrpcService":{}}`: "Target",
		`{"GrpcService":{"Target":{"URI":"a:1","Service":{"Name":"b"}}}}`:                         "one of Service and URI",
		`{"GrpcService":{"Target":{"Service":{}}}}`:                                               "Target.Service.Name",
		`{"GrpcService":{"Target":{"URI":"nowhere"}}}`:                                            "Target.URI",
		`{"HttpService":{"Target":{"URI":"https://a:1"}}}`:                                        "Target.URI",
		`{"GrpcService":{"Target":{"URI":"a:1","Timeout":"soon"}}}`:                               "Target.Timeout",
		`{"GrpcService":{"Target":{"URI":"a:1"}},"StatusOnError":7}`:                              "StatusOnError",
		`{"GrpcService":{"Target":{"URI":"a:1"}},"TransportApiVersion":"V2"}`:                     "TransportApiVersion",
		`{"GrpcService":{"Target":{"URI":"a:1"}},"WithRequestBody":{}}`:                           "MaxRequestBytes",
		`{"GrpcService":{"Target":{"URI":"a:1"}},"MetadataContextNamespaces":0}`:                  "ContextNamespaces",
		`{"HttpService":{"Target":{"URI":"a:1"},"AuthorizationRequest":{"AllowedHeaders":[{}]}}}`: "AllowedHeaders[0]",
		`{"HttpService":{"Target":{"URI":"a:1"},"AuthorizationResponse":{"AllowedClientHeaders":[` +
			`{"SafeRegex":"("}]}}}`: "AllowedClientHeaders[0]",
	} {
		if a, err := read(gateway + text + "}"); a == nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", text, a, err, want)
		}
	}
	if _, err := Decode([]byte(`{"Kind":"http-route","Name":"r","Rules":[{"Filters":{"ext_authz":{"enabled":true}},` +
		`"Services":[{"Name":"a"}]}]}`)); err != nil {
		t.Error(err)
	}
	if _, err := Decode([]byte(`{"Kind":"http-route","Name":"r","Rules":[{"Services":[{"Name":"a","Filters":{` +
		`"ExtAuthz":{"Enabled":true}}}]}]}`)); err == nil || !strings.Contains(err.Error(), "belongs to the rule") {
		t.Errorf("of one of a rule's services: %v", err)
	}
}
