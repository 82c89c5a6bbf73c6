package reviewtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Objects are the paths of objects that were made, in order.
func (s *APIServer) Objects() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.made {
		list = append(list, path)
	}
	slices.Sort(list)
	return list
}

// Object is one that was made, as it came; nil: there is none.
func (s *APIServer) Object(path string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made[path]
}

// Fail lets writes of paths that end so fail with a status; 0 lets them go on.
func (s *APIServer) Fail(suffix string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail[suffix] = status
}

// shortest is what Kubernetes takes for the life of a token.
const shortest = 600

// change takes what the reviewer makes and deletes: of what may be made it knows the form alone.
func (s *APIServer) change(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); bearer != Reviewer {
		refuse(w, http.StatusForbidden, "Forbidden", "cannot change resource")
		return
	}
	for suffix, status := range s.fail {
		if status != 0 && strings.HasSuffix(r.URL.Path, suffix) {
			refuse(w, status, "Refused", "the test refuses it")
			return
		}
	}
	if r.Method == http.MethodDelete {
		if s.made[r.URL.Path] == nil {
			refuse(w, http.StatusNotFound, "NotFound", "not found")
			return
		}
		delete(s.made, r.URL.Path)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "status": "Success"})
		return
	}
	var o map[string]any
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	if account, is := strings.CutSuffix(r.URL.Path, "/token"); is {
		s.tokenLocked(w, account, o)
		return
	}
	meta, _ := o["metadata"].(map[string]any)
	path := r.URL.Path + "/" + fmt.Sprint(meta["name"])
	switch {
	case o["apiVersion"] == nil || o["kind"] == nil || meta["name"] == nil:
		refuse(w, http.StatusUnprocessableEntity, "Invalid", "apiVersion, kind and metadata.name are required")
	case s.made[path] != nil:
		refuse(w, http.StatusConflict, "AlreadyExists", path+" already exists")
	default:
		s.made[path] = o
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(o)
	}
}

// tokenLocked answers a TokenRequest.
func (s *APIServer) tokenLocked(w http.ResponseWriter, account string, o map[string]any) {
	spec, _ := o["spec"].(map[string]any)
	seconds, _ := spec["expirationSeconds"].(float64)
	switch {
	case o["kind"] != "TokenRequest":
		refuse(w, http.StatusBadRequest, "BadRequest", "it is no TokenRequest")
	case s.made[account] == nil && s.objects[account] == nil:
		refuse(w, http.StatusNotFound, "NotFound", account+" not found")
	case seconds < shortest:
		refuse(w, http.StatusUnprocessableEntity, "Invalid",
			"spec.expirationSeconds: Invalid value: may not specify a duration less than 10 minutes")
	default:
		if s.Longest > 0 {
			seconds = min(seconds, s.Longest.Seconds())
		}
		o["status"] = map[string]any{"token": fmt.Sprintf("token of %s for %v", account, spec["audiences"]),
			"expirationTimestamp": time.Now().Add(time.Duration(seconds) * time.Second).UTC().Format(time.RFC3339)}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(o)
	}
}
