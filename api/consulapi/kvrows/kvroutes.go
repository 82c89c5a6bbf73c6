package kvrows

import (
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
)

// Routes are the rows of this part of the contract.
func (kr *Rows) Routes() []rows.Row {
	return []rows.Row{
		rows.Read("GET", rows.KVPattern, acl.Key, kr.kvGet),
		rows.Write("PUT", rows.KVPattern, acl.Key, kvPut),
		rows.Write("DELETE", rows.KVPattern, acl.Key, kvDelete),
		rows.Write("PUT", "/v1/txn", acl.Key, kr.txn),
		rows.Write("PUT", "/v1/session/create", acl.Session, kr.sessionCreate),
		rows.Write("PUT", "/v1/session/destroy/", acl.Session, kr.sessionDestroy),
		rows.Write("PUT", "/v1/session/renew/", acl.Session, kr.sessionRenew),
		rows.Read("GET", "/v1/session/info/", acl.Session, sessionInfo),
		rows.Read("GET", "/v1/session/node/", acl.Session, sessionNode),
		rows.Read("GET", "/v1/session/list", acl.Session, sessionList),
	}
}
