// Package kubetest is a Kubernetes API server for tests, as far as lists, watches and plain writes go: pages, resource
// versions, bookmarks, 410 Gone after a compaction, watches that end. It keeps objects as they come and knows no types.
// Safe for concurrent use.
package kubetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Object is an object as JSON has it.
type Object = map[string]any

type event struct {
	version int
	kind    string // ADDED, MODIFIED, DELETED
	path    string // of the object
	object  []byte
}

// Server is one.
type Server struct {
	URL string

	mu      sync.Mutex // guards what follows
	version int
	floor   int               // events up to it are forgotten
	objects map[string][]byte // by path
	history []event
	changed chan struct{} // closed and replaced at each change
	hang    chan struct{} // closed and replaced to end all watches
	asked   []string
	refuse  map[string]int // code by path
	page    int            // largest page, whatever the client asks for
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{version: 100, floor: 100, objects: map[string][]byte{}, changed: make(chan struct{}),
		hang: make(chan struct{}), refuse: map[string]int{}, page: 500}
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		s.EndWatches()
		srv.CloseClientConnections()
		srv.Close()
	})
	s.URL = srv.URL
	return s
}

// Put writes an object into a collection's path ("/api/v1/namespaces/shop/services").
func (s *Server) Put(collection string, o any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // a test's own mistake
	}
	s.putLocked(collection, text)
}

func (s *Server) putLocked(collection string, text []byte) []byte {
	var o Object
	if err := json.Unmarshal(text, &o); err != nil {
		panic(err)
	}
	m, _ := o["metadata"].(map[string]any)
	path := collection + "/" + fmt.Sprint(m["name"])
	s.version++
	m["resourceVersion"] = strconv.Itoa(s.version)
	text, _ = json.Marshal(o)
	kind := "ADDED"
	if s.objects[path] != nil {
		kind = "MODIFIED"
	}
	s.objects[path] = text
	s.tellLocked(event{s.version, kind, path, text})
	return text
}

func (s *Server) tellLocked(e event) {
	s.history = append(s.history, e)
	close(s.changed)
	s.changed = make(chan struct{})
}

// Delete removes an object by its path.
func (s *Server) Delete(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.objects[path]; old != nil {
		delete(s.objects, path)
		s.version++
		s.tellLocked(event{s.version, "DELETED", path, old})
	}
}

// Object is what there is at a path, or nil.
func (s *Server) Object(path string) (o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := s.objects[path]; text != nil {
		_ = json.Unmarshal(text, &o)
	}
	return o
}

// Compact forgets what led to now: watches from before are answered 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++ // so that who listed until now is behind
	s.floor, s.history = s.version, nil
}

// EndWatches ends all watches that run, as an API server that restarts does.
func (s *Server) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.hang)
	s.hang = make(chan struct{})
}

// Refuse answers all requests below a path with code; 0 ends that.
func (s *Server) Refuse(path string, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse[path] = code
}

// Page bounds pages of lists.
func (s *Server) Page(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.page = n
}

// Asked are the requests so far, as "METHOD path?query".
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// Version is the newest resource version.
func (s *Server) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(Object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
		"reason": reason, "message": message})
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
	code := 0
	for path, c := range s.refuse {
		if c != 0 && strings.HasPrefix(r.URL.Path, path) {
			code = c
		}
	}
	s.mu.Unlock()
	switch {
	case code != 0:
		status(w, code, http.StatusText(code), "refused by the test")
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		s.watch(w, r)
	case r.Method == http.MethodGet:
		s.get(w, r)
	default:
		s.write(w, r)
	}
}

// in says whether an object's path is in a collection's: of its namespace, or of all ("/api/v1/services").
func in(object, collection string) bool {
	at := strings.LastIndexByte(object, '/')
	of := object[:at]
	if of == collection {
		return true
	}
	if before, rest, ok := strings.Cut(of, "/namespaces/"); ok {
		_, plural, _ := strings.Cut(rest, "/")
		return before+"/"+plural == collection
	}
	return false
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if o := s.objects[r.URL.Path]; o != nil {
		_, _ = w.Write(o)
		return
	}
	paths := slices.DeleteFunc(slices.Sorted(maps.Keys(s.objects)), func(p string) bool { return !in(p, r.URL.Path) })
	if len(paths) == 0 && isObject(r.URL.Path) {
		status(w, http.StatusNotFound, "NotFound", "there is no "+r.URL.Path)
		return
	}
	version, from := s.version, 0
	if c := r.URL.Query().Get("continue"); c != "" {
		if _, err := fmt.Sscanf(c, "%d.%d", &version, &from); err != nil || version < s.floor {
			status(w, http.StatusGone, "Expired", "The provided continue parameter is too old")
			return
		}
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	if limit == 0 || limit > s.page {
		limit = s.page
	}
	meta := Object{"resourceVersion": strconv.Itoa(version)}
	if from = min(from, len(paths)); from+limit < len(paths) {
		meta["continue"] = fmt.Sprintf("%d.%d", version, from+limit)
	} else {
		limit = len(paths) - from
	}
	items := []json.RawMessage{}
	for _, p := range paths[from : from+limit] {
		items = append(items, s.objects[p])
	}
	_ = json.NewEncoder(w).Encode(Object{"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items})
}

// isObject tells a path of an object from one of a collection.
func isObject(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if i := slices.Index(parts, "namespaces"); i >= 0 {
		return len(parts)-i > 3
	}
	return false
}

// kindIn is the kind of what a collection has, as far as its path tells: client-go takes no object without one.
func kindIn(collection string) string {
	plural := collection[strings.LastIndexByte(collection, '/')+1:]
	return strings.ToUpper(plural[:1]) + strings.TrimSuffix(plural[1:], "s")
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("sendInitialEvents") != "" { // as servers answer that are without it
		status(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden for watch")
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	bookmarks := r.URL.Query().Get("allowWatchBookmarks") == "true"
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	flush := w.(http.Flusher).Flush
	flush()
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	for {
		s.mu.Lock()
		changed, gone := s.changed, from < s.floor
		var list []event
		for _, e := range s.history {
			if e.version > from && in(e.path, r.URL.Path) {
				list = append(list, e)
			}
		}
		version := s.version
		s.mu.Unlock()
		if gone {
			_ = enc.Encode(Object{"type": "ERROR", "object": Object{"kind": "Status", "apiVersion": "v1", "status": "Failure",
				"code": 410, "reason": "Expired", "message": "too old resource version"}})
			return
		}
		for _, e := range list {
			_ = enc.Encode(Object{"type": e.kind, "object": json.RawMessage(e.object)})
		}
		if from < version && bookmarks {
			_ = enc.Encode(Object{"type": "BOOKMARK", "object": Object{"kind": kindIn(r.URL.Path), "apiVersion": "v1",
				"metadata": Object{"resourceVersion": strconv.Itoa(version)}}})
		}
		from = version
		flush()
		select {
		case <-changed:
		case <-hang:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// merged is an object after a merge patch (RFC 7386).
func merged(o, patch Object) Object {
	o = maps.Clone(o)
	if o == nil {
		o = Object{}
	}
	for name, value := range patch {
		inner, isObject := value.(Object)
		switch was, _ := o[name].(Object); {
		case value == nil:
			delete(o, name)
		case isObject:
			o[name] = merged(was, inner)
		default:
			o[name] = value
		}
	}
	return o
}

func (s *Server) write(w http.ResponseWriter, r *http.Request) {
	var in Object
	if r.Method != http.MethodDelete {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			status(w, http.StatusBadRequest, "BadRequest", err.Error())
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.TrimSuffix(r.URL.Path, "/status")
	meta, _ := in["metadata"].(map[string]any)
	old := s.objects[path]
	switch {
	case r.Method == http.MethodPost && s.objects[path+"/"+fmt.Sprint(meta["name"])] != nil:
		status(w, http.StatusConflict, "AlreadyExists", "it exists already")
	case r.Method == http.MethodPost:
		text, _ := json.Marshal(in)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(s.putLocked(path, text))
	case old == nil:
		status(w, http.StatusNotFound, "NotFound", "there is no "+path)
	case r.Method == http.MethodDelete:
		delete(s.objects, path)
		s.version++
		s.tellLocked(event{s.version, "DELETED", path, old})
		_ = json.NewEncoder(w).Encode(Object{"kind": "Status", "status": "Success"})
	case r.Method == http.MethodPatch: // a merge patch
		var o Object
		_ = json.Unmarshal(old, &o)
		text, _ := json.Marshal(merged(o, in))
		_, _ = w.Write(s.putLocked(path[:strings.LastIndexByte(path, '/')], text))
	default:
		var o struct {
			Metadata struct{ ResourceVersion string }
		}
		_ = json.Unmarshal(old, &o)
		if v := meta["resourceVersion"]; v != nil && v != o.Metadata.ResourceVersion {
			status(w, http.StatusConflict, "Conflict", "the object has been modified")
			return
		}
		text, _ := json.Marshal(in)
		_, _ = w.Write(s.putLocked(path[:strings.LastIndexByte(path, '/')], text))
	}
}
