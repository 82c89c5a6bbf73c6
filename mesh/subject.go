package mesh

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/catalog/chain"
	"corbel.dev/corbel/kit/errkind"
)

// SubjectKind says what a subject's value is made of.
type SubjectKind uint8

// The kinds.
const (
	SubjectEndpoints SubjectKind = iota + 1 // the instances of a service: Endpoints
	SubjectService                          // how a service's own proxies are set up: Service
	SubjectUpstream                         // how a service is reached: Upstream
	SubjectRoots                            // what certificates are verified with: Roots
	SubjectRules                            // who may reach a service: Rules
	SubjectInstances                        // the instances of a service without the mesh: Instances
	SubjectVirtual                          // by which addresses a service is meant: Virtual
	SubjectPassages                         // what mesh gateways let through: Passages
)

var subjectWords = map[string]SubjectKind{"endpoints": SubjectEndpoints, "service": SubjectService,
	"upstream": SubjectUpstream, "roots": SubjectRoots, "rules": SubjectRules, "instances": SubjectInstances,
	"virtual": SubjectVirtual, "passages": SubjectPassages}

// Subject names a value of the plane. Its text has a fixed number of segments for
// each kind, with what may hurt escaped, so that one value has one spelling:
//
//	endpoints/<dc>/<service>/<subset>
//	service/<service>
//	upstream/<dc>/<service>/<protocol>/<connect timeout in ms>/<gateway mode>
//	upstream/<dc>/<service>/<protocol>/<connect timeout in ms>/<gateway mode>/<peer>
//	roots
//	rules/<service>
//	instances/<dc>/<service>/<subset>
//	virtual/<dc>/<service>
//	passages
//
// Segments behind a service may be empty, and that of rules: they are then of all services that no intention names.
// The three behind the service of an upstream are what the one who calls it sets for itself: they are spelled out, so
// that all who set the same (nothing, mostly) share one value, and a server needs to know nothing of them.
type Subject struct {
	Kind       SubjectKind
	Datacenter string
	Service    string
	Subset     string // of endpoints and instances
	Peer       string // of upstreams: whose service it is, "" for this cluster's
	Override          // of upstreams
}

// Override is what one upstream's own settings change in the discovery chain. Zero values change nothing.
type Override struct {
	Protocol       string
	ConnectTimeout time.Duration // in whole milliseconds
	MeshGateway    string        // a mode
}

// The bounds of a subject's text and of each name in it, as escaped text and as it is meant.
const (
	MaxSubjectBytes = 2048
	maxNameBytes    = 512
)

// EndpointsOf is the subject of a chain's target.
func EndpointsOf(t *chain.Target) Subject {
	return Subject{Kind: SubjectEndpoints, Datacenter: t.Datacenter, Service: t.Service, Subset: t.ServiceSubset}
}

// String is the subject's text.
func (s Subject) String() string {
	esc := url.PathEscape
	switch s.Kind {
	case SubjectEndpoints:
		return "endpoints/" + esc(s.Datacenter) + "/" + esc(s.Service) + "/" + esc(s.Subset)
	case SubjectInstances:
		return "instances/" + esc(s.Datacenter) + "/" + esc(s.Service) + "/" + esc(s.Subset)
	case SubjectVirtual:
		return "virtual/" + esc(s.Datacenter) + "/" + esc(s.Service)
	case SubjectService:
		return "service/" + esc(s.Service)
	case SubjectUpstream:
		ms := ""
		if n := s.ConnectTimeout.Milliseconds(); n > 0 {
			ms = strconv.FormatInt(n, 10)
		}
		text := "upstream/" + esc(s.Datacenter) + "/" + esc(s.Service) + "/" + esc(s.Protocol) + "/" + ms + "/" +
			esc(s.MeshGateway)
		if s.Peer != "" {
			text += "/" + esc(s.Peer)
		}
		return text
	case SubjectPassages:
		return "passages"
	case SubjectRoots:
		return "roots"
	case SubjectRules:
		return "rules/" + esc(s.Service)
	}
	return ""
}

// ParseSubject reads a subject's text, which may come from anybody. It takes the
// one spelling that String gives; the error is of kind Invalid.
func ParseSubject(text string) (Subject, error) {
	if len(text) > MaxSubjectBytes {
		return Subject{}, errkind.Errorf(errkind.Invalid, "subject of %d bytes: at most %d are taken", len(text),
			MaxSubjectBytes)
	}
	parts := strings.Split(text, "/")
	for i, p := range parts {
		name, err := url.PathUnescape(p)
		if err != nil || len(name) > maxNameBytes ||
			strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '�' }) {
			return Subject{}, badSubject(text)
		}
		parts[i] = name
	}
	s, ok := subjectOf(parts)
	if !ok || s.String() != text {
		return Subject{}, badSubject(text)
	}
	return s, nil
}

func subjectOf(parts []string) (Subject, bool) {
	s := Subject{Kind: subjectWords[parts[0]]}
	switch {
	case (s.Kind == SubjectEndpoints || s.Kind == SubjectInstances) && len(parts) == 4:
		s.Datacenter, s.Service, s.Subset = parts[1], parts[2], parts[3]
		return s, s.Datacenter != "" && s.Service != ""
	case s.Kind == SubjectVirtual && len(parts) == 3:
		s.Datacenter, s.Service = parts[1], parts[2]
		return s, s.Datacenter != "" && s.Service != ""
	case s.Kind == SubjectService && len(parts) == 2:
		s.Service = parts[1]
		return s, s.Service != ""
	case s.Kind == SubjectUpstream && (len(parts) == 6 || len(parts) == 7):
		s.Datacenter, s.Service, s.Protocol, s.MeshGateway = parts[1], parts[2], parts[3], parts[5]
		if len(parts) == 7 {
			s.Peer = parts[6]
		}
		if parts[4] != "" {
			ms, err := strconv.ParseUint(parts[4], 10, 31)
			if err != nil {
				return s, false
			}
			s.ConnectTimeout = time.Duration(ms) * time.Millisecond
		}
		return s, s.Datacenter != "" && s.Service != "" && s.sound()
	case (s.Kind == SubjectRoots || s.Kind == SubjectPassages) && len(parts) == 1:
		return s, true
	case s.Kind == SubjectRules && len(parts) == 2:
		s.Service = parts[1]
		return s, true
	}
	return s, false
}

// sound tells that the override names what there is: other words would only make values that nobody can use.
func (o *Override) sound() bool {
	switch o.MeshGateway {
	case "", "none", "local", "remote":
	default:
		return false
	}
	switch o.Protocol {
	case "", "tcp", "http", "http2", "grpc", "redis":
		return true
	}
	return false
}

func badSubject(text string) error {
	return errkind.Errorf(errkind.Invalid, "subject %q is not one of endpoints/DC/SERVICE/SUBSET, service/SERVICE, "+
		"upstream/DC/SERVICE/PROTOCOL/MILLISECONDS/GATEWAY[/PEER], roots, rules/SERVICE, instances/DC/SERVICE/SUBSET, "+
		"virtual/DC/SERVICE, passages", text)
}
