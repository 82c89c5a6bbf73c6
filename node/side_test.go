package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"corbel.dev/corbel/api/xds/h2"
	"corbel.dev/corbel/api/xds/side"
	"corbel.dev/corbel/kit/polltest"
)

// field appends texts by number.
func field(b []byte, num protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), text)
}

// TestDataplanesAreServed calls every method that dataplanes call, at a server and at a client agent.
func TestDataplanesAreServed(t *testing.T) {
	s := startServer(t, "s1", aclOff+`bootstrap = true`)
	c := startMember(t, false, "c1", aclOff+"retry_join = [\""+s.gossip+"\"]")
	const sidecar = `{"Name":"web","Port":80,"Connect":{"SidecarService":{"Port":21000,"Proxy":{"Config":{` +
		`"protocol":"http"}}}}}`
	if status, body := s.ask("PUT", "/v1/agent/service/register", sidecar); status != 200 {
		t.Fatal(status, body)
	}
	leafOf(t, c, "web") // both know the roots
	for _, m := range []*testMember{s, c} {
		methods := m.sides().Methods(m.Base, m.mesh.Source)
		call := func(service, name string, request []byte) (string, error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var got string
			err := methods["/"+service+"/"+name](ctx, h2.Caller{Remote: "127.0.0.1:1"}, request, func(b []byte) error {
				got = string(b)
				cancel() // one answer of a stream is enough
				return nil
			})
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return got, err
		}
		expect := func(service, name string, request []byte, parts ...string) {
			t.Helper()
			got, err := call(service, name, request)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, part := range parts {
				if !strings.Contains(got, part) {
					t.Errorf("%s: %q does not hold %q", name, got, part)
				}
			}
		}
		roots := rootsOf(t, s)
		expect(side.Dataplane, "GetSupportedDataplaneFeatures", nil, "\x08\x01\x10\x01", "\x08\x03\x10\x01")
		expect(side.Dataplane, "GetEnvoyBootstrapParams", field(field(nil, 2, "s1"), 3, "web-sidecar-proxy"), "\x08\x02",
			"\x12\x03web", "dc1", "protocol", "s1")
		expect(side.ServerDiscovery, "WatchServers", nil, "127.0.0.1")
		expect(side.ConnectCA, "WatchRoots", nil, roots.TrustDomain, "BEGIN CERTIFICATE")
		expect(side.ConnectCA, "Sign", field(nil, 1, requestFor(t, roots.TrustDomain, "web")), "BEGIN CERTIFICATE")
		question := "\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06consul\x07service\x06consul\x00\x00\x01\x00\x01"
		expect(side.DNS, "Query", field(nil, 1, question), "\x00\x07", "\x7f\x00\x00\x01")
		for _, bad := range []struct {
			service, name string
			request       []byte
			code          h2.Code
		}{
			{side.Dataplane, "GetEnvoyBootstrapParams", field(field(nil, 2, "s1"), 3, "nobody"), h2.NotFound},
			{side.Dataplane, "GetEnvoyBootstrapParams", field(nil, 3, "web-sidecar-proxy"), h2.InvalidArgument},
			{side.Dataplane, "GetEnvoyBootstrapParams", []byte{0xff}, h2.InvalidArgument},
			{side.ConnectCA, "Sign", field(nil, 1, "x"), h2.InvalidArgument},
			{side.DNS, "Query", field(nil, 1, "x"), h2.InvalidArgument},
			{side.ACL, "Logout", nil, h2.InvalidArgument},
		} {
			if _, err := call(bad.service, bad.name, bad.request); h2.StatusOf(err).Code != bad.code {
				t.Errorf("%s: %v, want code %d", bad.name, err, bad.code)
			}
		}
	}
}

// requestFor is a request for a service's certificate.
func requestFor(t *testing.T, domain, service string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id := &url.URL{Scheme: "spiffe", Host: domain, Path: "/ns/default/dc/dc1/svc/" + service}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{id}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// TestDataplanesAreJudged: logins give tokens, and tokens decide.
func TestDataplanesAreJudged(t *testing.T) {
	const root = "00000000-aaaa-bbbb-cccc-000000000009"
	s := startServer(t, "s1", `bootstrap = true
acl { enabled = true, default_policy = "deny", tokens { initial_management = "`+root+`", agent = "`+root+`" } }`)
	methods := s.sides().Methods(s.Base, s.mesh.Source)
	call := func(service, name, token string, request []byte) (string, error) {
		var got string
		from := h2.Caller{Metadata: h2.Metadata{"x-consul-token", token}, Remote: "127.0.0.1:1"}
		err := methods["/"+service+"/"+name](t.Context(), from, request,
			func(b []byte) error {
				got = string(b)
				return context.Canceled
			})
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return got, err
	}
	polltest.Until(t, func() bool {
		_, err := call(side.ACL, "Logout", "", field(nil, 1, root))
		return h2.StatusOf(err).Code == h2.PermissionDenied // it is there, and no login made it
	}, "a leader that has made the first token")
	for _, c := range []struct {
		service, name, token string
		request              []byte
		code                 h2.Code
	}{
		{side.Dataplane, "GetSupportedDataplaneFeatures", root, nil, h2.OK},
		{side.Dataplane, "GetSupportedDataplaneFeatures", "", nil, h2.PermissionDenied},
		{side.Dataplane, "GetSupportedDataplaneFeatures", "unknown", nil, h2.Unauthenticated},
		{side.ServerDiscovery, "WatchServers", "", nil, h2.PermissionDenied},
		{side.ConnectCA, "WatchRoots", "unknown", nil, h2.Unauthenticated},
		{side.ACL, "Login", "", field(field(nil, 1, "nothing"), 2, "x"), h2.Unauthenticated},
		{side.ACL, "Logout", "", field(nil, 1, root), h2.PermissionDenied},
	} {
		if _, err := call(c.service, c.name, c.token, c.request); h2.StatusOf(err).Code != c.code {
			t.Errorf("%s with token %q: %v, want code %d", c.name, c.token, err, c.code)
		}
	}
}
