package envoy

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/ca"
)

const testDomain = "11111111-2222-3333-4444-555555555555.consul"

// request is what a rule sees.
type request struct {
	source, path, method string
	headers              map[string]string
}

// decide is the rule of intentions in its own words: the first that fits the
// source decides, and within it the first permission that fits the request.
func decide(v *mesh.Rules, r request, http bool) bool {
	for _, in := range v.Intentions {
		if in.Source != r.source && in.Source != "*" {
			continue
		}
		if len(in.Permissions) == 0 {
			return in.Action == entry.Allow
		}
		if !http {
			return false
		}
		for _, p := range in.Permissions {
			if fits(p.HTTP, r) {
				return p.Action == entry.Allow
			}
		}
		return v.DefaultAllow
	}
	return v.DefaultAllow
}

func fits(p *entry.HTTPPermission, r request) bool {
	if p.PathExact != "" && r.path != p.PathExact || !strings.HasPrefix(r.path, p.PathPrefix) {
		return false
	}
	if p.PathRegex != "" && !regexp.MustCompile("^(?:"+p.PathRegex+")$").MatchString(r.path) {
		return false
	}
	for _, h := range p.Header {
		value, ok := r.headers[h.Name]
		fit := ok
		if h.Exact != "" {
			fit = ok && (value == h.Exact || h.IgnoreCase && strings.EqualFold(value, h.Exact))
		}
		if fit == h.Invert {
			return false
		}
	}
	return len(p.Methods) == 0 || slices.Contains(p.Methods, r.method)
}

// allowed is how Envoy evaluates an RBAC filter.
func allowed(t *rapid.T, rules *rbacv3.RBAC, r request) bool {
	matched := false
	for _, p := range rules.Policies {
		matched = matched || slices.ContainsFunc(p.Principals,
			func(id *rbacv3.Principal) bool { return isPrincipal(t, id, r.source) }) &&
			slices.ContainsFunc(p.Permissions, func(rule *rbacv3.Permission) bool { return permits(t, rule, r) })
	}
	return matched == (rules.Action == rbacv3.RBAC_ALLOW)
}

func isPrincipal(t *rapid.T, p *rbacv3.Principal, source string) bool {
	switch id := p.Identifier.(type) {
	case *rbacv3.Principal_Authenticated_:
		who := mustSPIFFE(source)
		return regexp.MustCompile(id.Authenticated.PrincipalName.GetSafeRegex().Regex).MatchString(who)
	case *rbacv3.Principal_NotId:
		return !isPrincipal(t, id.NotId, source)
	case *rbacv3.Principal_AndIds:
		return !slices.ContainsFunc(id.AndIds.Ids, func(p *rbacv3.Principal) bool { return !isPrincipal(t, p, source) })
	}
	t.Fatalf("principal %v", p)
	return false
}

// mustSPIFFE is the name of a service, or of "SERVICE of TRUST-DOMAIN".
func mustSPIFFE(service string) string {
	service, domain, ok := strings.Cut(service, " of ")
	if !ok {
		domain = testDomain
	}
	return ca.ID{Kind: ca.ServiceID, TrustDomain: domain, Datacenter: "dc1", Name: service}.URI().String()
}

func permits(t *rapid.T, p *rbacv3.Permission, r request) bool {
	permit := func(p *rbacv3.Permission) bool { return permits(t, p, r) }
	switch rule := p.Rule.(type) {
	case *rbacv3.Permission_Any:
		return rule.Any
	case *rbacv3.Permission_NotRule:
		return !permit(rule.NotRule)
	case *rbacv3.Permission_AndRules:
		return !slices.ContainsFunc(rule.AndRules.Rules, func(p *rbacv3.Permission) bool { return !permit(p) })
	case *rbacv3.Permission_OrRules:
		return slices.ContainsFunc(rule.OrRules.Rules, permit)
	case *rbacv3.Permission_UrlPath:
		return textFits(rule.UrlPath.GetPath(), r.path)
	case *rbacv3.Permission_Header:
		return headerFits(rule.Header, r)
	}
	t.Fatalf("permission %v", p)
	return false
}

func headerFits(m *routev3.HeaderMatcher, r request) bool {
	value, ok := r.headers[m.Name]
	if m.Name == ":method" {
		value, ok = r.method, true
	}
	if m.GetStringMatch() != nil {
		ok = ok && textFits(m.GetStringMatch(), value)
	}
	return ok != m.InvertMatch
}

func textFits(m *matcherv3.StringMatcher, s string) bool {
	switch p := m.MatchPattern.(type) {
	case *matcherv3.StringMatcher_Exact:
		return s == p.Exact || m.IgnoreCase && strings.EqualFold(s, p.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(s, p.Prefix)
	case *matcherv3.StringMatcher_SafeRegex:
		return regexp.MustCompile("^(?:" + p.SafeRegex.Regex + ")$").MatchString(s)
	}
	return false
}

func TestRulesDecideAsTheIntentionsDo(t *testing.T) {
	names := []string{"*", "web", "api", "a.b", "x y"}
	rapid.Check(t, func(rt *rapid.T) {
		v := &mesh.Rules{Service: "db", TrustDomain: testDomain, DefaultAllow: rapid.Bool().Draw(rt, "default allow")}
		for range rapid.IntRange(0, 6).Draw(rt, "intentions") {
			v.Intentions = append(v.Intentions, drawIntention(rt, names))
		}
		slices.SortStableFunc(v.Intentions, func(a, b mesh.Intention) int { return cmp.Compare(b.Precedence, a.Precedence) })
		list, err := Authorization(v)
		if err != nil {
			rt.Fatal(err)
		}
		network, http := networkPolicies(t, list), httpPolicies(t, list)
		for _, source := range []string{"web", "api", "a.b", "axb", "x y", "other"} {
			for _, path := range []string{"/", "/admin", "/admin/x"} {
				for _, headers := range []map[string]string{nil, {"x-a": "1"}, {"x-a": "Two"}} {
					r := request{source: source, path: path, method: rapid.SampledFrom([]string{"GET", "POST"}).Draw(rt, "method"),
						headers: headers}
					if got, want := allowed(rt, http, r), decide(v, r, true); got != want {
						rt.Fatalf("http %+v: %t, want %t by %+v\n%v", r, got, want, v.Intentions, http)
					}
					if got, want := allowed(rt, network, r), decide(v, r, false); got != want {
						rt.Fatalf("tcp %+v: %t, want %t by %+v\n%v", r, got, want, v.Intentions, network)
					}
				}
			}
		}
	})
}

func drawIntention(t *rapid.T, names []string) mesh.Intention {
	exact := rapid.Bool().Draw(t, "exact destination")
	in := mesh.Intention{Source: rapid.SampledFrom(names).Draw(t, "source")}
	in.Precedence = entry.Precedence(in.Source, map[bool]string{true: "db", false: "*"}[exact])
	action := func() string { return rapid.SampledFrom([]string{entry.Allow, entry.Deny}).Draw(t, "action") }
	if rapid.Bool().Draw(t, "layer 4") {
		in.Action = action()
		return in
	}
	for range rapid.IntRange(1, 3).Draw(t, "permissions") {
		p := entry.Permission{Action: action(), HTTP: &entry.HTTPPermission{}}
		switch rapid.IntRange(0, 3).Draw(t, "path") {
		case 0:
			p.HTTP.PathExact = "/admin"
		case 1:
			p.HTTP.PathPrefix = "/admin"
		case 2:
			p.HTTP.PathRegex = "/admin/."
		}
		if rapid.Bool().Draw(t, "by header") {
			p.HTTP.Header = []entry.HeaderPermission{{Name: "x-a", Exact: "two", Invert: rapid.Bool().Draw(t, "invert"),
				IgnoreCase: rapid.Bool().Draw(t, "case")}}
		}
		if rapid.Bool().Draw(t, "by method") {
			p.HTTP.Methods = []string{"GET"}
		}
		in.Permissions = append(in.Permissions, p)
	}
	return in
}

func networkPolicies(t testing.TB, v *mesh.RulesValue) *rbacv3.RBAC {
	var m netrbacv3.RBAC
	unpackExtension(t, v.Network, &m)
	return m.Rules
}

func httpPolicies(t testing.TB, v *mesh.RulesValue) *rbacv3.RBAC {
	var m httprbacv3.RBAC
	unpackExtension(t, v.HTTP, &m)
	return m.Rules
}

func unpackExtension(t testing.TB, r *mesh.Resource, into proto.Message) {
	t.Helper()
	if err := opened(t, r, &corev3.TypedExtensionConfig{}).TypedConfig.UnmarshalTo(into); err != nil {
		t.Fatal(err)
	}
}

func TestRulesThatFailClosed(t *testing.T) {
	token := &entry.IntentionJWT{Providers: []entry.IntentionProvider{{Name: "idp"}}}
	tests := map[string]mesh.Rules{
		"nothing is allowed": {},
		"an intention asks for a token": {Intentions: []mesh.Intention{{Source: "web", Action: entry.Allow,
			JWT: token}}},
		"the same when all is allowed": {DefaultAllow: true,
			Intentions: []mesh.Intention{{Source: "web", Action: entry.Allow, JWT: token}}},
		"a permission asks for a token": {Intentions: []mesh.Intention{{Source: "web",
			Permissions: []entry.Permission{{Action: entry.Allow, JWT: token}}}}},
		"an intention with permissions and token": {DefaultAllow: true,
			Intentions: []mesh.Intention{{Source: "web", JWT: token,
				Permissions: []entry.Permission{{Action: entry.Allow, HTTP: &entry.HTTPPermission{PathPrefix: "/"}}}}}},
		"a source of a peer is nobody here": {Intentions: []mesh.Intention{{Source: "web", Peer: "east",
			Action: entry.Allow}}},
	}
	for name, v := range tests {
		v.Service, v.TrustDomain = "db", testDomain
		list, err := Authorization(&v)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		network, http := networkPolicies(t, list), httpPolicies(t, list)
		if network == nil || http == nil {
			t.Fatalf("%s: without rules everything would pass", name)
		}
		rapid.Check(t, func(rt *rapid.T) {
			if r := (request{source: "web", path: "/", method: "GET"}); allowed(rt, http, r) || allowed(rt, network, r) {
				rt.Errorf("%s: let through by %v", name, http)
			}
		})
	}
	if _, err := Authorization(&mesh.Rules{Service: "db"}); err == nil || !strings.Contains(err.Error(), "TrustDomain") {
		t.Errorf("without trust domain: %v", err)
	}
}

// TestSourcesOfPeers: an intention for a peer's service decides for the certificates of that peer's trust domain, and
// for no other ones: neither for those of this mesh nor the other way round.
func TestSourcesOfPeers(t *testing.T) {
	const far = "99999999-8888-7777-6666-555555555555.consul"
	v := &mesh.Rules{Service: "db", TrustDomain: testDomain, Peers: map[string]string{"east": far},
		Intentions: []mesh.Intention{
			{Source: "web", Peer: "east", Precedence: 9, Action: entry.Allow},
			{Source: "bad", Precedence: 9, Action: entry.Allow},
			{Source: "web", Peer: "unknown", Precedence: 9, Action: entry.Allow},
			{Source: "bad", Peer: "east", Precedence: 9, Action: entry.Deny},
			{Source: "*", Peer: "east", Precedence: 8, Action: entry.Allow},
			{Source: "*", Precedence: 8, Action: entry.Deny}}}
	for _, defaultAllow := range []bool{false, true} {
		v.DefaultAllow = defaultAllow
		list, err := Authorization(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			domain, source string
			want           bool
		}{{far, "web", true}, {far, "bad", false}, {far, "any", true}, {testDomain, "web", false},
			{testDomain, "bad", true}, {"other.consul", "web", defaultAllow}} {
			rapid.Check(t, func(rt *rapid.T) {
				r := request{source: c.source + " of " + c.domain, path: "/", method: "GET"}
				if allowed(rt, networkPolicies(t, list), r) != c.want || allowed(rt, httpPolicies(t, list), r) != c.want {
					rt.Errorf("by default %t: %s of %s, want %t", defaultAllow, c.source, c.domain, c.want)
				}
			})
		}
	}
}

func TestIdentityIsTheOneOfCertificates(t *testing.T) {
	for _, name := range []string{"web", "a.b", "x y", "ä/b"} {
		pattern := identity(testDomain, name).GetAuthenticated().PrincipalName.GetSafeRegex().Regex
		if !regexp.MustCompile(pattern).MatchString(mustSPIFFE(name)) {
			t.Errorf("%s does not match %s", pattern, mustSPIFFE(name))
		}
		if _, err := url.Parse(mustSPIFFE(name)); err != nil {
			t.Error(err)
		}
	}
}
