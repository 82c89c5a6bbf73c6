package github

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

type body = map[string]any

// server answers as GitHub's REST API was recorded to, for two tokens: of ann, who is in the organization, and of eve,
// who is not.
func server(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	serve := func(path string, answers map[string]string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			text, ok := answers[r.Header.Get("Authorization")]
			switch {
			case r.Header.Get("Accept") != "application/vnd.github+json":
				w.WriteHeader(http.StatusUnsupportedMediaType)
			case !ok:
				w.WriteHeader(http.StatusUnauthorized)
				text = `{"message": "Bad credentials", "status": "401"}`
			case r.URL.Query().Get("page") == "2":
				text = `[]`
			}
			_, _ = w.Write([]byte(text))
		})
	}
	const ann, eve = "Bearer ghp_ann", "Bearer ghp_eve"
	serve("/user", map[string]string{ann: `{"login": "Ann", "id": 1, "type": "User"}`, eve: `{"login": "eve", "id": 2}`,
		"Bearer ghp_many": `{"login": "many", "id": 3}`})
	serve("/user/orgs", map[string]string{ann: `[{"login": "other", "id": 7}, {"login": "shop", "id": 42}]`,
		eve: `[{"login": "shop", "id": 43}]`, "Bearer ghp_many": "[" + strings.Repeat(`{"login": "x", "id": 9},`, 99) +
			`{"login": "x", "id": 9}]`})
	serve("/user/teams", map[string]string{ann: `[{"name": "Site Ops", "slug": "site-ops", "organization": ` +
		`{"login": "shop", "id": 42}}, {"name": "admins", "slug": "admins", "organization": {"login": "other", "id": 7}}]`})
	serve("/orgs/shop", map[string]string{"": `{"login": "shop", "id": 42}`})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestGitHub: members log in, with the policies of their name and of their teams in this organization alone.
func TestGitHub(t *testing.T) {
	d := enginetest.New(t, &Engine{}, "auth/github/")
	d.Refused(errkind.Invalid, "config first", secrets.Update, "login", body{"token": "ghp_ann"})
	d.OK(secrets.Update, "config", body{"organization": "shop", "base_url": server(t), "token_policies": "all",
		"token_ttl": "20m"})
	if got := d.OK(secrets.Read, "config", nil); got["organization_id"] != 42.0 || got["token_ttl"] != 1200.0 {
		t.Errorf("%v", got)
	}
	d.OK(secrets.Update, "map/teams/site-ops", body{"value": "ops"})
	d.OK(secrets.Update, "map/teams/admins", body{"value": "root-like"}) // ann is one elsewhere
	d.OK(secrets.Update, "map/teams/default", body{"value": "members"})
	d.OK(secrets.Update, "map/users/ANN", body{"value": "anns"})
	resp, err := d.Ask(secrets.Update, "login", body{"token": "ghp_ann"})
	if err != nil {
		t.Fatal(err)
	}
	a := resp.Auth
	if !slices.Equal(a.Policies, []string{"all", "anns", "members", "ops"}) || a.Alias != "Ann" ||
		!slices.Equal(a.Groups, []string{"Site Ops", "site-ops"}) || a.Metadata["org"] != "shop" ||
		strings.Contains(string(a.Login), "ghp_") {
		t.Errorf("%+v", a)
	}
	d.Refused(errkind.Invalid, "not part of required org", secrets.Update, "login", body{"token": "ghp_eve"})
	d.Refused(errkind.Invalid, "read:org", secrets.Update, "login", body{"token": "ghp_wrong"})
	d.Refused(errkind.Invalid, "not part", secrets.Update, "login", body{"token": "ghp_many"})
	for _, token := range []string{"", "a b", strings.Repeat("x", 600)} {
		d.Refused(errkind.Invalid, "\"token\"", secrets.Update, "login", body{"token": token})
	}

	of := engine.Login{Data: a.Login, Policies: []string{"all", "anns", "default", "members", "ops"}}
	renewer := d.Engine.(engine.Renewer)
	if terms, err := renewer.Renewable(t.Context(), d.Store, nil, of); err != nil || terms.TTL != 20*time.Minute {
		t.Errorf("%+v, %v", terms, err)
	}
	d.OK(secrets.Delete, "map/teams/site-ops", nil)
	if _, err := renewer.Renewable(t.Context(), d.Store, nil, of); err == nil {
		t.Error("other policies, and it is renewed")
	}
	if got := d.OK(secrets.List, "map/teams/", nil); fmt.Sprint(got["keys"]) != "[admins default]" {
		t.Errorf("%v", got)
	}
	if got := d.OK(secrets.Read, "map/users/ann", nil); got.Text("value") != "anns" {
		t.Errorf("%v", got)
	}
	for field, b := range map[string]body{"organization": {"organization": "a/b"}, "base_url": {"base_url": "x"},
		"base_url_ca_pem": {"base_url_ca_pem": "x"}, "organization_id": {"organization": "none"},
		"token_ttl": {"token_ttl": "-1s"}} {
		d.Refused(errkind.Invalid, field, secrets.Update, "config", b)
	}
	d.OK(secrets.Update, "config", body{"organization": "none", "organization_id": 5, "base_url": "http://127.0.0.1:1"})
	d.Refused(errkind.Unavailable, "GitHub cannot be asked", secrets.Update, "login", body{"token": "ghp_ann"})
}
