package configrows

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/chain"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/statestore"
)

type compoundName struct{ Name string }

// gatewayService is a service behind a gateway, as its config entry names it: a
// wildcard stays one row.
type gatewayService struct {
	Gateway      compoundName
	Service      compoundName
	GatewayKind  string
	Port         int      `json:",omitempty"`
	Protocol     string   `json:",omitempty"`
	Hosts        []string `json:",omitempty"`
	CAFile       string   `json:",omitempty"`
	CertFile     string   `json:",omitempty"`
	KeyFile      string   `json:",omitempty"`
	SNI          string   `json:",omitempty"`
	FromWildcard bool     `json:",omitempty"`
	CreateIndex  uint64
	ModifyIndex  uint64
}

func gatewayServices(q *rows.Request) error {
	gateway := q.Rest
	if gateway == "" {
		return answer.Invalidf("Missing gateway name")
	}
	if err := q.Allow(acl.Service, gateway, acl.Read); err != nil {
		return err
	}
	st, err := q.ReadRecords(catalog.RecordConfigEntry)
	if err != nil {
		return err
	}
	out := []gatewayService{}
	for _, kind := range []string{entry.IngressGateway, entry.TerminatingGateway} {
		for _, row := range behindGateway(entry.Stored(st, kind, gateway)) {
			if row.Service.Name != "*" && !q.Sees(acl.Service, row.Service.Name) {
				continue
			}
			r := st.Record(catalog.RecordConfigEntry, entry.Key(kind, gateway))
			row.Gateway.Name, row.GatewayKind = gateway, kind
			row.CreateIndex, row.ModifyIndex = r.CreateIndex, r.ModifyIndex
			row.FromWildcard = row.Service.Name == "*"
			out = append(out, row)
		}
	}
	return q.ReplyValue(out)
}

// behindGateway are the services that a gateway's entry names; nil has none.
func behindGateway(e entry.Entry) (out []gatewayService) {
	switch e := e.(type) {
	case *entry.Ingress:
		for _, l := range e.Listeners {
			for _, s := range l.Services {
				out = append(out, gatewayService{Service: compoundName{s.Name}, Port: l.Port, Protocol: l.Protocol, Hosts: s.Hosts})
			}
		}
	case *entry.Terminating:
		for _, s := range e.Services {
			out = append(out, gatewayService{Service: compoundName{s.Name}, CAFile: s.CAFile, CertFile: s.CertFile,
				KeyFile: s.KeyFile, SNI: s.SNI})
		}
	}
	return out
}

// exportedService is a service and those for whom exported-services names it.
type exportedService struct {
	Service   string
	Consumers struct {
		Peers      []string `json:",omitempty"`
		Partitions []string `json:",omitempty"`
	}
}

func exportedServices(q *rows.Request) error {
	st, err := q.ReadRecords(catalog.RecordConfigEntry)
	if err != nil {
		return err
	}
	out := []exportedService{}
	if e, ok := entry.Stored(st, entry.ExportedServices, "default").(*entry.Exported); ok {
		for _, s := range e.Services {
			if !q.Sees(acl.Service, s.Name) {
				continue
			}
			row := exportedService{Service: s.Name}
			for _, c := range s.Consumers {
				if c.Peer != "" {
					row.Consumers.Peers = append(row.Consumers.Peers, c.Peer)
				}
				if c.Partition != "" {
					row.Consumers.Partitions = append(row.Consumers.Partitions, c.Partition)
				}
			}
			slices.Sort(row.Consumers.Peers)
			slices.Sort(row.Consumers.Partitions)
			out = append(out, row)
		}
	}
	return q.ReplyValue(out)
}

// TrustDomain is the mesh's, made of the cluster's identity.
func TrustDomain(st *statestore.State) string {
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
	c, err := chain.Compile(chain.Request{Service: name, Datacenter: dc, TrustDomain: TrustDomain(st),
		Protocol:       in.OverrideProtocol,
		ConnectTimeout: entry.Duration(time.Duration(in.OverrideConnectTimeout)), MeshGateway: in.OverrideMeshGateway.Mode,
		Get: func(kind, name string) entry.Entry { return entry.Stored(st, kind, name) }})
	if err != nil {
		return answer.Fail(http.StatusInternalServerError, err.Error())
	}
	return q.ReplyValue(struct{ Chain *chain.Chain }{c})
}

// CentralPattern is where agents ask for what config entries lay under a proxy.
const CentralPattern = "/v1/internal/mesh/central/"

// meshCentral lays the config entries of the destination under the proxy's registration in the body.
func meshCentral(q *rows.Request) error {
	if q.Rest == "" {
		return rows.ErrNoService
	}
	var proxy json.RawMessage
	if err := q.Decode(&proxy); err != nil {
		return err
	}
	if err := q.Allow(acl.Service, q.Rest, acl.Read); err != nil {
		return err
	}
	st, err := q.ReadRecords(catalog.RecordConfigEntry)
	if err != nil {
		return err
	}
	merged, err := CentralProxy(st, q.Rest, proxy)
	if err != nil {
		return answer.Invalidf("Request decode failed: %v", err)
	}
	return q.ReplyValue(json.RawMessage(merged))
}

// CentralProxy is the merged Proxy, or the registered one where there is no entry that says anything.
func CentralProxy(st *statestore.State, destination string, proxy []byte) ([]byte, error) {
	found := false
	merged, err := entry.Merge(func(kind, name string) entry.Entry {
		e := entry.Stored(st, kind, name)
		found = found || e != nil
		return e
	}, destination, proxy)
	if err != nil || !found {
		return proxy, err
	}
	return merged, nil
}
