package consulapi

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
)

const centralPattern = "/v1/internal/mesh/central/"

var centralRoutes = []route{{"POST", centralPattern, read, acl.Service, meshCentral}}

// meshCentral lays the config entries of the destination under the proxy's registration in the body.
func meshCentral(q *request) error {
	if q.rest == "" {
		return errMissingService
	}
	var proxy json.RawMessage
	if err := q.decode(&proxy); err != nil {
		return err
	}
	if err := q.allow(acl.Service, q.rest, acl.Read); err != nil {
		return err
	}
	st, err := q.configState()
	if err != nil {
		return err
	}
	merged, err := centralProxy(st, q.rest, proxy)
	if err != nil {
		return answer.Invalidf("Request decode failed: %v", err)
	}
	return q.replyValue(json.RawMessage(merged))
}

// centralProxy is the merged Proxy, or the registered one where there is no entry that says anything.
func centralProxy(st *catalog.State, destination string, proxy []byte) ([]byte, error) {
	found := false
	merged, err := entry.Merge(func(kind, name string) entry.Entry {
		e := entry.Stored(st, kind, name)
		found = found || e != nil
		return e
	}, destination, proxy)
	if err != nil || !found {
		return proxy, err
	}
	return merged, nil
}

// centralWait bounds how long an agent waits for the config entries; centralAgain is how often it looks at
// them again for who waits for a change of its service.
const (
	centralWait  = 2 * time.Second
	centralAgain = 5 * time.Second
)

// withCentral is the service with the config entries laid under its Proxy: s itself where they say
// nothing, and where no server tells them (an agent answers without servers).
func (q *request) withCentral(s *catalog.Service) (*catalog.Service, string) {
	if len(s.Proxy) == 0 || s.Kind == "" {
		return s, ""
	}
	destination := s.ProxyDestination
	if destination == "" {
		destination = s.Name
	}
	var merged []byte
	var err error
	if q.api.cfg.Registry != nil {
		merged, err = centralProxy(q.api.cfg.Registry.State(), destination, s.Proxy)
	} else {
		merged, err = q.askCentral(destination, s.Proxy)
	}
	if err != nil || len(merged) == 0 || bytes.Equal(merged, s.Proxy) {
		return s, ""
	}
	c := *s
	c.Proxy = merged
	h := fnv.New64a()
	_, _ = h.Write(merged)
	return &c, strconv.FormatUint(h.Sum64(), 16)
}

// askCentral asks a server.
func (q *request) askCentral(destination string, proxy []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(q.r.Context(), centralWait)
	defer cancel()
	return q.api.askServers(ctx, http.MethodPost, centralPattern+url.PathEscape(destination)+"?stale", proxy, q.token())
}

// awaitCentral is the service with its config entries and a hash of both, once that differs from hash or wait is over.
// The first part of the hash is the registration's, the second, after a dash, that of what the entries add.
func (q *request) awaitCentral(l Local, hash string, wait time.Duration) (*catalog.Service, string, error) {
	own, _, _ := strings.Cut(hash, "-")
	end := q.api.cfg.Clock.Now().Add(wait)
	wait = 0 // begin with a look at what the entries say now
	for {
		s, err := l.AwaitService(q.r.Context(), q.rest, own, wait)
		if err != nil {
			return nil, "", err
		}
		if err := q.authorizeAgain(); err != nil {
			return nil, "", err
		}
		if err := q.allow(acl.Service, s.Service.Name, acl.Read); err != nil {
			return nil, "", err
		}
		full, extra := q.withCentral(s.Service)
		now := s.Hash
		if extra != "" {
			now += "-" + extra
		}
		left := end.Sub(q.api.cfg.Clock.Now())
		if now != hash || left <= 0 || q.r.Context().Err() != nil {
			return full, now, nil
		}
		if wait = left; s.Service.Kind != "" {
			wait = min(left, centralAgain)
		}
	}
}
