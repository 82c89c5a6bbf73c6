package secretlogin

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/node/planes/ui/planeasker"
)

// TestMethodsAreAskedForNothing: the form lists what shows itself, and no method hears of it before somebody begins a
// login; one without a default role is begun again with its name.
func TestMethodsAreAskedForNothing(t *testing.T) {
	var asked []string
	plane := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		if strings.HasSuffix(r.URL.Path, "/mounts") {
			_, _ = io.WriteString(w, `{"data":{"auth":{"oidc/":{"type":"oidc","description":"the house"},`+
				`"also/":{"type":"oidc"},"jwt/":{"type":"jwt"},"userpass/":{"type":"userpass"}}}}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"role":""`) {
			http.Error(w, `{"errors":["missing role"]}`, http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"data":{"auth_url":"https://id.example/authorize?state=st_1"}}`)
	})
	p := &Providers{Ask: &planeasker.Asker{Planes: map[string]uiapi.Plane{"secrets": API(plane)}}}
	r := httptest.NewRequest("GET", "/ui/api/logins", nil)
	want := []uiapi.Method{{ID: "secrets:also/", Name: "also"}, {ID: "secrets:oidc/", Name: "the house"}}
	for range 3 {
		if got := p.Methods(r); !slices.Equal(got, want) {
			t.Fatalf("offered: %+v", got)
		}
	}
	if !slices.Equal(asked, []string{"/v1/sys/internal/ui/mounts"}) {
		t.Errorf("to list the methods it asked for %q", asked)
	}
	visit := &uiapi.Visit{Method: "secrets:oidc/", Origin: "https://corbel.example:8500"}
	if _, _, err := p.Begin(r, visit); !errors.Is(err, uiapi.ErrRole) {
		t.Errorf("a login that needs a role: %v", err)
	}
	visit.Role = "people"
	if _, state, err := p.Begin(r, visit); err != nil || state != "st_1" {
		t.Errorf("with the role: %q, %v", state, err)
	}
}
