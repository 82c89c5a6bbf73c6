package gatewayapi

import (
	"fmt"
	"slices"
	"strings"

	"corbel.dev/corbel/k8s"
)

// route translates a route, when one of its parents is ours.
func (t *translation) route(r *Route) {
	n := r.Metadata.Generation
	rules, refused := t.rules(r)
	resolved, why := t.backends(r)
	var parents []object
	var status RouteStatus
	for i := range r.Spec.ParentRefs {
		ref := &r.Spec.ParentRefs[i]
		g := t.parent(r, ref)
		if g == nil {
			continue // somebody else's: they say what came of it
		}
		accepted, message := "Accepted", ""
		if refused != "" {
			accepted, message = "UnsupportedValue", refused
		} else if list, reason, why := t.attach(g, r, ref); reason != "" {
			accepted, message = reason, why
		} else {
			parents = append(parents, list...)
		}
		status.Parents = append(status.Parents, ParentStatus{ParentRef: *ref, ControllerName: Controller,
			Conditions: []Condition{condition("Accepted", accepted, message, n),
				condition("ResolvedRefs", resolved, why, n)}})
	}
	if len(parents) > 0 {
		if err := t.claim("http-route", &r.Metadata); err != nil {
			for i := range status.Parents {
				status.Parents[i].Conditions[0] = condition("Accepted", "UnsupportedValue", err.Error(), n)
			}
		} else {
			body := object{"Parents": parents, "Rules": rules}
			if len(r.Spec.Hostnames) > 0 {
				body["Hostnames"] = r.Spec.Hostnames
			}
			t.entry("http-route", &r.Metadata, body)
			for _, p := range parents {
				t.attached[fmt.Sprint(p["key"])]++
				delete(p, "key")
			}
		}
	}
	if len(status.Parents) > 0 {
		t.out.Routes[r.Metadata.Key()] = status
	}
}

// parent is the gateway of ours that ref names, or nil.
func (t *translation) parent(r *Route, ref *Ref) *Gateway {
	if !isGateway(ref) {
		return nil
	}
	key := or(ref.Namespace, r.Metadata.Namespace) + "/" + ref.Name
	for i := range t.in.Gateways {
		if g := &t.in.Gateways[i]; g.Metadata.Key() == key && ours(t.in, g) {
			return g
		}
	}
	return nil
}

// attach finds the listeners that take the route.
func (t *translation) attach(g *Gateway, r *Route, ref *Ref) (list []object, reason, why string) {
	reason, why = "NoMatchingParent", "the gateway has no such listener"
	for i := range g.Spec.Listeners {
		l := &g.Spec.Listeners[i]
		no, because := t.allows(g, l, ref, r.Metadata.Namespace)
		if no == "" && !meets(l.Hostname, r.Spec.Hostnames) {
			no, because = "NoMatchingListenerHostname", "no hostname of the route is one of the listener's"
		}
		if no == "" {
			list = append(list, object{"Kind": "api-gateway", "Name": g.Metadata.Name, "SectionName": l.Name,
				"key": g.Metadata.Key() + " " + l.Name})
		} else if no != "NoMatchingParent" {
			reason, why = no, because
		}
	}
	if len(list) > 0 {
		return list, "", ""
	}
	return nil, reason, why
}

// backends says whether all services that a route names are there.
func (t *translation) backends(r *Route) (reason, why string) {
	for _, rule := range r.Spec.Rules {
		for i := range rule.BackendRefs {
			if _, reason, why := t.backend(r, &rule.BackendRefs[i]); reason != "" {
				return reason, why
			}
		}
	}
	return "ResolvedRefs", ""
}

// backend is the name in the catalog of the service that ref names.
func (t *translation) backend(r *Route, ref *Ref) (name, reason, why string) {
	if or(ref.Group, "") != "" || or(ref.Kind, "Service") != "Service" {
		return "", "InvalidKind", "backend " + ref.Name + ": a Service is taken"
	}
	namespace := or(ref.Namespace, r.Metadata.Namespace)
	if namespace != r.Metadata.Namespace {
		return "", "RefNotPermitted", "backend " + ref.Name + " is in another namespace, which is not taken"
	}
	s := t.services[namespace+"/"+ref.Name]
	if s == nil {
		return "", "BackendNotFound", "there is no service " + namespace + "/" + ref.Name
	}
	if name := s.Metadata.Annotations[k8s.ServiceName]; name != "" {
		return name, "", ""
	}
	return ref.Name, "", ""
}

// rules are the route's rules as the entry has them, or what of them is not taken. Backends that are not there are left
// out: requests that only they would get are answered with an error, which is what the API asks for.
func (t *translation) rules(r *Route) (list []object, refused string) {
	for i := range r.Spec.Rules {
		rule := &r.Spec.Rules[i]
		at := fmt.Sprintf("rules[%d]", i)
		out := object{}
		filters, responses, why := filtersOf(rule)
		if why != "" {
			return nil, at + "." + why
		}
		if rule.Timeouts != nil && rule.Timeouts.Request != "" && rule.Timeouts.Request != "0s" {
			filters["TimeoutFilter"] = object{"RequestTimeout": rule.Timeouts.Request}
		}
		out["Filters"], out["ResponseFilters"] = filters, responses
		var matches []object
		for j := range rule.Matches {
			m, why := matchOf(&rule.Matches[j])
			if why != "" {
				return nil, fmt.Sprintf("%s.matches[%d].%s", at, j, why)
			}
			matches = append(matches, m)
		}
		out["Matches"] = matches
		services := []object{}
		for j := range rule.BackendRefs {
			name, reason, _ := t.backend(r, &rule.BackendRefs[j])
			if weight := or(rule.BackendRefs[j].Weight, 1); reason == "" && weight > 0 {
				services = append(services, object{"Name": name, "Weight": weight})
			}
		}
		out["Services"] = services
		list = append(list, out)
	}
	return list, ""
}

var comparisons = map[string]string{"": "exact", "Exact": "exact", "RegularExpression": "regex"}

func matchOf(m *Match) (out object, why string) {
	out = object{"Path": object{"Match": "prefix", "Value": "/"}}
	if m.Path != nil {
		how, ok := map[string]string{"": "prefix", "PathPrefix": "prefix", "Exact": "exact",
			"RegularExpression": "regex"}[m.Path.Type]
		if !ok {
			return nil, "path.type " + m.Path.Type
		}
		value := m.Path.Value
		if value == "" {
			value = "/"
		}
		out["Path"] = object{"Match": how, "Value": value}
	}
	if m.Method != "" {
		out["Method"] = m.Method
	}
	for _, part := range []struct {
		name, to string
		values   []Value
	}{{"headers", "Headers", m.Headers}, {"queryParams", "Query", m.QueryParams}} {
		var list []object
		for _, v := range part.values {
			how, ok := comparisons[v.Type]
			if !ok {
				return nil, part.name + ".type " + v.Type
			}
			list = append(list, object{"Match": how, "Name": v.Name, "Value": v.Value})
		}
		if len(list) > 0 {
			out[part.to] = list
		}
	}
	return out, ""
}

// filtersOf are a rule's filters of requests and of responses.
func filtersOf(rule *Rule) (requests, responses object, why string) {
	requests, responses = object{}, object{}
	for i := range rule.Filters {
		f := &rule.Filters[i]
		switch {
		case f.Type == "RequestHeaderModifier" && f.RequestHeaderModifier != nil:
			requests["Headers"] = []object{headersOf(f.RequestHeaderModifier)}
		case f.Type == "ResponseHeaderModifier" && f.ResponseHeaderModifier != nil:
			responses["Headers"] = []object{headersOf(f.ResponseHeaderModifier)}
		case f.Type == "URLRewrite" && f.URLRewrite != nil && f.URLRewrite.Hostname == "" && f.URLRewrite.Path != nil &&
			f.URLRewrite.Path.Type == "ReplacePrefixMatch" && prefixes(rule.Matches):
			requests["URLRewrite"] = object{"Path": f.URLRewrite.Path.ReplacePrefixMatch}
		case f.Type == "URLRewrite":
			return nil, nil, fmt.Sprintf("filters[%d]: of URLRewrite, ReplacePrefixMatch beside matches of PathPrefix is "+
				"taken", i)
		default:
			return nil, nil, fmt.Sprintf("filters[%d] %s: RequestHeaderModifier, ResponseHeaderModifier and URLRewrite "+
				"are taken", i, f.Type)
		}
	}
	return requests, responses, ""
}

func prefixes(matches []Match) bool {
	return !slices.ContainsFunc(matches, func(m Match) bool {
		return m.Path != nil && m.Path.Type != "" && m.Path.Type != "PathPrefix"
	})
}

func headersOf(h *Headers) object {
	out := object{}
	for to, list := range map[string][]Value{"Set": h.Set, "Add": h.Add} {
		pairs := map[string]string{}
		for _, v := range list {
			pairs[strings.ToLower(v.Name)] = v.Value
		}
		if len(pairs) > 0 {
			out[to] = pairs
		}
	}
	if len(h.Remove) > 0 {
		out["Remove"] = h.Remove
	}
	return out
}
