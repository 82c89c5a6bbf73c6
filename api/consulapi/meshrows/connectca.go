package meshrows

import (
	"context"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/configrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
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
	Roots(st *statestore.State) ([]CARoot, error)
	// Configuration is of kind Unavailable before there is one.
	Configuration(st *statestore.State) (CAConfiguration, error)
	// SetConfiguration takes the contract's JSON, and rotates when that asks for another root.
	SetConfiguration(ctx context.Context, raw []byte) error
}

var pemType = []string{"application/pem-certificate-chain"}

// caRoots answers everybody: roots are what strangers are verified with.
func (mr *Rows) caRoots(q *rows.Request) error {
	if err := mr.intentions.ConnectOn(); err != nil {
		return err
	}
	if mr.CA == nil {
		return answer.ErrNoServers
	}
	st, err := q.ReadRecords(catalog.RecordCA)
	if err != nil {
		return err
	}
	roots, err := mr.CA.Roots(st)
	if err != nil {
		return err
	}
	if q.Query.Value("pem") == "true" {
		var b strings.Builder
		for _, r := range roots {
			b.WriteString(strings.TrimSpace(r.RootCert) + "\n")
		}
		httpx.Write(q.W, q.R, http.StatusOK, pemType, []byte(b.String()))
		return nil
	}
	out := struct {
		ActiveRootID, TrustDomain string
		Roots                     []CARoot
	}{TrustDomain: configrows.TrustDomain(st), Roots: roots}
	if roots == nil {
		out.Roots = []CARoot{}
	}
	for _, r := range roots {
		if r.Active {
			out.ActiveRootID = r.ID
		}
	}
	return q.ReplyValue(out)
}

// caConfig asks for the right to write: the configuration may hold the operator's private key.
func (mr *Rows) caConfig(q *rows.Request) error {
	if err := mr.intentions.ConnectOn(); err != nil {
		return err
	}
	if err := q.Allow(acl.Operator, "", acl.Write); err != nil {
		return err
	}
	if mr.CA == nil {
		return answer.ErrNoServers
	}
	st, err := q.ReadRecord(catalog.RecordCA, "config")
	if err != nil {
		return err
	}
	c, err := mr.CA.Configuration(st)
	if err != nil {
		return err
	}
	if c.State == nil {
		c.State = map[string]string{}
	}
	return q.ReplyValue(c)
}

func (mr *Rows) caSetConfig(q *rows.Request) error {
	if err := mr.intentions.ConnectOn(); err != nil {
		return err
	}
	if err := q.Allow(acl.Operator, "", acl.Write); err != nil {
		return err
	}
	if mr.CA == nil {
		return answer.ErrNoServers
	}
	raw, err := q.Body(q.Limits.BodyBytes)
	if err != nil {
		return err
	}
	if err := bodies.Sound(raw); err != nil {
		return answer.Invalidf("Request decode failed: %v", err)
	}
	// The configuration is changed against the leader's newest State.
	if _, err := q.Registry.Read(q.R.Context(), registry.Default); err != nil {
		return err
	}
	err = mr.CA.SetConfiguration(q.R.Context(), raw)
	switch {
	case errkind.Is(err, errkind.Invalid):
		return err
	case err != nil:
		return answer.Refused(err)
	}
	return q.ReplyEmpty()
}

// CALeaf is a service's certificate with its key, as the contract has it.
type CALeaf struct {
	SerialNumber             string
	CertPEM                  string
	PrivateKeyPEM            string
	Service                  string
	ServiceURI               string
	ValidAfter, ValidBefore  time.Time
	CreateIndex, ModifyIndex uint64

	Received time.Time `json:"-"` // when this host got it
}

// Leaves keeps the leaf certificates of this host.
type Leaves interface {
	// Leaf returns the service's certificate; with an index one that differs from it, or after wait the one there is.
	// hit tells that it was there already. Kind Overloaded: the servers sign no more of them right now.
	Leaf(ctx context.Context, service, token string, index uint64, wait time.Duration) (leaf CALeaf, hit bool, err error)
	// TrustDomain is "" while it is not known.
	TrustDomain() string
	// Held are those that this host keeps; Node and State are left empty.
	Held() []HeldLeaf
}

// agentLeaf answers with a certificate and its key, to who may write the service.
func (mr *Rows) agentLeaf(q *rows.Request) error {
	if err := mr.intentions.ConnectOn(); err != nil {
		return err
	}
	if q.Rest == "" {
		return answer.Invalidf("Missing service name")
	}
	if err := q.Allow(acl.Service, q.Rest, acl.Write); err != nil {
		return err
	}
	if mr.Leaves == nil {
		return answer.ErrNoServers
	}
	block, err := httpx.ParseBlocking(q.Query, q.Wait)
	if err != nil {
		return err
	}
	if block.Index > 0 {
		q.Parked.Add(1)
		defer q.Parked.Add(-1)
	}
	leaf, hit, err := mr.Leaves.Leaf(q.R.Context(), q.Rest, q.Token(), block.Index, httpx.Jitter(block.Wait))
	if errkind.Is(err, errkind.Overloaded) {
		return &answer.Error{Status: http.StatusTooManyRequests, Text: errkind.Text(err), Retry: true}
	}
	if err != nil {
		return err
	}
	if err := q.AuthorizeAgain(); err != nil {
		return err
	}
	h := q.W.Header()
	h["X-Consul-Index"] = rows.IndexHeader(leaf.ModifyIndex)
	h["X-Consul-Knownleader"], h["X-Consul-Lastcontact"] = rows.ValueTrue, rows.ValueZero
	rows.CacheHeaders(h, hit, q.Clock.Now().Sub(leaf.Received))
	return q.ReplyValue(leaf)
}
