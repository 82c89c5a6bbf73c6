package node

import (
	"context"

	"corbel.dev/corbel/api/consulapi/queryrows"
	"corbel.dev/corbel/api/dnsapi"
)

// dnsQueries runs prepared queries for DNS, as the HTTP API does.
type dnsQueries struct{ *queryrows.Rows }

// ExecuteDNS implements dnsapi.Queries.
func (q dnsQueries) ExecuteDNS(ctx context.Context, asked dnsapi.Query) (dnsapi.QueryAnswer, error) {
	got, err := q.ExecuteQuery(ctx, queryrows.QueryCall{Name: asked.Name, Token: asked.Token, Agent: asked.Agent,
		Source: asked.Source})
	if err != nil {
		return dnsapi.QueryAnswer{}, err
	}
	answer := dnsapi.QueryAnswer{Datacenter: got.Datacenter, TTL: got.TTL}
	for _, i := range got.Instances {
		answer.Instances = append(answer.Instances, dnsapi.QueryInstance{Node: i.Node, Service: i.Service, Status: i.Status})
	}
	return answer, nil
}
