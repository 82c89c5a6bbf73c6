package consulapi

import (
	"net/http"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/chain"
	"corbel.dev/corbel/catalog/entry"
)

var chainRoutes = []route{{"GET POST", "/v1/discovery-chain/", read, acl.Service, discoveryChain}}

// TrustDomain is the mesh's, made of the cluster's identity.
func TrustDomain(st *catalog.State) string {
	if r := st.Record(catalog.RecordSystem, catalog.ClusterIDKey); r != nil {
		return string(r.Value) + ".consul"
	}
	return "unknown.consul" // the first leader is about to write it
}

func discoveryChain(q *request) error {
	name := q.rest
	if name == "" {
		return errMissingService
	}
	var in struct {
		OverrideMeshGateway    entry.MeshGateway
		OverrideProtocol       string
		OverrideConnectTimeout bodies.Span
	}
	if q.r.Method == http.MethodPost && q.r.ContentLength != 0 {
		if err := q.decode(&in); err != nil {
			return err
		}
	}
	if err := q.allow(acl.Service, name, acl.Read); err != nil {
		return err
	}
	dc := q.q.Value("compile-dc")
	if dc == "" {
		dc = q.api.cfg.Identity.Datacenter
	}
	st, err := q.configState()
	if err != nil {
		return err
	}
	c, err := chain.Compile(chain.Request{Service: name, Datacenter: dc, TrustDomain: TrustDomain(st), Protocol: in.OverrideProtocol,
		ConnectTimeout: entry.Duration(time.Duration(in.OverrideConnectTimeout)), MeshGateway: in.OverrideMeshGateway.Mode,
		Get: func(kind, name string) entry.Entry { return entry.Stored(st, kind, name) }})
	if err != nil {
		return answer.Fail(http.StatusInternalServerError, err.Error())
	}
	return q.replyValue(struct{ Chain *chain.Chain }{c})
}
