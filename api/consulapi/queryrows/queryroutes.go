package queryrows

import (
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
)

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
