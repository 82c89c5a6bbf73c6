package envoy

import (
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"corbel.dev/corbel/catalog/entry"
)

func anyPermission() *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_Any{Any: true}}
}

// permissions lists the requests that are decided otherwise than by default:
// the permissions with that action, each without those before it. A request that
// none fits falls to the default.
func permissions(list []entry.Permission, defaultAllow bool) []*rbacv3.Permission {
	var out, before []*rbacv3.Permission
	for _, p := range list {
		own := permission(p.HTTP)
		allow := p.Action == entry.Allow
		if allow && p.JWT != nil {
			continue // tokens are not looked at: it fits no request
		}
		if allow != defaultAllow {
			all := append([]*rbacv3.Permission{own}, before...)
			if len(all) == 1 {
				out = append(out, own)
			} else {
				out = append(out,
					&rbacv3.Permission{Rule: &rbacv3.Permission_AndRules{AndRules: &rbacv3.Permission_Set{Rules: all}}})
			}
		}
		before = append(before, &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: own}})
	}
	return out
}

func permission(p *entry.HTTPPermission) *rbacv3.Permission {
	var all []*rbacv3.Permission
	if p != nil {
		if path := pathMatcher(p.PathExact, p.PathPrefix, p.PathRegex); path != nil {
			all = append(all,
				&rbacv3.Permission{
					Rule: &rbacv3.Permission_UrlPath{UrlPath: &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: path}}},
				})
		}
		for i := range p.Header {
			all = append(all, headerRule(permissionHeader(&p.Header[i])))
		}
		if len(p.Methods) > 0 {
			all = append(all, methodRule(p.Methods))
		}
	}
	switch len(all) {
	case 0:
		return anyPermission()
	case 1:
		return all[0]
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_AndRules{AndRules: &rbacv3.Permission_Set{Rules: all}}}
}

// pathMatcher is nil when no path is asked for.
func pathMatcher(exact, prefix, pattern string) *matcherv3.StringMatcher {
	switch {
	case exact != "":
		return exactly(exact)
	case prefix != "":
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}}
	case pattern != "":
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: regex(pattern)}}
	}
	return nil
}

func exactly(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

func headerRule(m *routev3.HeaderMatcher) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_Header{Header: m}}
}

func methodRule(methods []string) *rbacv3.Permission {
	var any []*rbacv3.Permission
	for _, method := range methods {
		any = append(any, headerRule(headerText(":method", exactly(method))))
	}
	if len(any) == 1 {
		return any[0]
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_OrRules{OrRules: &rbacv3.Permission_Set{Rules: any}}}
}

func headerText(name string, m *matcherv3.StringMatcher) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: m}}
}

func permissionHeader(h *entry.HeaderPermission) *routev3.HeaderMatcher {
	m := headerMatcher(h.Name, h.Exact, h.Prefix, h.Suffix, h.Contains, h.Regex)
	m.InvertMatch = h.Invert
	if text := m.GetStringMatch(); text != nil && text.GetSafeRegex() == nil {
		text.IgnoreCase = h.IgnoreCase
	}
	return m
}

// headerMatcher asks for the one text that is not empty, else for the header to be there.
func headerMatcher(name, exact, prefix, suffix, contains, pattern string) *routev3.HeaderMatcher {
	text := pathMatcher(exact, prefix, pattern)
	switch {
	case text != nil:
	case suffix != "":
		text = &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: suffix}}
	case contains != "":
		text = &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Contains{Contains: contains}}
	default:
		return &routev3.HeaderMatcher{Name: name,
			HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}
	}
	return headerText(name, text)
}
