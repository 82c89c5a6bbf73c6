package acl

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Link names a policy or role that a token or role has. What is kept is the ID: the name is
// looked up when it is shown, since it may change.
type Link struct {
	ID   string
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

// TemplateVariables fill the hole of a template.
type TemplateVariables struct {
	Name string `json:",omitempty"`
}

// TemplatedPolicy is a built-in template with its variables.
type TemplatedPolicy struct {
	TemplateName      string
	TemplateVariables *TemplateVariables `json:",omitempty"`
	Datacenters       []string           `json:",omitempty"`
}

// VariableName is the name that fills the template's hole.
func (t *TemplatedPolicy) VariableName() string {
	if t.TemplateVariables == nil {
		return ""
	}
	return t.TemplateVariables.Name
}

// Grants is what tokens and roles both give.
type Grants struct {
	Policies          []Link            `json:",omitempty"`
	ServiceIdentities []ServiceIdentity `json:",omitempty"`
	NodeIdentities    []NodeIdentity    `json:",omitempty"`
	TemplatedPolicies []TemplatedPolicy `json:",omitempty"`
}

// Token is a secret and what it gives. The wire form is the stored form with the indexes of its record.
type Token struct {
	CreateIndex uint64
	ModifyIndex uint64
	AccessorID  string
	SecretID    string
	Description string
	Grants
	Roles []Link `json:",omitempty"`
	Local bool
	// AuthMethod is the method of the login that made the token; such a token may end itself.
	AuthMethod     string     `json:",omitempty"`
	ExpirationTime *time.Time `json:",omitempty"`
	CreateTime     time.Time
	Hash           []byte
}

// Expired reports whether the token's time is over.
func (t *Token) Expired(now time.Time) bool {
	return t.ExpirationTime != nil && !now.Before(*t.ExpirationTime)
}

// Policy is a named text of rules. A policy without Datacenters holds in all.
type Policy struct {
	ID          string
	Name        string
	Description string
	Rules       string
	Datacenters []string `json:",omitempty"`
	Hash        []byte
	CreateIndex uint64
	ModifyIndex uint64
}

// Role is a named set of grants.
type Role struct {
	ID          string
	Name        string
	Description string
	Grants
	Hash        []byte
	CreateIndex uint64
	ModifyIndex uint64
}

// Where the tokens of an auth method hold.
const (
	LocalityLocal  = "local"
	LocalityGlobal = "global"
)

// AuthMethod is a way to log in with a credential of another system.
type AuthMethod struct {
	Name          string
	Type          string
	DisplayName   string `json:",omitempty"`
	Description   string
	MaxTokenTTL   Duration `json:",omitzero"`
	TokenLocality string   `json:",omitempty"`
	// Default says that a login that names no method is by this one: one method at most has it. It is never false in
	// what is stored; in a change nil leaves it as it is.
	Default     *bool `json:",omitempty"`
	Config      map[string]any
	CreateIndex uint64
	ModifyIndex uint64
}

// IsDefault tells whether a login that names no method is by this one.
func (m *AuthMethod) IsDefault() bool { return m.Default != nil && *m.Default }

// What a binding rule may bind a login to.
const (
	BindService   = "service"
	BindRole      = "role"
	BindNode      = "node"
	BindPolicy    = "policy"
	BindTemplated = "templated-policy"
)

// BindingRule says what a login gives whose claims match Selector.
type BindingRule struct {
	ID          string
	Description string
	AuthMethod  string
	Selector    string
	BindType    string
	BindName    string
	BindVars    *TemplateVariables `json:",omitempty"`
	CreateIndex uint64
	ModifyIndex uint64
}

// OneTime is a secret that can be traded for a token once, as it is stored: under the hash of the secret.
type OneTime struct {
	AccessorID  string
	ExpiresAt   time.Time
	CreateIndex uint64
	ModifyIndex uint64
}

// Bootstrap is what remains of the first token: that there was one.
type Bootstrap struct {
	AccessorID string
}

// Duration is written as "5m0s" and read from that or from nanoseconds.
type Duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		if s == "" {
			*d = 0
			return nil
		}
		v, err := time.ParseDuration(s)
		*d = Duration(v)
		return err
	}
	return json.Unmarshal(b, (*int64)(d))
}

// Encode gives the stored form of an object of this file.
func Encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("acl: an object that has no JSON: " + err.Error()) // all come from decoded JSON
	}
	return b
}

// Decode reads what Encode wrote; create and modify are the indexes of the record.
func Decode[T Token | Policy | Role | AuthMethod | BindingRule | OneTime](b []byte, create, modify uint64) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, errkind.E(errkind.Corrupt, "read an ACL object", err)
	}
	switch o := any(v).(type) {
	case *Token:
		o.CreateIndex, o.ModifyIndex = create, modify
	case *Policy:
		o.CreateIndex, o.ModifyIndex = create, modify
	case *Role:
		o.CreateIndex, o.ModifyIndex = create, modify
	case *AuthMethod:
		o.CreateIndex, o.ModifyIndex = create, modify
	case *BindingRule:
		o.CreateIndex, o.ModifyIndex = create, modify
	case *OneTime:
		o.CreateIndex, o.ModifyIndex = create, modify
	}
	return v, nil
}

// Sum is the hash that clients compare to see whether an object changed: of all but indexes, times and itself.
func Sum(v any) []byte {
	switch o := v.(type) {
	case *Token:
		c := *o
		c.CreateIndex, c.ModifyIndex, c.Hash, c.CreateTime, c.ExpirationTime = 0, 0, nil, time.Time{}, nil
		v = &c
	case *Policy:
		c := *o
		c.CreateIndex, c.ModifyIndex, c.Hash = 0, 0, nil
		v = &c
	case *Role:
		c := *o
		c.CreateIndex, c.ModifyIndex, c.Hash = 0, 0, nil
		v = &c
	}
	h := sha256.Sum256(Encode(v))
	return h[:]
}
