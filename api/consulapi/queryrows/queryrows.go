// Package queryrows answers /v1/query: prepared queries, stored, explained and run, by HTTP or by DNS
// (ExecuteQuery), with failover to other datacenters.
package queryrows

import (
	"corbel.dev/corbel/api/consulapi/rows"
)

// Rows are the rows of prepared queries, which DNS asks too.
type Rows struct{ *rows.Core }

// New makes the rows; it starts nothing.
func New(c *rows.Core) *Rows { return &Rows{c} }
