package envoy

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"corbel.dev/corbel/catalog/entry"
)

// Authz is who judges the requests to a listener from outside of the mesh.
type Authz struct {
	Cluster string        // of who judges
	Timeout time.Duration // of each question
	Off     bool          // only requests whose route asks for it are judged
	entry.AuthzConfig
}

const authzName = "envoy.filters.http.ext_authz"

// authz is the filter; the configuration was checked.
func (p *packer) authz(v *Authz) *hcmv3.HttpFilter {
	m := &authzv3.ExtAuthz{TransportApiVersion: corev3.ApiVersion_V3, StatPrefix: v.StatPrefix,
		FailureModeAllow: v.FailureModeAllow, IncludePeerCertificate: v.IncludePeerCertificate,
		ClearRouteCache: v.ClearRouteCache}
	if v.StatusOnError > 0 {
		m.StatusOnError = &typev3.HttpStatus{Code: typev3.StatusCode(v.StatusOnError)}
	}
	if b := v.WithRequestBody; b != nil {
		m.WithRequestBody = &authzv3.BufferSettings{MaxRequestBytes: b.MaxRequestBytes,
			AllowPartialMessage: b.AllowPartialMessage, PackAsBytes: b.PackAsBytes}
	}
	if g := v.GrpcService; g != nil {
		s := &corev3.GrpcService{Timeout: duration(v.Timeout), TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: v.Cluster, Authority: g.Authority}}}
		s.InitialMetadata = headerValues(g.InitialMetadata)
		m.Services = &authzv3.ExtAuthz_GrpcService{GrpcService: s}
	} else {
		h := v.HTTPService
		s := &authzv3.HttpService{PathPrefix: h.PathPrefix, ServerUri: &corev3.HttpUri{Uri: "http://" + v.Cluster,
			HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: v.Cluster}, Timeout: duration(v.Timeout)}}
		if r := h.AuthorizationRequest; r != nil {
			m.AllowedHeaders = texts(r.AllowedHeaders)
			s.AuthorizationRequest = &authzv3.AuthorizationRequest{HeadersToAdd: headerValues(r.HeadersToAdd)}
		}
		if r := h.AuthorizationResponse; r != nil {
			s.AuthorizationResponse = &authzv3.AuthorizationResponse{
				AllowedUpstreamHeaders:         texts(r.AllowedUpstreamHeaders),
				AllowedUpstreamHeadersToAppend: texts(r.AllowedUpstreamHeadersToAppend),
				AllowedClientHeaders:           texts(r.AllowedClientHeaders),
				AllowedClientHeadersOnSuccess:  texts(r.AllowedClientHeadersOnSuccess)}
		}
		m.Services = &authzv3.ExtAuthz_HttpService{HttpService: s}
	}
	f := p.httpFilter(authzName, m)
	f.Disabled = v.Off
	return f
}

func headerValues(list []entry.AuthzHeader) []*corev3.HeaderValue {
	var out []*corev3.HeaderValue
	for _, h := range list {
		out = append(out, &corev3.HeaderValue{Key: h.Key, Value: h.Value})
	}
	return out
}

// texts are the matchers of a list; nil where there are none.
func texts(list []entry.AuthzMatch) *matcherv3.ListStringMatcher {
	if len(list) == 0 {
		return nil
	}
	out := &matcherv3.ListStringMatcher{}
	for _, t := range list {
		m := &matcherv3.StringMatcher{IgnoreCase: t.IgnoreCase}
		switch {
		case t.Exact != "":
			m.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: t.Exact}
		case t.Prefix != "":
			m.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: t.Prefix}
		case t.Suffix != "":
			m.MatchPattern = &matcherv3.StringMatcher_Suffix{Suffix: t.Suffix}
		case t.Contains != "":
			m.MatchPattern = &matcherv3.StringMatcher_Contains{Contains: t.Contains}
		default:
			m.MatchPattern, m.IgnoreCase = &matcherv3.StringMatcher_SafeRegex{SafeRegex: regex(t.SafeRegex)}, false
		}
		out.Patterns = append(out.Patterns, m)
	}
	return out
}

// Judge is what a rule says of who judges its requests.
type Judge uint8

// What there is to say. Refuse is a rule whose requests are to be judged where nobody can.
const (
	JudgeAsListener Judge = iota
	JudgeOn
	JudgeOff
	JudgeRefuse
)

// judged has the requests of a route judged, or not, whatever holds for its listener.
func judged(route *routev3.Route, j Judge) error {
	m := &authzv3.ExtAuthzPerRoute{}
	switch j {
	case JudgeOn:
		m.Override = &authzv3.ExtAuthzPerRoute_CheckSettings{CheckSettings: &authzv3.CheckSettings{}}
	case JudgeOff:
		m.Override = &authzv3.ExtAuthzPerRoute_Disabled{Disabled: true}
	default:
		return nil
	}
	var p packer
	route.TypedPerFilterConfig = map[string]*anypb.Any{authzName: p.any(m)}
	return p.err
}
