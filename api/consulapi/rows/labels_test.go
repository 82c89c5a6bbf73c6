package rows

import (
	"testing"
)

func TestLabelsOfNotificationsAreFew(t *testing.T) {
	for pattern, want := range map[string]string{
		KVPattern: "kv", "/v1/catalog/services": "catalog/services", "/v1/health/state/": "health/state",
		"/v1/config/": "config", "/v1/session/info/": "session", "/v1/query/": "other", "/v1/acl/tokens": "other",
	} {
		if got := notifyLabel(pattern); got != want {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}
