package serve

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// The answer of the backend that took the seed is lost: the next attempt hears "initialized before", which is a success
// if its administrator has the seed's password, and not if somebody else was first.
func TestSeedOfALostAnswer(t *testing.T) {
	for _, test := range []struct {
		password string
		want     error
	}{{"P@ssw0rd!", nil}, {"another one", errSeeded}} {
		var asked atomic.Int32
		backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/auth" {
				if name, password, _ := r.BasicAuth(); name != "admin" || password != test.password {
					w.WriteHeader(http.StatusUnauthorized)
				}
				return
			}
			if asked.Add(1) == 1 {
				panic(http.ErrAbortHandler) // the connection ends without an answer
			}
			w.WriteHeader(http.StatusConflict)
		}))
		seed := backendSeed{Username: "admin", Password: "P@ssw0rd!"}
		err := sendSeed(t.Context(), backend.Client(), backend.URL+"/", seed, time.Minute, true)
		backend.Close()
		if !errors.Is(err, test.want) || asked.Load() != 2 {
			t.Errorf("the password is %q: %v after %d attempts, want %v after two", test.password, err, asked.Load(), test.want)
		}
	}
}
