package configrows

import (
	"slices"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
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
			out = append(out, gatewayService{Service: compoundName{s.Name}, CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile, SNI: s.SNI})
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

// peerings are none: clusters are joined as datacenters.
func peerings(q *rows.Request) error {
	if err := q.Allow(acl.Peering, "", acl.Read); err != nil {
		return err
	}
	if _, err := q.ReadRecords(catalog.RecordConfigEntry); err != nil {
		return err
	}
	return q.ReplyValue([]struct{}{})
}
