package snapfile

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// RoundTrip implements http.RoundTripper: it answers as a Consul with this state would, as far as
// migrate asks. Everything else is 404.
func (s *Source) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close() // a question has none
	}
	status, body := http.StatusOK, []byte(nil)
	v, found := s.answer(strings.TrimPrefix(r.URL.Path, "/v1/"))
	switch {
	case r.Method != http.MethodGet:
		status, body = http.StatusMethodNotAllowed, []byte("a snapshot can be read only")
	case !found:
		status, body = http.StatusNotFound, []byte("not in the snapshot")
	default:
		var err error
		if body, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Request: r,
		Header: http.Header{"X-Consul-Index": {"1"}, "Content-Type": {"application/json"}},
		Body:   io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}, nil
}

// answer finds what a path of the API shows; found is false where there is nothing.
func (s *Source) answer(path string) (v any, found bool) {
	first, rest, _ := strings.Cut(path, "/")
	switch {
	case path == "status/leader":
		return "snapshot", true
	case path == "kv/":
		return list(s.pairs), true
	case path == "query":
		return list(s.queries), true
	case path == "connect/intentions":
		return list(s.legacy), true
	case path == "catalog/nodes":
		return s.hosts(), true
	case path == "agent/members":
		return s.members(), true
	case first == "config":
		return list(s.entries[rest]), true
	case first == "acl":
		return s.aclAnswer(rest)
	}
	if name, ok := strings.CutPrefix(path, "catalog/node/"); ok {
		h := s.nodes[name]
		if h == nil {
			return nil, true // null, as the contract says
		}
		return object{"Node": h.fields, "Services": h.services}, true
	}
	if name, ok := strings.CutPrefix(path, "health/node/"); ok {
		if h := s.nodes[name]; h != nil {
			return list(h.checks), true
		}
		return []object{}, true
	}
	return nil, false
}

// list is never null.
func list(all []object) []object {
	if all == nil {
		return []object{}
	}
	return all
}

func (s *Source) hosts() []object {
	out := []object{}
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		out = append(out, s.nodes[name].fields)
	}
	return out
}

// members are the hosts that had an agent.
func (s *Source) members() []object {
	out := []object{}
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		if s.nodes[name].agent {
			out = append(out, object{"Name": name})
		}
	}
	return out
}

// aclSingular are the paths of single objects, with the fields that name them.
var aclSingular = map[string][2]string{"policy": {"policies", "ID"}, "role": {"roles", "ID"},
	"token":       {"tokens", "AccessorID"},
	"auth-method": {"auth-methods", "Name"}, "binding-rule": {"binding-rules", "ID"}}

func (s *Source) aclAnswer(path string) (any, bool) {
	kind, key, single := strings.Cut(path, "/")
	if !single {
		return list(s.acl[kind]), true
	}
	where, ok := aclSingular[kind]
	if !ok {
		return nil, false
	}
	for _, o := range s.acl[where[0]] {
		if text(o, where[1]) == key {
			return o, true
		}
	}
	return nil, false
}
