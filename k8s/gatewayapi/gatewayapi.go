// Package gatewayapi translates a subset of Kubernetes' Gateway API into config entries: Gateway into api-gateway,
// HTTPRoute into http-route, the certificates of listeners into inline-certificate.
//
// It is pure, and total: each object of a class of ours gets a status that says what came of it, in the reasons of the
// API. What the entries cannot express (redirects, mirrored requests, other protocols) is never translated into
// something else: its route or listener is not accepted, and the message says what to take out.
//
// Entries carry the mark external-source=kubernetes; the same input gives the same entries, in the same order.
package gatewayapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"corbel.dev/corbel/k8s"
)

// Controller is the name by which classes are ours: consul-k8s's, so that manifests stay as they are.
const Controller = "consul.hashicorp.com/gateway-controller"

// Group is the API's.
const Group = "gateway.networking.k8s.io"

// Input is what is translated.
type Input struct {
	Classes      []Class
	Gateways     []Gateway
	Routes       []Route
	Services     []k8s.Service          // of the cluster
	Certificates map[string]Certificate // by namespace/name of their secret
}

// Certificate is the content of a secret of type kubernetes.io/tls.
type Certificate struct{ Cert, Key string }

// Entry is a config entry, as the catalog's API takes it.
type Entry struct {
	Kind, Name string
	Body       map[string]any
}

// Output is what is to be: entries in the order in which they are to be written, and the status of each object by its
// namespace/name.
type Output struct {
	Entries  []Entry
	Classes  map[string]ClassStatus
	Gateways map[string]GatewayStatus
	Routes   map[string]RouteStatus
}

type object = map[string]any

// Secrets are the secrets that listeners of our gateways name, as namespace/name.
func Secrets(in *Input) (list []string) {
	for i := range in.Gateways {
		g := &in.Gateways[i]
		if !ours(in, g) {
			continue
		}
		for _, l := range g.Spec.Listeners {
			if l.TLS == nil {
				continue
			}
			for _, r := range l.TLS.CertificateRefs {
				if or(r.Namespace, g.Metadata.Namespace) == g.Metadata.Namespace {
					list = append(list, g.Metadata.Namespace+"/"+r.Name)
				}
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func ours(in *Input, g *Gateway) bool {
	return slices.ContainsFunc(in.Classes, func(c Class) bool {
		return c.Metadata.Name == g.Spec.GatewayClassName && c.Spec.ControllerName == Controller
	})
}

// translation is under way.
type translation struct {
	in       *Input
	out      Output
	services map[string]*k8s.Service
	gateways map[string]*Gateway // accepted ones, by namespace/name
	open     map[string][]string // listeners that take routes, by gateway
	attached map[string]int      // routes, by gateway and listener
	certs    map[string]bool     // that have their entry
	names    map[string]string   // whose the name of an entry is, by kind and name
}

// Translate does it.
func Translate(in *Input) *Output {
	t := &translation{in: in, services: map[string]*k8s.Service{}, gateways: map[string]*Gateway{},
		open: map[string][]string{}, attached: map[string]int{}, certs: map[string]bool{}, names: map[string]string{}}
	t.out = Output{Classes: map[string]ClassStatus{}, Gateways: map[string]GatewayStatus{},
		Routes: map[string]RouteStatus{}}
	for i := range in.Classes {
		if c := &in.Classes[i]; c.Spec.ControllerName == Controller {
			t.out.Classes[c.Metadata.Key()] = ClassStatus{[]Condition{
				{Type: "Accepted", Status: "True", Reason: "Accepted", ObservedGeneration: c.Metadata.Generation}}}
		}
	}
	for i := range in.Services {
		t.services[in.Services[i].Metadata.Key()] = &in.Services[i]
	}
	for _, g := range sorted(in.Gateways, func(g *Gateway) *k8s.Meta { return &g.Metadata }) {
		if ours(in, g) && g.Metadata.DeletionTimestamp == "" {
			t.gateway(g)
		}
	}
	for _, r := range sorted(in.Routes, func(r *Route) *k8s.Meta { return &r.Metadata }) {
		if r.Metadata.DeletionTimestamp == "" {
			t.route(r)
		}
	}
	for key, g := range t.gateways {
		for i := range t.out.Gateways[key].Listeners {
			l := &t.out.Gateways[key].Listeners[i]
			l.AttachedRoutes = t.attached[g.Metadata.Key()+" "+l.Name]
		}
	}
	rank := map[string]int{"inline-certificate": 0, "api-gateway": 1, "http-route": 2}
	slices.SortFunc(t.out.Entries, func(a, b Entry) int {
		return cmp.Or(rank[a.Kind]-rank[b.Kind], cmp.Compare(a.Name, b.Name))
	})
	return &t.out
}

// Refuse says in the status of the object behind an entry, kind/name, that the catalog does not take it.
func (o *Output) Refuse(entry, why string) {
	for _, e := range o.Entries {
		if e.Kind+"/"+e.Name != entry {
			continue
		}
		meta, _ := e.Body["Meta"].(map[string]string)
		key := meta["external-k8s-ns"] + "/" + e.Name
		switch e.Kind {
		case "api-gateway":
			refuse(o.Gateways[key].Conditions, "Programmed", "Invalid", why)
		case "http-route":
			for _, p := range o.Routes[key].Parents {
				refuse(p.Conditions, "Accepted", "UnsupportedValue", why)
			}
		}
	}
}

func refuse(list []Condition, kind, reason, why string) {
	for i := range list {
		if list[i].Type == kind {
			list[i] = condition(kind, reason, why, list[i].ObservedGeneration)
		}
	}
}

func sorted[T any](list []T, meta func(*T) *k8s.Meta) (out []*T) {
	for i := range list {
		out = append(out, &list[i])
	}
	slices.SortFunc(out, func(a, b *T) int { return cmp.Compare(meta(a).Key(), meta(b).Key()) })
	return out
}

// condition is a statement about an object of a generation; reason says False unless it is the type's own.
func condition(kind, reason, message string, generation int64) Condition {
	status := "False"
	if reason == kind {
		status = "True"
	}
	return Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation}
}

// claim takes a name among entries of a kind: the catalog has one namespace, so the first one has it.
func (t *translation) claim(kind string, m *k8s.Meta) error {
	key := kind + " " + m.Name
	if other, taken := t.names[key]; taken {
		return fmt.Errorf("%s has the name already: names are unique over all namespaces", other)
	}
	t.names[key] = m.Key()
	return nil
}

func (t *translation) entry(kind string, m *k8s.Meta, body object) {
	body["Kind"], body["Name"] = kind, m.Name
	body["Meta"] = map[string]string{"external-source": "kubernetes", "external-k8s-ns": m.Namespace}
	t.out.Entries = append(t.out.Entries, Entry{Kind: kind, Name: m.Name, Body: body})
}

func (t *translation) gateway(g *Gateway) {
	n, key := g.Metadata.Generation, g.Metadata.Key()
	if err := t.claim("api-gateway", &g.Metadata); err != nil {
		t.out.Gateways[key] = GatewayStatus{Conditions: []Condition{condition("Accepted", "Invalid", err.Error(), n),
			condition("Programmed", "Invalid", err.Error(), n)}}
		return
	}
	var listeners []object
	var status GatewayStatus
	refused := 0
	taken := map[int]*Listener{}
	for i := range g.Spec.Listeners {
		l := &g.Spec.Listeners[i]
		s := ListenerStatus{Name: l.Name, SupportedKinds: []RouteKind{{Group, "HTTPRoute"}}}
		out, reason, why := t.listener(g, l, taken)
		accepted, resolved, programmed := "Accepted", "ResolvedRefs", "Programmed"
		switch {
		case reason == "InvalidCertificateRef" || reason == "RefNotPermitted":
			resolved, programmed = reason, "Invalid"
		case reason != "":
			accepted, programmed = reason, "Invalid"
		}
		s.Conditions = []Condition{condition("Accepted", accepted, why, n), condition("ResolvedRefs", resolved, why, n),
			condition("Programmed", programmed, why, n)}
		if reason == "" {
			listeners = append(listeners, out)
			t.open[key] = append(t.open[key], l.Name)
		} else {
			refused++
		}
		status.Listeners = append(status.Listeners, s)
	}
	accepted, programmed, why := "Accepted", "Programmed", ""
	if refused > 0 {
		why = fmt.Sprintf("%d of %d listeners are refused; their conditions say why", refused, len(g.Spec.Listeners))
	}
	if len(listeners) == 0 {
		accepted, programmed = "ListenersNotValid", "Invalid"
	} else {
		t.gateways[key] = g
		t.entry("api-gateway", &g.Metadata, object{"Listeners": listeners})
	}
	status.Conditions = []Condition{condition("Accepted", accepted, why, n), condition("Programmed", programmed, why, n)}
	t.out.Gateways[key] = status
}

// listener is a listener of the entry, or a reason of the API why there is none.
func (t *translation) listener(g *Gateway, l *Listener, taken map[int]*Listener) (out object, reason, why string) {
	if l.Protocol != "HTTP" && l.Protocol != "HTTPS" {
		return nil, "UnsupportedProtocol", "protocol " + l.Protocol + ": HTTP and HTTPS are taken"
	}
	if from := l.AllowedRoutes.Namespaces.From; from != "" && from != "Same" && from != "All" {
		return nil, "UnsupportedValue", "allowedRoutes.namespaces.from " + from + ": Same and All are taken"
	}
	if other := taken[l.Port]; other != nil && other.Protocol != l.Protocol {
		return nil, "PortUnavailable", fmt.Sprintf("listener %s has port %d with another protocol", other.Name, l.Port)
	}
	out = object{"Name": l.Name, "Port": l.Port, "Protocol": "http"}
	if l.Hostname != "" {
		out["Hostname"] = l.Hostname
	}
	if l.Protocol == "HTTPS" {
		if l.TLS == nil || len(l.TLS.CertificateRefs) == 0 {
			return nil, "InvalidCertificateRef", "HTTPS needs tls.certificateRefs"
		}
		if l.TLS.Mode != "" && l.TLS.Mode != "Terminate" {
			return nil, "UnsupportedValue", "tls.mode " + l.TLS.Mode + ": Terminate is taken"
		}
		var refs []object
		for _, r := range l.TLS.CertificateRefs {
			name, reason, why := t.certificate(g, r)
			if reason != "" {
				return nil, reason, why
			}
			refs = append(refs, object{"Kind": "inline-certificate", "Name": name})
		}
		out["TLS"] = object{"Certificates": refs}
	}
	taken[l.Port] = l
	return out, "", ""
}

func (t *translation) certificate(g *Gateway, r Ref) (name, reason, why string) {
	namespace := g.Metadata.Namespace
	key := namespace + "/" + r.Name
	if or(r.Namespace, namespace) != namespace {
		return "", "RefNotPermitted", "the secret " + r.Name + " is in another namespace, which is not taken"
	}
	cert, ok := t.in.Certificates[key]
	if or(r.Group, "") != "" || or(r.Kind, "Secret") != "Secret" || !ok || cert.Cert == "" || cert.Key == "" {
		return "", "InvalidCertificateRef", "no secret " + key + " with tls.crt and tls.key"
	}
	m := &k8s.Meta{Namespace: namespace, Name: namespace + "-" + r.Name}
	if !t.certs[key] {
		if err := t.claim("inline-certificate", m); err != nil {
			return "", "InvalidCertificateRef", err.Error()
		}
		t.certs[key] = true
		t.entry("inline-certificate", m, object{"Certificate": cert.Cert, "PrivateKey": cert.Key})
	}
	return m.Name, "", ""
}

// isGateway says whether a route's parent is a Gateway.
func isGateway(r *Ref) bool { return or(r.Group, Group) == Group && or(r.Kind, "Gateway") == "Gateway" }

// allows says whether a listener takes routes of a namespace that ask for it.
func (t *translation) allows(g *Gateway, l *Listener, r *Ref, namespace string) (reason, why string) {
	switch {
	case or(r.SectionName, l.Name) != l.Name || or(r.Port, l.Port) != l.Port:
		return "NoMatchingParent", "the gateway has no such listener"
	case !slices.Contains(t.open[g.Metadata.Key()], l.Name):
		return "NoMatchingParent", "the listener is refused; its conditions say why"
	case l.AllowedRoutes.Namespaces.From != "All" && g.Metadata.Namespace != namespace:
		return "NotAllowedByListeners", "the listener takes routes of its own namespace alone"
	}
	return "", ""
}

// meets says whether hosts of a route can be hosts of a listener.
func meets(listener string, hosts []string) bool {
	return listener == "" || len(hosts) == 0 || slices.ContainsFunc(hosts, func(h string) bool {
		a, wildA := strings.CutPrefix(listener, "*")
		b, wildB := strings.CutPrefix(h, "*")
		return a == b && wildA == wildB || wildA && strings.HasSuffix(h, a) || wildB && strings.HasSuffix(listener, b)
	})
}
