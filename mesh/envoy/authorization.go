package envoy

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// Names of the policies; dashboards know them.
const (
	layer4Policy = "consul-intentions-layer4"
	layer7Policy = "consul-intentions-layer7-%d"
	authzPrefix  = "connect_authz"
)

// Authorization makes the rules of a service, or of all that no intention names, for listeners that see
// connections and for those that see requests. All their proxies share them: nothing in them names the service.
//
// A listener that sees connections cannot tell requests apart: there a source
// with permissions is refused altogether.
//
// Tokens (JWT) are not looked at yet: what is allowed only with a token is
// allowed to nobody, and what is denied with one is denied to all.
func Authorization(v *mesh.Rules) (*mesh.RulesValue, error) {
	if v.TrustDomain == "" {
		return nil, errkind.New(errkind.Invalid, "Rules.TrustDomain is required")
	}
	network, err := extension(mesh.NetworkRules, &netrbacv3.RBAC{StatPrefix: authzPrefix, Rules: rules(v, false)})
	if err != nil {
		return nil, fmt.Errorf("intentions for %q: %w", cmp.Or(v.Service, "*"), err)
	}
	http, err := extension(mesh.HTTPRules, &httprbacv3.RBAC{Rules: rules(v, true)})
	if err != nil {
		return nil, fmt.Errorf("intentions for %q: %w", cmp.Or(v.Service, "*"), err)
	}
	return &mesh.RulesValue{Network: network, HTTP: http}, nil
}

// extension makes a resource of a filter's configuration.
func extension(name string, m proto.Message) (*mesh.Resource, error) {
	var p packer
	config := &corev3.TypedExtensionConfig{Name: name, TypedConfig: p.any(m)}
	if p.err != nil {
		return nil, p.err
	}
	return encode(mesh.TypeExtension, name, config)
}

// rules turns an ordered list (the first that fits decides) into Envoy's
// unordered one: each source is taken without those that were decided before
// it. The object is there also when it holds nothing: without it Envoy would let
// all through, with it and ALLOW nothing.
func rules(v *mesh.Rules, http bool) *rbacv3.RBAC {
	out := &rbacv3.RBAC{Action: rbacv3.RBAC_ALLOW}
	if v.DefaultAllow {
		out.Action = rbacv3.RBAC_DENY
	}
	out.Policies = map[string]*rbacv3.Policy{}
	var layer4 []*rbacv3.Principal
	layer7 := 0
	for i, s := range v.Intentions { // s is a copy
		who := principal(v, i)
		if who == nil {
			continue
		}
		if s.JWT != nil && s.Action == entry.Allow {
			s.Action = entry.Deny
		}
		if len(s.Permissions) > 0 && s.JWT == nil && http {
			if list := permissions(s.Permissions, v.DefaultAllow); len(list) > 0 {
				out.Policies[fmt.Sprintf(layer7Policy, layer7)] = &rbacv3.Policy{Principals: []*rbacv3.Principal{who},
					Permissions: list}
			}
			layer7++
			continue
		}
		if allowed := s.Action == entry.Allow; allowed != v.DefaultAllow {
			layer4 = append(layer4, who)
		}
	}
	if len(layer4) > 0 {
		out.Policies[layer4Policy] = &rbacv3.Policy{Principals: layer4, Permissions: []*rbacv3.Permission{anyPermission()}}
	}
	return out
}

// principal is who the source at i decides for: itself without those before it;
// nil when nobody is left. Each cluster has a trust domain of its own, so that sources of one say nothing of
// another's; those of a peer that has not told its own name nobody who could come.
func principal(v *mesh.Rules, i int) *rbacv3.Principal {
	s := v.Intentions[i]
	domain := v.TrustDomain
	if s.Peer != "" {
		domain = v.Peers[s.Peer]
	}
	if domain == "" {
		return nil
	}
	own := identity(domain, s.Source)
	all := []*rbacv3.Principal{own}
	for _, before := range v.Intentions[:i] {
		switch {
		case before.Peer != s.Peer:
		case before.Source == s.Source || before.Source == "*":
			return nil
		case s.Source == "*":
			all = append(all, &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: identity(domain,
				before.Source)}})
		}
	}
	if len(all) == 1 {
		return own
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: all}}}
}

// identity fits the certificates of a service in any datacenter.
func identity(trustDomain, service string) *rbacv3.Principal {
	name := "[^/]+"
	if service != "*" {
		name = regexp.QuoteMeta(url.PathEscape(service))
	}
	pattern := "^spiffe://" + regexp.QuoteMeta(trustDomain) + "/ns/default/dc/[^/]+/svc/" + name + "$"
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{
		PrincipalName: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: regex(pattern)},
		}}}}
}

func regex(pattern string) *matcherv3.RegexMatcher { return &matcherv3.RegexMatcher{Regex: pattern} }
