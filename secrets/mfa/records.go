package mfa

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/onetime"
	"corbel.dev/corbel/secrets/storage"
)

// Where records are, below identity/ of a namespace. Secrets are where identity.Secrets says.
const (
	methodKey  = "mfa-method/"      // ID: Method
	enforceKey = "mfa-enforcement/" // ID: Enforcement
)

// The bounds of what operators write.
const (
	maxMethods      = 256 // of a namespace
	maxEnforcements = 1024
	maxListed       = 1024 // in a list of an enforcement
)

// kindTOTP is the one type of methods that there is.
const kindTOTP = "totp"

// Method is a way to show a second factor.
type Method struct {
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`
	Type      string `json:"type"`
	Issuer    string `json:"issuer"`
	Period    int    `json:"period"` // seconds
	Algorithm string `json:"algorithm"`
	Digits    int    `json:"digits"`
	Skew      int    `json:"skew"`
	KeySize   int    `json:"key_size"` // bytes
	QRSize    int    `json:"qr_size"`  // pixels
	Attempts  int    `json:"max_validation_attempts"`
}

// key is a key as the method makes them, without its secret.
func (m *Method) key(account string) onetime.Key {
	return onetime.Key{Issuer: m.Issuer, Account: account, Period: m.Period, Algorithm: m.Algorithm, Digits: m.Digits,
		Skew: m.Skew}
}

// Enforcement names the logins that need a second factor, by any of the four, and the methods of which one will do.
type Enforcement struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Methods   []string `json:"mfa_method_ids"`
	Accessors []string `json:"auth_method_accessors"`
	Types     []string `json:"auth_method_types"`
	Groups    []string `json:"identity_group_ids"`
	Entities  []string `json:"identity_entity_ids"`
}

// login is what enforcements look at.
type login struct {
	kind, accessor string // of the mount
	entity         string
	groups         []string
}

// covers reports whether a login needs one of the enforcement's methods.
func (e *Enforcement) covers(l *login) bool {
	return slices.Contains(e.Accessors, l.accessor) || slices.Contains(e.Types, l.kind) ||
		slices.Contains(e.Entities, l.entity) ||
		slices.ContainsFunc(e.Groups, func(id string) bool { return slices.Contains(l.groups, id) })
}

// rules are the methods and enforcements of a namespace. Immutable.
type rules struct {
	methods      []*Method      // in the order of their IDs
	enforcements []*Enforcement // in the order of their names
}

// read gives the rules as they are stored.
func read(ctx context.Context, v engine.View) (*rules, error) {
	r := &rules{}
	var err error
	if r.methods, err = records[Method](ctx, v, methodKey); err != nil {
		return nil, err
	}
	if r.enforcements, err = records[Enforcement](ctx, v, enforceKey); err != nil {
		return nil, err
	}
	slices.SortFunc(r.enforcements, func(a, b *Enforcement) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

func records[T any](ctx context.Context, v engine.View, prefix string) ([]*T, error) {
	found, err := v.Scan(ctx, prefix, storage.After(prefix), 0)
	if err != nil {
		return nil, err
	}
	list := make([]*T, 0, len(found))
	for _, r := range found {
		one := new(T)
		if json.Unmarshal(r.Value, one) != nil {
			return nil, errkind.Errorf(errkind.Corrupt, "the record %s is not what was stored", r.Key)
		}
		list = append(list, one)
	}
	return list, nil
}

// method finds one by its ID; nil for none.
func (r *rules) method(id string) *Method {
	return find(r.methods, func(m *Method) bool { return m.ID == id })
}

// enforcement finds one by its name; nil for none.
func (r *rules) enforcement(name string) *Enforcement {
	return find(r.enforcements, func(e *Enforcement) bool { return e.Name == name })
}

func find[T any](list []*T, is func(*T) bool) *T {
	if at := slices.IndexFunc(list, is); at >= 0 {
		return list[at]
	}
	return nil
}

// covering are the enforcements that a login is to satisfy.
func (r *rules) covering(l *login) (list []*Enforcement) {
	for _, e := range r.enforcements {
		if e.covers(l) {
			list = append(list, e)
		}
	}
	return list
}

// secret is what an entity shows a method's factor with.
type secret struct {
	onetime.Key
	ID string `json:"id"` // another one with each key that is made
}

// used are the steps of a secret whose codes were taken. A record of its own: who logs in must not write back a secret
// that went meanwhile.
type used struct {
	Of    string   `json:"of"` // the secret's ID
	Steps []uint64 `json:"steps"`
}

func secretKey(entity, method string) string { return identity.Secrets + entity + "/" + method }

func usedKey(entity, method string) string { return identity.SecretsUsed + entity + "/" + method }

// get reads a record; nil for none.
func get[T any](ctx context.Context, v engine.View, key string) (*T, error) {
	raw, ok, err := v.Get(ctx, key)
	if err != nil || !ok {
		return nil, err
	}
	one := new(T)
	if json.Unmarshal(raw, one) != nil {
		return nil, errkind.New(errkind.Corrupt, "the record of a second factor is not what was stored")
	}
	return one, nil
}
