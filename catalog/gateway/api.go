package gateway

import (
	"fmt"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/statestore"
)

// Routes are the routes of a cluster, in the order of their names.
type Routes struct {
	HTTP []*entry.HTTP
	TCP  []*entry.TCP
}

// RoutesOf reads the routes of a State; get reads config entries.
func RoutesOf(st *statestore.State, get entry.Getter) *Routes {
	out := &Routes{}
	for r := range st.Records(catalog.RecordConfigEntry, entry.HTTPRoute+"/") {
		if e, ok := get(entry.HTTPRoute, strings.TrimPrefix(r.Key, entry.HTTPRoute+"/")).(*entry.HTTP); ok {
			out.HTTP = append(out.HTTP, e)
		}
	}
	for r := range st.Records(catalog.RecordConfigEntry, entry.TCPRoute+"/") {
		if e, ok := get(entry.TCPRoute, strings.TrimPrefix(r.Key, entry.TCPRoute+"/")).(*entry.TCP); ok {
			out.TCP = append(out.TCP, e)
		}
	}
	return out
}

// OfHTTP lists the routes of a gateway's listener for requests.
func (r *Routes) OfHTTP(gateway string, l *entry.APIListener) (list []*entry.HTTP) {
	for _, e := range r.HTTP {
		if named(e.Parents, gateway, l.Name) && l.Protocol == "http" && len(Hosts(l, e)) > 0 {
			list = append(list, e)
		}
	}
	return list
}

// OfTCP lists the routes of a gateway's listener for connections; it serves the first.
func (r *Routes) OfTCP(gateway string, l *entry.APIListener) (list []*entry.TCP) {
	for _, e := range r.TCP {
		if named(e.Parents, gateway, l.Name) && l.Protocol == "tcp" {
			list = append(list, e)
		}
	}
	return list
}

func named(parents []entry.Reference, gateway, section string) bool {
	return slices.ContainsFunc(parents, func(p entry.Reference) bool {
		return p.Kind == entry.APIGateway && p.Name == gateway && (p.SectionName == "" || p.SectionName == section)
	})
}

// Hosts are those that a route serves at a listener: the narrower of what both name. None: they have no host in common.
func Hosts(l *entry.APIListener, e *entry.HTTP) []string {
	own := l.Hostname
	if own == "" {
		own = "*"
	}
	if len(e.Hostnames) == 0 {
		return []string{own}
	}
	var list []string
	for _, h := range e.Hostnames {
		switch {
		case within(h, own):
			list = append(list, h)
		case within(own, h):
			list = append(list, own)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// within tells whether every host that a pattern fits fits the other one too.
func within(host, pattern string) bool {
	host, pattern = strings.ToLower(host), strings.ToLower(pattern)
	if pattern == "*" || host == pattern {
		return true
	}
	suffix, ok := strings.CutPrefix(pattern, "*")
	return ok && host != "*" && strings.HasSuffix(strings.TrimPrefix(host, "*"), suffix) && len(host) > len(suffix)
}

// Unusable tells why a listener has not all of its certificates; "" when it has, or needs none.
func Unusable(get entry.Getter, l *entry.APIListener) string {
	for _, c := range l.TLS.Certificates {
		if get(c.Kind, c.Name) == nil {
			return fmt.Sprintf("%s %q does not exist", c.Kind, c.Name)
		}
	}
	return ""
}

// Status works out how a gateway or route stands; nil for other kinds.
func Status(st *statestore.State, get entry.Getter, e entry.Entry) *entry.Status {
	switch e := e.(type) {
	case *entry.API:
		return &entry.Status{Conditions: gatewayStatus(st, get, e)}
	case *entry.HTTP:
		return &entry.Status{Conditions: httpStatus(get, e)}
	case *entry.TCP:
		return &entry.Status{Conditions: tcpStatus(get, e)}
	}
	return nil
}

func condition(kind, status, reason, message string, about *entry.Reference) entry.Condition {
	return entry.Condition{Type: kind, Status: status, Reason: reason, Message: message, Resource: about}
}

func gatewayStatus(st *statestore.State, get entry.Getter, e *entry.API) []entry.Condition {
	self := &entry.Reference{Kind: entry.APIGateway, Name: e.Name}
	list := []entry.Condition{condition("Accepted", "True", "Accepted", "gateway is valid", self)}
	routes := RoutesOf(st, get)
	for i := range e.Listeners {
		l := &e.Listeners[i]
		at := &entry.Reference{Kind: entry.APIGateway, Name: e.Name, SectionName: l.Name}
		if why := Unusable(get, l); why != "" {
			list[0] = condition("Accepted", "False", "InvalidCertificates", "gateway references invalid or missing certificates",
				self)
			list = append(list, condition("ResolvedRefs", "False", "InvalidCertificateRef", why, at))
		} else {
			list = append(list, condition("ResolvedRefs", "True", "ResolvedRefs", "resolved refs", at))
		}
		if len(routes.OfTCP(e.Name, l)) > 1 {
			list = append(list, condition("Conflicted", "True", "RouteConflict",
				"TCP-based listeners currently only support binding a single route", at))
		} else {
			list = append(list, condition("Conflicted", "False", "NoConflict", "listener has no route conflict", at))
		}
	}
	return list
}

func httpStatus(get entry.Getter, e *entry.HTTP) []entry.Condition {
	var services []string
	for _, r := range e.Rules {
		for _, s := range r.Services {
			services = append(services, s.Name)
		}
	}
	return routeStatus(get, e.Parents, services, true, func(l *entry.APIListener) string {
		if l.Protocol != "http" {
			return fmt.Sprintf("listener %q is for connections", l.Name)
		}
		if len(Hosts(l, e)) == 0 {
			return fmt.Sprintf("no host in common with listener %q", l.Name)
		}
		return ""
	})
}

func tcpStatus(get entry.Getter, e *entry.TCP) []entry.Condition {
	var services []string
	for _, s := range e.Services {
		services = append(services, s.Name)
	}
	return routeStatus(get, e.Parents, services, false, func(l *entry.APIListener) string {
		if l.Protocol != "tcp" {
			return fmt.Sprintf("listener %q is for requests", l.Name)
		}
		return ""
	})
}

// routeStatus: refuses tells why a listener does not take the route.
func routeStatus(get entry.Getter, parents []entry.Reference, services []string, http bool,
	refuses func(*entry.APIListener) string) []entry.Condition {
	list := []entry.Condition{condition("Accepted", "True", "Accepted", "route is valid", nil)}
	if len(services) == 0 {
		list[0] = condition("Accepted", "False", "NoUpstreamServicesTargeted",
			"route must target at least one upstream service", nil)
	}
	for _, s := range services {
		if protocol := entry.Protocol(get, s); http != entry.IsHTTP(protocol) {
			list[0] = condition("Accepted", "False", "InvalidDiscoveryChain",
				fmt.Sprintf("route targets service %q, which uses protocol %q", s, protocol), nil)
		}
	}
	for i := range parents {
		p := parents[i]
		gateway, ok := get(entry.APIGateway, p.Name).(*entry.API)
		if !ok {
			list = append(list, condition("Bound", "False", "GatewayNotFound", "gateway was not found", &p))
			continue
		}
		bound, why := false, fmt.Sprintf("no valid listener has section name %q", p.SectionName)
		for j := range gateway.Listeners {
			l := &gateway.Listeners[j]
			if p.SectionName != "" && p.SectionName != l.Name {
				continue
			}
			if refused := refuses(l); refused != "" {
				why = refused
			} else if unusable := Unusable(get, l); unusable != "" {
				why = unusable
			} else {
				bound = true
			}
		}
		if bound {
			list = append(list, condition("Bound", "True", "Bound", "successfully bound route", &p))
		} else {
			list = append(list, condition("Bound", "False", "FailedToBind", "failed to bind route to gateway "+p.Name+
				": "+why, &p))
		}
	}
	return list
}
