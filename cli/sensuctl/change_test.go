package sensuctl

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// TestSettersLoseNothing: what somebody else changed between a setter's reading and its writing stays, and a setter
// that finds no quiet moment says so and writes nothing.
func TestSettersLoseNothing(t *testing.T) {
	f, url := newFake(t)
	check, version, meanwhile := map[string]any{"command": "old", "subdue": map[string]any{"days": 1}}, 0, 0
	const path = "/api/core/v2/namespaces/default/checks/cpu"
	f.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", strconv.Quote(strconv.Itoa(version)))
		_ = json.NewEncoder(w).Encode(check)
		if meanwhile > 0 { // somebody else
			meanwhile--
			version++
			check["command"] = "new"
		}
	})
	f.HandleFunc("PUT "+path, func(w http.ResponseWriter, r *http.Request) {
		if match := r.Header.Get("If-Match"); match != "" && match != strconv.Quote(strconv.Itoa(version)) {
			w.WriteHeader(http.StatusPreconditionFailed)
			_, _ = io.WriteString(w, `{"message":"precondition failed"}`)
			return
		}
		version++
		clear(check)
		if err := json.NewDecoder(r.Body).Decode(&check); err != nil {
			t.Error(err)
		}
	})
	home := t.TempDir()
	if _, err := run(t, home, "", "configure", "-n", "--url", url, "--username", "admin", "--password",
		"secret"); err != nil {
		t.Fatal(err)
	}
	set := func(value string) error {
		_, err := run(t, home, value, "check", "set-subdue", "cpu")
		return err
	}
	meanwhile = 2
	err := set(`{"begin":"17:00"}`)
	if subdue, _ := check["subdue"].(map[string]any); err != nil || check["command"] != "new" || len(subdue) != 1 ||
		subdue["begin"] != "17:00" {
		t.Errorf("%v: %v", err, check)
	}
	meanwhile = 1000
	if err := set(`{"begin":"18:00"}`); err == nil || !strings.Contains(err.Error(), "changed by others") {
		t.Error(err)
	}
	if meanwhile != 1000-5 {
		t.Errorf("it was read %d times", 1000-meanwhile)
	}
	if subdue, _ := check["subdue"].(map[string]any); subdue["begin"] != "17:00" {
		t.Errorf("what was not to be written is: %v", check)
	}
}
