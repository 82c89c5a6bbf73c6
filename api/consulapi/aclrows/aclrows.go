// Package aclrows answers /v1/acl: tokens, policies, roles, auth methods, binding rules, logging in. Objects change
// through grants.Keeper on the leader; reads come from any State, with secrets hidden from who may not write ACLs.
package aclrows

import (
	"corbel.dev/corbel/catalog/grants"
)

// Config is what the rows of ACL objects need.
type Config struct {
	Keeper        *grants.Keeper // changes ACL objects; nil on client agents and while ACLs are off
	DownACLPolicy string
}

// Rows are the rows of ACL objects.
type Rows struct{ Config }

// New makes the rows; it starts nothing.
func New(cfg Config) *Rows { return &Rows{cfg} }
