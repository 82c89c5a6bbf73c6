// Package authority has a mount's certificate authorities as they are stored: issuers with their chains, private keys,
// the index of both by name, and what issuers write into the certificates that they sign. A Change takes issuers and
// keys in and out, and tells all chains anew. Values are not safe for concurrent writing; those from a cache are not
// changed.
package authority

import (
	"strings"

	"corbel.dev/corbel/secrets/engine/pki/forms"
)

// IndexKey holds which issuers and keys there are: few, so names are found without a list of storage.
const IndexKey = "index"

// Index names a mount's issuers and keys.
type Index struct {
	Default string    `json:"default,omitempty"` // issuer
	Follows bool      `json:"default_follows_latest_issuer,omitempty"`
	Issuers []Pointer `json:"issuers,omitempty"`

	DefaultKey string    `json:"default_key,omitempty"`
	Keys       []Pointer `json:"keys,omitempty"`
}

// Pointer is an issuer or a key by its names.
type Pointer struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// Find returns the id that a reference means, or "".
func Find(list []Pointer, ref, standard string) string {
	if ref == "default" {
		return standard
	}
	for _, p := range list {
		if p.ID == ref || (p.Name == ref && ref != "") {
			return p.ID
		}
	}
	return ""
}

// CheckName refuses names that no reference could mean; what is the object's kind.
func CheckName(what, name string, list []Pointer, self string) error {
	if name == "" {
		return nil
	}
	if name == "default" {
		return forms.Refused("reserved keyword 'default' can not be used as %s name", what)
	}
	if strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.')
	}) || strings.Trim(name, ".-") == "" {
		return forms.Refused("%s name contained invalid characters", what)
	}
	for _, p := range list {
		if p.ID != self && (p.Name == name || p.ID == name) {
			return forms.Refused("%s name already in use", what)
		}
	}
	return nil
}
