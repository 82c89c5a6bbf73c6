package envoy

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"corbel.dev/corbel/catalog/chain"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// totalWeight is what the weights of a split add up to: steps of a hundredth percent.
const totalWeight = 10000

// ClusterName is the name of a target's cluster for those who follow the chain.
// A chain that is somebody's own has clusters of its own.
func ClusterName(c *chain.Chain, t *chain.Target) string {
	if c.CustomizationHash != "" {
		return c.CustomizationHash + "~" + t.Name
	}
	return t.Name
}

// Routes says where the requests to an upstream go. Name is the resource's.
func Routes(name string, c *chain.Chain) (*mesh.Resource, error) {
	list, err := routesOf(c)
	if err != nil {
		return nil, named(mesh.TypeRoute, name, err)
	}
	return encode(mesh.TypeRoute, name, &routev3.RouteConfiguration{Name: name, ValidateClusters: truth(false),
		VirtualHosts: []*routev3.VirtualHost{{Name: name, Domains: []string{"*"}, Routes: list}}})
}

// Host is a chain that serves the requests to some host names.
type Host struct {
	Name            string
	Domains         []string
	Chain           *chain.Chain
	RequestHeaders  *entry.HeaderModifiers
	ResponseHeaders *entry.HeaderModifiers
}

// HostRoutes says where the requests of a listener with several services go, by host.
func HostRoutes(name string, hosts []Host) (*mesh.Resource, error) {
	m := &routev3.RouteConfiguration{Name: name, ValidateClusters: truth(false)}
	taken := map[string]string{}
	for _, h := range hosts {
		for _, domain := range h.Domains {
			if other, ok := taken[domain]; ok {
				return nil, named(mesh.TypeRoute, name, errkind.Errorf(errkind.Invalid, "Hosts: %q is of both %q and %q", domain,
					other, h.Name))
			}
			taken[domain] = h.Name
		}
		list, err := routesOf(h.Chain)
		if err != nil {
			return nil, named(mesh.TypeRoute, name, err)
		}
		host := &routev3.VirtualHost{Name: h.Name, Domains: h.Domains, Routes: list}
		host.RequestHeadersToAdd, host.RequestHeadersToRemove = modify(h.RequestHeaders)
		host.ResponseHeadersToAdd, host.ResponseHeadersToRemove = modify(h.ResponseHeaders)
		m.VirtualHosts = append(m.VirtualHosts, host)
	}
	return encode(mesh.TypeRoute, name, m)
}

func routesOf(c *chain.Chain) ([]*routev3.Route, error) {
	start := c.Nodes[c.StartNode]
	if start == nil {
		return nil, errkind.Errorf(errkind.Invalid, "the chain of %q has no node %q", c.ServiceName, c.StartNode)
	}
	if start.Type != chain.KindRouter {
		action, err := actionOf(c, start)
		if err != nil {
			return nil, err
		}
		return []*routev3.Route{{Match: prefix("/"), Action: &routev3.Route_Route{Route: action}}}, nil
	}
	var list []*routev3.Route
	for i, r := range start.Routes {
		next := c.Nodes[r.NextNode]
		if next == nil {
			return nil, errkind.Errorf(errkind.Invalid, "Routes[%d] of %q leads to no node %q", i, c.ServiceName, r.NextNode)
		}
		action, err := actionOf(c, next)
		if err != nil {
			return nil, err
		}
		route := &routev3.Route{Match: routeMatch(r.Definition), Action: &routev3.Route_Route{Route: action}}
		if r.Definition != nil && r.Definition.Destination != nil {
			direct(route, action, r.Definition.Destination)
		}
		list = append(list, route)
	}
	return list, nil
}

// actionOf is where a splitter or a resolver leads.
func actionOf(c *chain.Chain, n *chain.Node) (*routev3.RouteAction, error) {
	switch {
	case n.Resolver != nil:
		t := c.Targets[n.Resolver.Target]
		if t == nil {
			return nil, errkind.Errorf(errkind.Invalid, "node %q of %q leads to no target %q", n.ID(), c.ServiceName,
				n.Resolver.Target)
		}
		action := toCluster(ClusterName(c, t))
		if n.Resolver.RequestTimeout > 0 {
			action.Timeout = duration(time.Duration(n.Resolver.RequestTimeout))
		}
		action.HashPolicy = hashPolicies(n.LoadBalancer)
		return action, nil
	case len(n.Splits) > 0:
		return splitAction(c, n)
	}
	return nil, errkind.Errorf(errkind.Invalid, "node %q of %q leads nowhere", n.ID(), c.ServiceName)
}

func splitAction(c *chain.Chain, n *chain.Node) (*routev3.RouteAction, error) {
	action := &routev3.RouteAction{}
	weighted := &routev3.WeightedCluster{}
	weights := shares(n.Splits)
	for i, s := range n.Splits {
		next := c.Nodes[s.NextNode]
		if next == nil || next.Resolver == nil || c.Targets[next.Resolver.Target] == nil {
			return nil, errkind.Errorf(errkind.Invalid, "Splits[%d] of %q leads to no target", i, c.ServiceName)
		}
		if weights[i] == 0 {
			continue
		}
		w := &routev3.WeightedCluster_ClusterWeight{Name: ClusterName(c, c.Targets[next.Resolver.Target]),
			Weight: u32(weights[i])}
		if d := s.Definition; d != nil {
			w.RequestHeadersToAdd, w.RequestHeadersToRemove = modify(d.RequestHeaders)
			w.ResponseHeadersToAdd, w.ResponseHeadersToRemove = modify(d.ResponseHeaders)
		}
		weighted.Clusters = append(weighted.Clusters, w)
		if next.Resolver.RequestTimeout > 0 && action.Timeout == nil {
			action.Timeout = duration(time.Duration(next.Resolver.RequestTimeout))
		}
		if action.HashPolicy == nil {
			action.HashPolicy = hashPolicies(next.LoadBalancer)
		}
	}
	if len(weighted.Clusters) == 0 {
		return nil, errkind.Errorf(errkind.Invalid, "the splits of %q have no weight", c.ServiceName)
	}
	action.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted}
	return action, nil
}

// shares are the weights in steps of a hundredth percent. Nested splits round:
// what is missing to the total, or too much, goes to the largest.
func shares(splits []*chain.Split) []uint32 {
	out := make([]uint32, len(splits))
	sum, largest := 0, 0
	for i, s := range splits {
		n := int(math.Round(float64(s.Weight) * 100))
		out[i] = uint32(min(max(n, 0), totalWeight))
		sum += int(out[i])
		if out[i] > out[largest] {
			largest = i
		}
	}
	if left := totalWeight - sum; sum > 0 && int(out[largest])+left > 0 {
		out[largest] = uint32(int(out[largest]) + left)
	}
	return out
}

func routeMatch(r *entry.Route) *routev3.RouteMatch {
	if r == nil || r.Match == nil || r.Match.HTTP == nil {
		return prefix("/")
	}
	h := r.Match.HTTP
	m := prefix("/")
	switch {
	case h.PathExact != "":
		m.PathSpecifier = &routev3.RouteMatch_Path{Path: h.PathExact}
	case h.PathPrefix != "":
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: h.PathPrefix}
	case h.PathRegex != "" && h.CaseInsensitive: // Envoy's switch does not hold for expressions
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: regex("(?i:" + h.PathRegex + ")")}
	case h.PathRegex != "":
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: regex(h.PathRegex)}
	}
	if h.CaseInsensitive && h.PathRegex == "" {
		m.CaseSensitive = truth(false)
	}
	for _, match := range h.Header {
		header := headerMatcher(match.Name, match.Exact, match.Prefix, match.Suffix, "", match.Regex)
		header.InvertMatch = match.Invert
		m.Headers = append(m.Headers, header)
	}
	if len(h.Methods) > 0 {
		var quoted []string
		for _, method := range h.Methods {
			quoted = append(quoted, regexp.QuoteMeta(method))
		}
		m.Headers = append(m.Headers, headerText(":method", &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: regex(strings.Join(quoted, "|"))}}))
	}
	for _, q := range h.QueryParam {
		m.QueryParameters = append(m.QueryParameters, queryMatcher(&q))
	}
	return m
}

func queryMatcher(q *entry.QueryParamMatch) *routev3.QueryParameterMatcher {
	m := &routev3.QueryParameterMatcher{Name: q.Name}
	if text := pathMatcher(q.Exact, "", q.Regex); text != nil {
		m.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_StringMatch{StringMatch: text}
	} else {
		m.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true}
	}
	return m
}

// direct sets what a route says of the requests that it takes.
func direct(route *routev3.Route, action *routev3.RouteAction, d *entry.RouteDestination) {
	if d.PrefixRewrite != "" {
		action.PrefixRewrite = d.PrefixRewrite
	}
	if d.RequestTimeout > 0 {
		action.Timeout = duration(time.Duration(d.RequestTimeout))
	}
	if d.IdleTimeout > 0 {
		action.IdleTimeout = duration(time.Duration(d.IdleTimeout))
	}
	action.RetryPolicy = retries(d)
	route.RequestHeadersToAdd, route.RequestHeadersToRemove = modify(d.RequestHeaders)
	route.ResponseHeadersToAdd, route.ResponseHeadersToRemove = modify(d.ResponseHeaders)
}

func retries(d *entry.RouteDestination) *routev3.RetryPolicy {
	if d.NumRetries == 0 && !d.RetryOnConnectFailure && len(d.RetryOnStatusCodes) == 0 && len(d.RetryOn) == 0 {
		return nil
	}
	on := slices.Clone(d.RetryOn)
	if d.RetryOnConnectFailure && !slices.Contains(on, "connect-failure") {
		on = append(on, "connect-failure")
	}
	if len(d.RetryOnStatusCodes) > 0 {
		on = append(on, "retriable-status-codes")
	}
	m := &routev3.RetryPolicy{RetryOn: strings.Join(on, ","), RetriableStatusCodes: d.RetryOnStatusCodes}
	if d.NumRetries > 0 {
		m.NumRetries = u32(d.NumRetries)
	}
	return m
}

// modify are the headers to add or set, in the order of their names, and those to remove.
func modify(v *entry.HeaderModifiers) (add []*corev3.HeaderValueOption, remove []string) {
	if v == nil {
		return nil, nil
	}
	each := func(m map[string]string, action corev3.HeaderValueOption_HeaderAppendAction) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			add = append(add, &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, Value: m[name]},
				AppendAction: action})
		}
	}
	each(v.Add, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	each(v.Set, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	return add, v.Remove
}

func hashPolicies(v *entry.LoadBalancer) []*routev3.RouteAction_HashPolicy {
	if v == nil {
		return nil
	}
	var list []*routev3.RouteAction_HashPolicy
	for _, h := range v.HashPolicies {
		m := &routev3.RouteAction_HashPolicy{Terminal: h.Terminal}
		switch {
		case h.SourceIP:
			m.PolicySpecifier = &routev3.RouteAction_HashPolicy_ConnectionProperties_{
				ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: true},
			}
		case h.Field == "header":
			m.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{
				Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: h.FieldValue},
			}
		case h.Field == "cookie":
			m.PolicySpecifier = &routev3.RouteAction_HashPolicy_Cookie_{Cookie: hashCookie(&h)}
		case h.Field == "query_parameter":
			m.PolicySpecifier = &routev3.RouteAction_HashPolicy_QueryParameter_{
				QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: h.FieldValue},
			}
		default:
			continue
		}
		list = append(list, m)
	}
	return list
}

func hashCookie(h *entry.HashPolicy) *routev3.RouteAction_HashPolicy_Cookie {
	m := &routev3.RouteAction_HashPolicy_Cookie{Name: h.FieldValue}
	if c := h.CookieConfig; c != nil {
		m.Path = c.Path
		if c.TTL > 0 {
			m.Ttl = duration(time.Duration(c.TTL))
		} else if c.Session { // without a lifetime Envoy would not set one at all
			m.Ttl = duration(0)
		}
	}
	return m
}
