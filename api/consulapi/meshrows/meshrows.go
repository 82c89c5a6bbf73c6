// Package meshrows answers about the mesh: roots and configuration of its authority, leaf certificates of this host,
// and how the proxies of the fleet stand, which it gathers from their hosts. What a host answers is not filtered; the
// caller sees of it what its token may read.
package meshrows

import (
	"corbel.dev/corbel/api/consulapi/configrows"
)

// Config is what the rows of the mesh's certificates and proxies need.
type Config struct {
	// CA is nil on a client agent.
	CA CA
	// Leaves are this host's leaf certificates; nil while the mesh is switched off.
	Leaves Leaves
	// Proxies are those of this host; nil while the mesh is switched off.
	Proxies Mesh
}

// Rows are the rows of the mesh's certificates and proxies.
type Rows struct {
	Config
	intentions *configrows.Rows
}

// New makes the rows, which judge connections by the intentions of entries; it starts nothing.
func New(cfg Config, entries *configrows.Rows) *Rows { return &Rows{cfg, entries} }
