package configrows

import (
	"net/http"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/chain"
	"corbel.dev/corbel/catalog/entry"
)

// TrustDomain is the mesh's, made of the cluster's identity.
func TrustDomain(st *catalog.State) string {
	if r := st.Record(catalog.RecordSystem, catalog.ClusterIDKey); r != nil {
		return string(r.Value) + ".consul"
	}
	return "unknown.consul" // the first leader is about to write it
}

func discoveryChain(q *rows.Request) error {
	name := q.Rest
	if name == "" {
		return rows.ErrNoService
	}
	var in struct {
		OverrideMeshGateway    entry.MeshGateway
		OverrideProtocol       string
		OverrideConnectTimeout bodies.Span
	}
	if q.R.Method == http.MethodPost && q.R.ContentLength != 0 {
		if err := q.Decode(&in); err != nil {
			return err
		}
	}
	if err := q.Allow(acl.Service, name, acl.Read); err != nil {
		return err
	}
	dc := q.Query.Value("compile-dc")
	if dc == "" {
		dc = q.Identity.Datacenter
	}
	st, err := q.ReadRecords(catalog.RecordConfigEntry)
	if err != nil {
		return err
	}
	c, err := chain.Compile(chain.Request{Service: name, Datacenter: dc, TrustDomain: TrustDomain(st), Protocol: in.OverrideProtocol,
		ConnectTimeout: entry.Duration(time.Duration(in.OverrideConnectTimeout)), MeshGateway: in.OverrideMeshGateway.Mode,
		Get: func(kind, name string) entry.Entry { return entry.Stored(st, kind, name) }})
	if err != nil {
		return answer.Fail(http.StatusInternalServerError, err.Error())
	}
	return q.ReplyValue(struct{ Chain *chain.Chain }{c})
}
