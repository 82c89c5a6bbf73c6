// Package peered knows what a peered cluster says of its mesh: by which roots its proxies are believed, and at which
// gateways they are found. How it comes here is catalog/peering's business.
package peered

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/netip"
	"strings"
	"unicode"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// Trust is what a cluster tells its peer of its mesh.
type Trust struct {
	// Domain is the trust domain, which no two clusters share, and Datacenter the one that its identities name.
	Domain, Datacenter string
	// As is what it calls the cluster that it tells: a part of the names that its gateways are asked for.
	As       string
	Roots    []string  `json:",omitempty"` // certificates, in PEM
	Gateways []Gateway `json:",omitempty"` // its mesh gateways, as others reach them
}

// Gateway is one mesh gateway.
type Gateway struct {
	Address string // an IP address, or a name in lower case
	Port    uint16
	Health  uint8  `json:",omitempty"` // as the mesh counts it: 0 is healthy, what we do not know is not
	Weight  uint32 `json:",omitempty"`
}

// What one peer may say.
const (
	MaxBytes    = 256 << 10
	maxName     = 255
	maxRoots    = 64
	maxGateways = 1000
)

// Encode is what Read reads: equal values have equal bytes.
func (t *Trust) Encode() []byte {
	b, _ := json.Marshal(t) // texts and numbers have a JSON
	return b
}

// Read reads what a peer says, and refuses what no cluster does: it may come from anybody.
func Read(b []byte) (*Trust, error) {
	t := &Trust{}
	if len(b) > MaxBytes {
		return nil, errkind.Errorf(errkind.TooLarge, "what the peer says of its mesh has %d bytes: at most %d are taken",
			len(b), MaxBytes)
	}
	err := json.Unmarshal(b, t)
	if err == nil {
		err = t.check()
	}
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "read what the peer says of its mesh", err)
	}
	return t, nil
}

func (t *Trust) check() error {
	switch {
	case !host(t.Domain):
		return errkind.Errorf(errkind.Invalid, "Domain: %.80q is no trust domain", t.Domain)
	case t.Datacenter == "" || len(t.Datacenter) > maxName:
		return errkind.Errorf(errkind.Invalid, "Datacenter: has not 1 to %d bytes", maxName)
	case !host(t.As):
		return errkind.Errorf(errkind.Invalid, "As: %.80q is no name of a peer", t.As)
	case len(t.Roots) == 0 || len(t.Roots) > maxRoots || len(t.Gateways) > maxGateways:
		return errkind.Errorf(errkind.Invalid, "%d roots and %d gateways: 1 to %d and at most %d are taken", len(t.Roots),
			len(t.Gateways), maxRoots, maxGateways)
	}
	for i, text := range t.Roots {
		block, rest := pem.Decode([]byte(text))
		if block == nil || block.Type != "CERTIFICATE" || strings.TrimSpace(string(rest)) != "" {
			return errkind.Errorf(errkind.Invalid, "Roots[%d]: is not one certificate in PEM", i)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil { // a proxy would refuse all that it came with
			return errkind.Errorf(errkind.Invalid, "Roots[%d]: %w", i, err)
		}
	}
	for i := range t.Gateways {
		g := &t.Gateways[i]
		_, err := netip.ParseAddr(g.Address)
		if named := host(g.Address) && strings.ContainsFunc(g.Address, unicode.IsLetter); err != nil && !named ||
			g.Port == 0 {
			return errkind.Errorf(errkind.Invalid, "Gateways[%d]: %.80q is no address, or has no port", i, g.Address)
		}
	}
	return nil
}

// host tells whether a text may be a part of a host's name.
func host(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	})
}

// Of reads what a peer has said; nil before it has, and where none is.
func Of(st *statestore.State, peer string) *Trust {
	r := st.Record(catalog.RecordTrust, peer)
	if r == nil {
		return nil
	}
	t, err := Read(r.Value)
	if err != nil {
		return nil // it was valid when it was stored
	}
	return t
}

// Put is the operation that keeps what a peer says. The bytes are ours, whatever a newer release adds.
func Put(st *statestore.State, peer string, t *Trust) []catalog.RecordOp {
	value := t.Encode()
	if r := st.Record(catalog.RecordTrust, peer); r != nil && string(r.Value) == string(value) {
		return nil
	}
	return []catalog.RecordOp{{Verb: catalog.RecordSet, Record: catalog.Record{Kind: catalog.RecordTrust, Key: peer,
		Value: value}}}
}

// Drop is the operation that forgets what a peer has said, none when it has said nothing.
func Drop(st *statestore.State, peer string) []catalog.RecordOp {
	if st.Record(catalog.RecordTrust, peer) == nil {
		return nil
	}
	return []catalog.RecordOp{{Verb: catalog.RecordDelete, Record: catalog.Record{Kind: catalog.RecordTrust, Key: peer}}}
}

// Taken tells whether another peer has said that a trust domain is its own: who could say so of another one's could
// speak in its name.
func Taken(st *statestore.State, peer, domain string) bool {
	for r := range st.Records(catalog.RecordTrust, "") {
		if t := Of(st, r.Key); r.Key != peer && t != nil && t.Domain == domain {
			return true
		}
	}
	return false
}

// ImportKey is the key of the record of an imported service. No name of a peer has a slash.
func ImportKey(peer, service string) string { return peer + "/" + strings.ToLower(service) }
