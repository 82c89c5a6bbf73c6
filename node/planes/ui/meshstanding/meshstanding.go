// Package meshstanding is what the topology screen tells of the mesh's hosts: how proxies stand, and the leaf
// certificates by which services prove who they are. It asks the catalog's API with the rights of whoever looks: of one
// service, its readers are told; of all, operators are, and others of the proxies of this server that they may read.
package meshstanding

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Proxy is one as its host sees it.
type Proxy struct {
	Node, ID, Service, State string
	Pending, Resources       int
	Refusal                  *struct{ Words string } `json:",omitempty"`
}

// Leaf is a certificate as its host and the authority's roots tell of it; State is a word.
type Leaf struct {
	Node, Service, SerialNumber, RootID, State string
	ValidBefore                                time.Time
	Error                                      string `json:",omitempty"`
}

// States are how many of something are in each state, by service.
type States map[string]map[string]int

// Silent is a host that did not answer.
type Silent struct{ Node, Error string }

// Standing is the answer. What could not be had is told under Problems; what this person may not see is left out.
type Standing struct {
	Proxies States
	List    []Proxy // at most MostProxies, the synced ones last
	// Partly tells that the proxies are those of this server's host alone.
	Partly bool
	Leaves States
	Certs  []Leaf // the worst first
	More   int    // certificates that are not listed
	Silent []Silent
	// Problems are why a part is missing, by its name.
	Problems map[string]string
}

// MostProxies bounds the proxies that are listed.
const MostProxies = 200

// Of is how a service stands, "" is all of them; get asks the catalog's API.
func Of(service string, get func(path string, into any) error) *Standing {
	s := &Standing{Proxies: States{}, Leaves: States{}, List: []Proxy{}, Certs: []Leaf{}, Silent: []Silent{},
		Problems: map[string]string{}}
	s.proxies(service, get)
	s.certificates(service, get)
	slices.SortFunc(s.Silent, func(a, b Silent) int { return cmp.Compare(a.Node, b.Node) })
	s.Silent = slices.CompactFunc(s.Silent, func(a, b Silent) bool { return a.Node == b.Node })
	return s
}

func (s *Standing) proxies(service string, get func(string, any) error) {
	var got struct {
		List     []Proxy
		Services States
		Silent   []Silent
	}
	path := "/v1/internal/mesh/status?services"
	if service != "" {
		path = "/v1/internal/mesh/find/" + url.PathEscape(service)
	}
	err := get(path, &got)
	if service == "" && errkind.Is(err, errkind.Denied) {
		s.Partly = true
		err = get("/v1/internal/mesh/proxies?all", &got)
	}
	switch {
	case service != "" && (errkind.Is(err, errkind.NotFound) || errkind.Is(err, errkind.Denied)):
		return // whether it has proxies is told to its readers alone; the certificates say that it may not be read
	case err != nil:
		s.Problems["proxies"] = errkind.Text(err)
		return
	}
	s.Silent = append(s.Silent, got.Silent...)
	if s.Proxies = got.Services; s.Proxies == nil {
		s.Proxies = States{}
		for _, p := range got.List {
			s.Proxies.add(p.Service, p.State)
		}
	}
	slices.SortStableFunc(got.List, func(a, b Proxy) int { return synced(a) - synced(b) })
	s.List = append(s.List, got.List[:min(len(got.List), MostProxies)]...)
}

func synced(p Proxy) int {
	if p.State == "synced" {
		return 1
	}
	return 0
}

func (s States) add(service, state string) {
	if s[service] == nil {
		s[service] = map[string]int{}
	}
	s[service][state]++
}

func (s *Standing) certificates(service string, get func(string, any) error) {
	var got struct {
		List     []Leaf
		Services States
		More     int
		Silent   []Silent
	}
	path := "/v1/internal/mesh/certificates"
	if service != "" {
		path += "?service=" + url.QueryEscape(service)
	}
	err := get(path, &got)
	switch {
	case service == "" && errkind.Is(err, errkind.Denied): // the screen of a service tells its readers
		return
	case errkind.Is(err, errkind.Denied):
		s.Problems["certificates"] = "this needs service:read"
		return
	case err != nil:
		s.Problems["certificates"] = errkind.Text(err)
		return
	}
	s.Silent = append(s.Silent, got.Silent...)
	if s.Certs, s.More = append(s.Certs, got.List...), got.More; got.Services != nil {
		s.Leaves = got.Services
	}
}
