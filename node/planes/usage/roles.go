package usageplane

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
)

// The roles that a server may have. The cache is one too, by its port.
const (
	roleRouter     = "router"
	roleCounter    = "counter"
	roleAggregator = "aggregator"
)

var allRoles = []string{roleRouter, roleCounter, roleAggregator}

// methodRoles is the RPC by which a server asks another one for its roles.
const methodRoles = "usage.roles"

func (p *peers) has(role string) bool { return slices.Contains(p.ours(), role) }

func (p *peers) ours() []string {
	if len(p.own) == 0 {
		return allRoles
	}
	return p.own
}

func (p *peers) serve(context.Context, []byte) ([]byte, error) {
	return []byte(strings.Join(p.ours(), " ")), nil
}

// peers are what this server knows of the roles of the others.
type peers struct {
	own  []string // of this server; none are all
	self string

	mu    sync.Mutex // guards what follows
	roles map[string][]string
}

// counters are the servers of the plane that count. One that has never answered is taken for one: it may be down, and
// have a part.
func (p *Plane) counters() []string { return p.peers.counters(p.members()) }

func (p *peers) counters(members []string) (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range members {
		roles, known := p.roles[s]
		if s == p.self {
			roles, known = p.ours(), true
		}
		if !known || slices.Contains(roles, roleCounter) {
			list = append(list, s)
		}
	}
	return list
}

// allKnown says whether each server has told its roles.
func (p *peers) allKnown(members []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range members {
		if _, known := p.roles[s]; !known && s != p.self {
			return false
		}
	}
	return true
}

const (
	rolesEvery   = time.Second
	rolesTimeout = time.Second
)

// listen asks the others for their roles: those that are not known often, the others now and then.
func (p *Plane) listen(ctx context.Context) error {
	for n := 0; ; n++ {
		for _, s := range p.members() {
			p.peers.mu.Lock()
			_, known := p.peers.roles[s]
			p.peers.mu.Unlock()
			if s == p.d.ID || known && n%30 != 0 {
				continue
			}
			if reply, err := p.askRoles(ctx, s); err == nil {
				p.peers.learn(s, reply)
			}
		}
		t := p.d.Clock.NewTimer(rolesEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

func (p *Plane) askRoles(ctx context.Context, server string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, rolesTimeout)
	defer cancel()
	return p.call(ctx, server, methodRoles, nil)
}

func (p *peers) learn(server string, reply []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roles[server] = strings.Fields(string(reply))
}

// gated refuses requests of the API that are for roles that this server has not.
func (p *peers) gated(api http.Handler) http.Handler {
	if p.has(roleRouter) && p.has(roleAggregator) {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if role := roleOf(r); role != "" && !p.has(role) {
			httpx.WriteText(w, http.StatusServiceUnavailable,
				errkind.Errorf(errkind.Unavailable, "usage: this server is no %s (usage.roles): ask another one", role).Error())
			return
		}
		api.ServeHTTP(w, r)
	})
}

// roleOf is the role that a request is for; definitions are everybody's.
func roleOf(r *http.Request) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/usage/"), "/")
	switch name {
	case "events", "batch":
		return roleRouter
	case "estimates", "top", "explain", "accuracy", "corrections", "metrics":
		return roleAggregator
	}
	return ""
}

// checkRoles names what is wrong with usage.roles.
func checkRoles(list []string) error {
	for _, role := range list {
		if !slices.Contains(allRoles, role) {
			return errkind.Errorf(errkind.Invalid, "usage.roles: %.40q is none of %s; the cache has a port, usage.cache.port",
				cmp.Or(role, "(empty)"), strings.Join(allRoles, ", "))
		}
	}
	return nil
}
