package meshrows

import (
	"context"
	"net/http"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
)

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
