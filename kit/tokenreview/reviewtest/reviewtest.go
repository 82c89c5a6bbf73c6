// Package reviewtest is a Kubernetes API server for tests, as far as TokenReview goes, and what makes accounts
// and their tokens: it takes requests of the
// documented form alone, from a reviewer that it knows, and vouches for the accounts that it was told of. Safe for
// concurrent use.
package reviewtest

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Reviewer is the token that may ask, Nobody one that is known and may not.
const (
	Reviewer = "reviewer-token"
	Nobody   = "nobody-token"
)

// APIServer is one.
type APIServer struct {
	URL, CA string
	Asked   atomic.Int32
	Longest time.Duration // of the tokens that it gives; 0: as was asked for

	mu      sync.Mutex
	tokens  map[string]known
	objects map[string]map[string]any // by path: metadata of namespaces and service accounts
	made    map[string]map[string]any // by path: whole objects
	fail    map[string]int            // see Fail
}

type known struct {
	username, uid string
	audiences     []string
}

// New starts a server that ends with the test.
func New(t testing.TB) *APIServer {
	s := &APIServer{tokens: map[string]known{}, objects: map[string]map[string]any{}, made: map[string]map[string]any{},
		fail: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/authentication.k8s.io/v1/tokenreviews", s.review)
	mux.HandleFunc("GET /api/v1/namespaces/", s.object)
	for _, path := range []string{"/api/v1/namespaces/", "/apis/rbac.authorization.k8s.io/v1/"} {
		mux.HandleFunc("POST "+path, s.change)
		mux.HandleFunc("DELETE "+path, s.change)
	}
	srv := httptest.NewTLSServer(mux)
	t.Cleanup(srv.Close)
	s.URL = srv.URL
	s.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	return s
}

// Vouch makes a token known as an account's. Without audiences it is for the API server's own.
func (s *APIServer) Vouch(token, namespace, name, uid string, audiences ...string) {
	if len(audiences) == 0 {
		audiences = []string{"https://kubernetes.default.svc"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = known{"system:serviceaccount:" + namespace + ":" + name, uid, audiences}
}

// Forget makes a token unknown: its account was deleted.
func (s *APIServer) Forget(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, token)
}

// Put makes a namespace, or a service account ("shop/serviceaccounts/web"), with its metadata; nil takes it away.
func (s *APIServer) Put(path string, metadata map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects["/api/v1/namespaces/"+path] = metadata
}

// object answers who reads a namespace or a service account: the reviewer alone has that right.
func (s *APIServer) object(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	metadata := s.objects[r.URL.Path]
	s.mu.Unlock()
	switch bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); {
	case bearer != Reviewer:
		refuse(w, http.StatusForbidden, "Forbidden", "cannot get resource")
	case metadata == nil:
		refuse(w, http.StatusNotFound, "NotFound", "not found")
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "metadata": metadata})
	}
}

func refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
		"reason": reason, "message": message, "code": code})
}

func (s *APIServer) review(w http.ResponseWriter, r *http.Request) {
	s.Asked.Add(1)
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	_, account := s.tokens[bearer]
	s.mu.Unlock()
	switch {
	case bearer != Reviewer && bearer != Nobody && !account:
		refuse(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	case bearer == Nobody:
		refuse(w, http.StatusForbidden, "Forbidden",
			`tokenreviews.authentication.k8s.io is forbidden: User "nobody" cannot create resource "tokenreviews"`)
		return
	case r.Method != http.MethodPost:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed",
			"the server does not allow this method on the requested resource")
		return
	case r.Header.Get("Content-Type") != "application/json":
		refuse(w, http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the body of the request was in an unknown format")
		return
	}
	var in struct {
		APIVersion, Kind string
		Metadata         map[string]any
		Spec             struct {
			Token     string
			Audiences []string
		}
		Status map[string]any
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil || in.APIVersion != "authentication.k8s.io/v1" || in.Kind != "TokenReview" {
		refuse(w, http.StatusBadRequest, "BadRequest", "the object is no TokenReview of authentication.k8s.io/v1")
		return
	}
	if in.Spec.Token == "" {
		refuse(w, http.StatusUnprocessableEntity, "Invalid", "spec.token: Required value")
		return
	}
	s.mu.Lock()
	k, ok := s.tokens[in.Spec.Token]
	s.mu.Unlock()
	asked := in.Spec.Audiences
	if len(asked) == 0 {
		asked = []string{"https://kubernetes.default.svc"}
	}
	both := slices.DeleteFunc(slices.Clone(asked), func(a string) bool { return !slices.Contains(k.audiences, a) })
	status := map[string]any{"user": map[string]any{}, "error": "[invalid bearer token, token lookup failed]"}
	if ok && len(both) > 0 {
		status = map[string]any{"authenticated": true, "audiences": both, "user": map[string]any{"username": k.username,
			"uid": k.uid, "groups": []string{"system:serviceaccounts", "system:authenticated"}}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
		"metadata": map[string]any{"creationTimestamp": nil}, "spec": in.Spec, "status": status})
}
