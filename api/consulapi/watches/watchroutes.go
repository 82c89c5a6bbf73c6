package watches

import (
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
)

// Routes are the rows of this part of the contract.
func (h *Hub) Routes() []rows.Row {
	return []rows.Row{
		rows.Own("POST", "/v1/watch", acl.NoResource, h.watchOpen),
		rows.Own("POST", "/v1/watch/", acl.NoResource, h.watchChange),
	}
}
