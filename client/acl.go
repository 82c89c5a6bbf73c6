package client

import (
	"time"
)

// Link names a policy or role inside a token or role. Either part is enough on the way in.
type Link struct {
	ID   string `json:",omitempty"`
	Name string `json:",omitempty"`
}

// ServiceIdentity stands for the rights that a service needs.
type ServiceIdentity struct {
	ServiceName string
	Datacenters []string `json:",omitempty"`
}

// NodeIdentity stands for the rights that an agent needs.
type NodeIdentity struct {
	NodeName   string
	Datacenter string
}

// TemplatedPolicy is a built-in policy with its variables filled in.
type TemplatedPolicy struct {
	TemplateName      string
	TemplateVariables *TemplateVariables `json:",omitempty"`
	Datacenters       []string           `json:",omitempty"`
}

// TemplateVariables are the variables of a TemplatedPolicy.
type TemplateVariables struct{ Name string }

// Token is what a caller presents, by its SecretID, and what it may do.
type Token struct {
	AccessorID  string `json:",omitempty"`
	SecretID    string `json:",omitempty"`
	Description string `json:",omitempty"`
	TokenLinks
	Local            bool
	AuthMethod       string     `json:",omitempty"`
	ExpirationTTL    string     `json:",omitempty"`
	ExpirationTime   *time.Time `json:",omitempty"`
	CreateTime       time.Time  `json:",omitzero"`
	Hash             []byte     `json:",omitempty"`
	CreateIndex      uint64     `json:",omitempty"`
	ModifyIndex      uint64     `json:",omitempty"`
	ExpandedPolicies []Policy   `json:",omitempty"`
	ExpandedRoles    []Role     `json:",omitempty"`
}

// TokenLinks are where a token's rights come from.
type TokenLinks struct {
	Policies          []Link            `json:",omitempty"`
	Roles             []Link            `json:",omitempty"`
	ServiceIdentities []ServiceIdentity `json:",omitempty"`
	NodeIdentities    []NodeIdentity    `json:",omitempty"`
	TemplatedPolicies []TemplatedPolicy `json:",omitempty"`
}

// Policy is a set of rules under a name.
type Policy struct {
	ID          string `json:",omitempty"`
	Name        string
	Description string   `json:",omitempty"`
	Rules       string   `json:",omitempty"`
	Datacenters []string `json:",omitempty"`
	Hash        []byte   `json:",omitempty"`
	CreateIndex uint64   `json:",omitempty"`
	ModifyIndex uint64   `json:",omitempty"`
}

// Role is a set of policies and identities under a name.
type Role struct {
	ID                string `json:",omitempty"`
	Name              string
	Description       string            `json:",omitempty"`
	Policies          []Link            `json:",omitempty"`
	ServiceIdentities []ServiceIdentity `json:",omitempty"`
	NodeIdentities    []NodeIdentity    `json:",omitempty"`
	TemplatedPolicies []TemplatedPolicy `json:",omitempty"`
	Hash              []byte            `json:",omitempty"`
	CreateIndex       uint64            `json:",omitempty"`
	ModifyIndex       uint64            `json:",omitempty"`
}

// AuthMethod says how a foreign proof of identity becomes a token.
type AuthMethod struct {
	Name          string
	Type          string         `json:",omitempty"`
	DisplayName   string         `json:",omitempty"`
	Description   string         `json:",omitempty"`
	MaxTokenTTL   string         `json:",omitempty"`
	TokenLocality string         `json:",omitempty"`
	Default       bool           `json:",omitempty"` // a login to the jobs plane that names no method is by this one
	Config        map[string]any `json:",omitempty"`
	CreateIndex   uint64         `json:",omitempty"`
	ModifyIndex   uint64         `json:",omitempty"`
}

// BindingRule says what a login by an AuthMethod may do.
type BindingRule struct {
	ID          string `json:",omitempty"`
	Description string `json:",omitempty"`
	AuthMethod  string
	BindType    string             `json:",omitempty"`
	BindName    string             `json:",omitempty"`
	BindVars    *TemplateVariables `json:",omitempty"`
	Selector    string             `json:",omitempty"`
	CreateIndex uint64             `json:",omitempty"`
	ModifyIndex uint64             `json:",omitempty"`
}
