package consulapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

// CARoot is a root of the mesh's authority, as the contract has it.
type CARoot struct {
	ID                       string
	Name                     string
	SerialNumber             uint64
	SigningKeyID             string
	ExternalTrustDomain      string
	NotBefore, NotAfter      time.Time
	RootCert                 string
	IntermediateCerts        []string
	Active                   bool
	PrivateKeyType           string
	PrivateKeyBits           int
	CreateIndex, ModifyIndex uint64
}

// CAConfiguration is the authority's configuration, as the contract has it.
type CAConfiguration struct {
	Provider                 string
	Config                   map[string]any
	State                    map[string]string
	ForceWithoutCrossSigning bool
	CreateIndex, ModifyIndex uint64
}

// CA is the mesh's certificate authority, on a server. It reads records of kind catalog.RecordCA.
type CA interface {
	// Roots are the State's, the active one first.
	Roots(st *catalog.State) ([]CARoot, error)
	// Configuration is of kind Unavailable before there is one.
	Configuration(st *catalog.State) (CAConfiguration, error)
	// SetConfiguration takes the contract's JSON, and rotates when that asks for another root.
	SetConfiguration(ctx context.Context, raw []byte) error
}

const agentRootsPattern = "/v1/agent/connect/ca/roots"

var connectCARoutes = []route{
	{"GET", "/v1/connect/ca/roots", read, acl.NoResource, caRoots},
	{"GET", agentRootsPattern, read, acl.NoResource, caRoots},
	{"GET", "/v1/connect/ca/configuration", read, acl.Operator, caConfig},
	{"PUT", "/v1/connect/ca/configuration", write, acl.Operator, caSetConfig},
}

var pemType = []string{"application/pem-certificate-chain"}

func caIndex(st *catalog.State) uint64 { return st.RecordsIndex(catalog.RecordCA) }

// caRoots answers everybody: roots are what strangers are verified with.
func caRoots(q *request) error {
	if err := q.mesh(); err != nil {
		return err
	}
	if q.api.cfg.CA == nil {
		return answer.ErrNoServers
	}
	st, err := q.read(registry.RecordsSubject(catalog.RecordCA), caIndex)
	if err != nil {
		return err
	}
	roots, err := q.api.cfg.CA.Roots(st)
	if err != nil {
		return err
	}
	if q.q.Value("pem") == "true" {
		var b strings.Builder
		for _, r := range roots {
			b.WriteString(strings.TrimSpace(r.RootCert) + "\n")
		}
		httpx.Write(q.w, q.r, http.StatusOK, pemType, []byte(b.String()))
		return nil
	}
	out := struct {
		ActiveRootID, TrustDomain string
		Roots                     []CARoot
	}{TrustDomain: TrustDomain(st), Roots: roots}
	if roots == nil {
		out.Roots = []CARoot{}
	}
	for _, r := range roots {
		if r.Active {
			out.ActiveRootID = r.ID
		}
	}
	return q.replyValue(out)
}

// caConfig asks for the right to write: the configuration may hold the operator's private key.
func caConfig(q *request) error {
	if err := q.mesh(); err != nil {
		return err
	}
	if err := q.allow(acl.Operator, "", acl.Write); err != nil {
		return err
	}
	if q.api.cfg.CA == nil {
		return answer.ErrNoServers
	}
	st, err := q.read(registry.RecordSubject(catalog.RecordCA, "config"), func(st *catalog.State) uint64 {
		return st.RecordIndex(catalog.RecordCA, "config")
	})
	if err != nil {
		return err
	}
	c, err := q.api.cfg.CA.Configuration(st)
	if err != nil {
		return err
	}
	if c.State == nil {
		c.State = map[string]string{}
	}
	return q.replyValue(c)
}

func caSetConfig(q *request) error {
	if err := q.mesh(); err != nil {
		return err
	}
	if err := q.allow(acl.Operator, "", acl.Write); err != nil {
		return err
	}
	if q.api.cfg.CA == nil {
		return answer.ErrNoServers
	}
	raw, err := q.body(q.api.cfg.Limits.BodyBytes)
	if err != nil {
		return err
	}
	if err := bodies.Sound(raw); err != nil {
		return answer.Invalidf("Request decode failed: %v", err)
	}
	// The configuration is changed against the leader's newest State.
	if _, err := q.api.cfg.Registry.Read(q.r.Context(), registry.Default); err != nil {
		return err
	}
	err = q.api.cfg.CA.SetConfiguration(q.r.Context(), raw)
	switch {
	case errkind.Is(err, errkind.Invalid):
		return err
	case err != nil:
		return answer.Refused(err)
	}
	return q.replyEmpty()
}
