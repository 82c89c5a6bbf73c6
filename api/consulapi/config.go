package consulapi

import (
	"corbel.dev/corbel/api/consulapi/aclrows"
	"corbel.dev/corbel/api/consulapi/agentrows"
	"corbel.dev/corbel/api/consulapi/catalogrows"
	"corbel.dev/corbel/api/consulapi/configrows"
	"corbel.dev/corbel/api/consulapi/kvrows"
	"corbel.dev/corbel/api/consulapi/meshrows"
	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/api/consulapi/peerrows"
	"corbel.dev/corbel/api/consulapi/rows"
)

// Config configures an API. Registry and the operator's parts are nil on a client agent, which then needs Forward; what
// an agent has may be nil where a process has none: its rows answer 404 or 500 with a text.
type Config struct {
	rows.Config
	KV       kvrows.Config
	Catalog  catalogrows.Config
	Agent    agentrows.Config
	ACL      aclrows.Config
	Entries  configrows.Config
	Mesh     meshrows.Config
	Operator operatorrows.Config
	Peering  peerrows.Config

	AllowUnprintable bool // disable_http_unprintable_char_filter
	BlockEndpoints   []string
	AllowWriteFrom   []string
	ResponseHeaders  map[string]string
}
