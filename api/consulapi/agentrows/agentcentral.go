package agentrows

import (
	"bytes"
	"context"
	"hash/fnv"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/configrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
)

// centralWait bounds how long an agent waits for the config entries; centralAgain is how often it looks at
// them again for who waits for a change of its service.
const (
	centralWait  = 2 * time.Second
	centralAgain = 5 * time.Second
)

// withCentral is the service with the config entries laid under its Proxy: s itself where they say
// nothing, and where no server tells them (an agent answers without servers).
func withCentral(q *rows.Request, s *catalog.Service) (*catalog.Service, string) {
	if len(s.Proxy) == 0 || s.Kind == "" {
		return s, ""
	}
	destination := s.ProxyDestination
	if destination == "" {
		destination = s.Name
	}
	var merged []byte
	var err error
	if q.Registry != nil {
		merged, err = configrows.CentralProxy(q.Registry.State(), destination, s.Proxy)
	} else {
		merged, err = askCentral(q, destination, s.Proxy)
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
func askCentral(q *rows.Request, destination string, proxy []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(q.R.Context(), centralWait)
	defer cancel()
	return q.AskServers(ctx, http.MethodPost, configrows.CentralPattern+url.PathEscape(destination)+"?stale", proxy,
		q.Token())
}

// awaitCentral is the service with its config entries and a hash of both, once that differs from hash or wait is over.
// The first part of the hash is the registration's, the second, after a dash, that of what the entries add.
func awaitCentral(q *rows.Request, l Local, hash string, wait time.Duration) (*catalog.Service, string, error) {
	own, _, _ := strings.Cut(hash, "-")
	end := q.Clock.Now().Add(wait)
	wait = 0 // begin with a look at what the entries say now
	for {
		s, err := l.AwaitService(q.R.Context(), q.Rest, own, wait)
		if err != nil {
			return nil, "", err
		}
		if err := q.AuthorizeAgain(); err != nil {
			return nil, "", err
		}
		if err := q.Allow(acl.Service, s.Service.Name, acl.Read); err != nil {
			return nil, "", err
		}
		full, extra := withCentral(q, s.Service)
		now := s.Hash
		if extra != "" {
			now += "-" + extra
		}
		left := end.Sub(q.Clock.Now())
		if now != hash || left <= 0 || q.R.Context().Err() != nil {
			return full, now, nil
		}
		if wait = left; s.Service.Kind != "" {
			wait = min(left, centralAgain)
		}
	}
}
