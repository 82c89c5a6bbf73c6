package envoy

import (
	"cmp"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// The names under which every proxy asks for its certificate and for what it
// trusts. They are the same for all proxies, so that what refers to them is, too.
const (
	LeafSecret  = "leaf"
	RootsSecret = "roots"
)

// LeafSecretOf is the name under which a gateway asks for the certificate of a service that it stands for.
func LeafSecretOf(service string) string { return LeafSecret + ":" + service }

// Leaf is the certificate of a proxy's service, with the intermediates behind it, and its key.
func Leaf(certPEM, keyPEM string) (*mesh.Resource, error) {
	return Certificate(LeafSecret, certPEM, keyPEM)
}

// Certificate is a certificate and its key under a name.
func Certificate(name, certPEM, keyPEM string) (*mesh.Resource, error) {
	if certPEM == "" || keyPEM == "" {
		return nil, errkind.Errorf(errkind.Invalid, "secret %q: certificate and key are required", name)
	}
	return encode(mesh.TypeSecret, name, &tlsv3.Secret{Name: name,
		Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline(certPEM), PrivateKey: inline(keyPEM)}}})
}

// Roots is what certificates of the mesh are verified with.
func Roots(v *mesh.Roots) (*mesh.Resource, error) {
	pem := bundle(pems(v))
	if pem == "" {
		return nil, errkind.New(errkind.Invalid, "secret \"roots\": Roots.List holds no certificate")
	}
	return encode(mesh.TypeSecret, RootsSecret, &tlsv3.Secret{Name: RootsSecret, Type: &tlsv3.Secret_ValidationContext{
		ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(pem)}}})
}

// PeerRootsSecret is the name under which a proxy asks for what it verifies the proxies of a peer with.
func PeerRootsSecret(peer string) string { return RootsSecret + ":" + peer }

// TrustedSecret is the name under which a proxy asks for what it verifies callers with where some of them are peers'.
const TrustedSecret = RootsSecret + "::peers" // no name of a peer has a colon

// PeerRoots is what the proxies of a peer are verified with, which have nothing else in common with those of the mesh.
func PeerRoots(peer string, roots []string) (*mesh.Resource, error) {
	name := PeerRootsSecret(peer)
	if len(roots) == 0 {
		return nil, errkind.Errorf(errkind.Invalid, "secret %q: no certificate", name)
	}
	return encode(mesh.TypeSecret, name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{
		ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(bundle(roots))}}})
}

// Trusted is what callers are verified with where some of them are peers': each by the roots of the trust domain that
// its name is of, so that no cluster speaks for another one.
func Trusted(own *mesh.Roots, peers []mesh.Trusted) (*mesh.Resource, error) {
	var p packer
	mine := pems(own)
	c := &tlsv3.SPIFFECertValidatorConfig{}
	known := map[string]bool{}
	add := func(domain string, roots []string) {
		if !known[domain] && len(roots) > 0 {
			known[domain] = true
			c.TrustDomains = append(c.TrustDomains, &tlsv3.SPIFFECertValidatorConfig_TrustDomain{Name: domain,
				TrustBundle: inline(bundle(roots))})
		}
	}
	add(own.TrustDomain, mine)
	for _, t := range peers {
		add(t.Domain, t.Roots)
	}
	valid := &tlsv3.CertificateValidationContext{CustomValidatorConfig: &corev3.TypedExtensionConfig{
		Name: "envoy.tls.cert_validator.spiffe", TypedConfig: p.any(c)}}
	return p.encode(mesh.TypeSecret, TrustedSecret, &tlsv3.Secret{Name: TrustedSecret,
		Type: &tlsv3.Secret_ValidationContext{ValidationContext: valid}})
}

func pems(v *mesh.Roots) (list []string) {
	for _, r := range v.List {
		list = append(list, r.PEM)
	}
	return list
}

// bundle puts certificates in PEM behind one another.
func bundle(list []string) string {
	pem := ""
	for _, one := range list {
		pem += one
		if pem != "" && pem[len(pem)-1] != '\n' {
			pem += "\n"
		}
	}
	return pem
}

func inline(s string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}}
}

// overADS says that a resource comes on the stream that all others come on.
func overADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

func secret(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: overADS()}
}

var tlsVersions = map[string]tlsv3.TlsParameters_TlsProtocol{
	"TLS_AUTO": tlsv3.TlsParameters_TLS_AUTO, "TLSv1_0": tlsv3.TlsParameters_TLSv1_0,
	"TLSv1_1": tlsv3.TlsParameters_TLSv1_1,
	"TLSv1_2": tlsv3.TlsParameters_TLSv1_2, "TLSv1_3": tlsv3.TlsParameters_TLSv1_3,
}

func tlsParameters(d *entry.TLSDirection) *tlsv3.TlsParameters {
	if d == nil {
		return &tlsv3.TlsParameters{}
	}
	return &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsVersions[d.TLSMinVersion],
		TlsMaximumProtocolVersion: tlsVersions[d.TLSMaxVersion],
		CipherSuites:              cipherSuites(d.CipherSuites)}
}

// cipherNames are Envoy's names of the suites that config entries name as Go does.
var cipherNames = map[string]string{
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256":       "ECDHE-ECDSA-AES128-GCM-SHA256",
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
	"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256":         "ECDHE-RSA-AES128-GCM-SHA256",
	"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256":   "ECDHE-RSA-CHACHA20-POLY1305",
	"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA":          "ECDHE-ECDSA-AES128-SHA",
	"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA":            "ECDHE-RSA-AES128-SHA",
	"TLS_RSA_WITH_AES_128_GCM_SHA256":               "AES128-GCM-SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
	"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
	"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384":   "ECDHE-RSA-AES256-GCM-SHA384",
	"TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA":    "ECDHE-ECDSA-AES256-SHA",
	"TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA":      "ECDHE-RSA-AES256-SHA",
	"TLS_RSA_WITH_AES_256_GCM_SHA384":         "AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}

func cipherSuites(list []string) []string {
	out := slices.Clone(list)
	for i, s := range out {
		if name := cipherNames[s]; name != "" {
			out[i] = name
		}
	}
	return out
}

// upstreamTLS proves this proxy's service to the upstream and wants one of the names from it.
func (p *packer) upstreamTLS(v *Upstream) *corev3.TransportSocket {
	var match []*tlsv3.SubjectAltNameMatcher
	for _, name := range v.Identities {
		match = append(match, &tlsv3.SubjectAltNameMatcher{SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}})
	}
	return p.socket(&tlsv3.UpstreamTlsContext{Sni: v.SNI, CommonTlsContext: &tlsv3.CommonTlsContext{
		TlsParams: tlsParameters(v.TLS), TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{secret(LeafSecret)},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: match},
				ValidationContextSdsSecretConfig: secret(cmp.Or(v.Roots, RootsSecret))}}}})
}

// downstreamTLS lets in who has a certificate of the mesh, or of what else roots holds.
func (p *packer) downstreamTLS(leaf, roots string, params *entry.TLSDirection, alpn []string) *corev3.TransportSocket {
	return p.socket(&tlsv3.DownstreamTlsContext{RequireClientCertificate: truth(true),
		CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsParams: tlsParameters(params), AlpnProtocols: alpn,
			TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{secret(leaf)},
			ValidationContextType: &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{
				ValidationContextSdsSecretConfig: secret(cmp.Or(roots, RootsSecret)),
			}}})
}

// serverTLS is for clients outside of the mesh, which have no certificate of it.
func (p *packer) serverTLS(params *entry.TLSDirection, alpn []string) *corev3.TransportSocket {
	return p.socket(&tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
		TlsParams: tlsParameters(params), AlpnProtocols: alpn,
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{secret(LeafSecret)}}})
}

func (p *packer) socket(m message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: p.any(m)}}
}
