// Package queryrows answers /v1/query: prepared queries, stored, explained and run, by HTTP or by DNS
// (ExecuteQuery), with failover to other datacenters.
package queryrows

import (
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
)

// Rows are the rows of prepared queries, which DNS asks too.
type Rows struct{ *rows.Core }

// New makes the rows; it starts nothing.
func New(c *rows.Core) *Rows { return &Rows{c} }

// Routes are the rows of this part of the contract.
func (qr *Rows) Routes() []rows.Row {
	return []rows.Row{
		rows.Read("GET", "/v1/query", acl.Query, queryList),
		rows.Write("POST", "/v1/query", acl.Query, queryCreate),
		rows.Read("GET", "/v1/query/", acl.Query, qr.queryGet),
		rows.Write("PUT", "/v1/query/", acl.Query, queryUpdate),
		rows.Write("DELETE", "/v1/query/", acl.Query, queryDelete),
		rows.Read("GET", "/v1/internal/query/execute", acl.Query, qr.queryExecuteGiven),
	}
}
