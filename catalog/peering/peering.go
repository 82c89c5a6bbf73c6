// Package peering joins the catalogs of two clusters that trust each other in nothing else: what each of them exports
// by its config entry exported-services, the other sees under the name that it gave its peer.
//
// It is pure: tokens, what is stored of a peer (Peering), what is exported of a State (Exporter), what may be taken in
// of what a peer sent (Importer), and imported services as a State of their own (Imported). Connections, the leader's
// part and the proposals are node/peers'.
package peering

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"iter"
	"regexp"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// State is how a peering stands, in the contract's words.
type State string

// The states. Failing is never stored: it is an Active one whose peer has not been heard for a while.
const (
	Pending      State = "PENDING"      // a token was made, and nobody has used it
	Establishing State = "ESTABLISHING" // a token was used here, and nothing has come yet
	Active       State = "ACTIVE"
	Failing      State = "FAILING"
	Deleting     State = "DELETING"   // to go as soon as the peer was told
	Terminated   State = "TERMINATED" // the peer has deleted its side
)

// Peering is one peer as it is stored: a record of kind RecordPeering, its key the name, its name the ID.
type Peering struct {
	ID        string
	Name      string
	Meta      map[string]string `json:",omitempty"`
	State     State
	DeletedAt time.Time `json:",omitzero"`
	Remote    Remote
	// PeerID is what the peer calls this peering; "" until the other side has used the token.
	PeerID string  `json:",omitempty"`
	Dial   *Dial   `json:",omitempty"` // on the side that used a token
	Accept *Accept `json:",omitempty"` // on the side that made one
	// Index is the record's ModifyIndex, Created its CreateIndex.
	Index, Created uint64 `json:"-"`
}

// Remote is what the peer says about itself.
type Remote struct {
	Partition  string `json:",omitempty"`
	Datacenter string `json:",omitempty"`
}

// Dial is how the side that used a token reaches the other, and by which secret it is known there.
type Dial struct {
	CAPems     []string `json:",omitempty"`
	ServerName string   `json:",omitempty"`
	Addresses  []string
	Secret     string
}

// Accept are the secrets that the side which made a token accepts, as their SHA-256. Pending is that of a token that
// nobody has used, Stream that of the peer's connections.
type Accept struct {
	Pending []byte `json:",omitempty"`
	Stream  []byte `json:",omitempty"`
}

// Dials tells whether this side connects.
func (p *Peering) Dials() bool { return p.Dial != nil }

// Lives tells whether services go to and fro, or are to.
func (p *Peering) Lives() bool { return p.State == Establishing || p.State == Active }

// Hash is what is stored of a secret that others show.
func Hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// Is compares a secret with what is stored of one, in constant time; nothing is stored is never equal.
func Is(hash []byte, secret string) bool {
	none := len(hash) != sha256.Size
	if none {
		hash = make([]byte, sha256.Size)
	}
	return subtle.ConstantTimeCompare(hash, Hash(secret)) == 1 && !none
}

// Load reads a record; it was valid when it was stored.
func Load(r *catalog.Record) (*Peering, error) {
	p := &Peering{}
	if err := json.Unmarshal(r.Value, p); err != nil {
		return nil, errkind.E(errkind.Corrupt, "read the peering "+r.Key, err)
	}
	p.Index, p.Created = r.ModifyIndex, r.CreateIndex
	return p, nil
}

// Named reads the peering of a name, nil when there is none.
func Named(st *statestore.State, name string) (*Peering, error) {
	r := st.Record(catalog.RecordPeering, name)
	if r == nil {
		return nil, nil
	}
	return Load(r)
}

// ByID reads the peering of an ID, nil when there is none.
func ByID(st *statestore.State, id string) (*Peering, error) {
	r := st.RecordByName(catalog.RecordPeering, id)
	if r == nil {
		return nil, nil
	}
	return Load(r)
}

// All yields every peering by name.
func All(st *statestore.State) iter.Seq[*Peering] {
	return func(yield func(*Peering) bool) {
		for r := range st.Records(catalog.RecordPeering, "") {
			if p, err := Load(r); err == nil && !yield(p) {
				return
			}
		}
	}
}

// Put is the operation that stores p if the record is still the one that p was read from, or none was and none is.
func (p *Peering) Put() catalog.RecordOp {
	value, _ := json.Marshal(p) // texts and numbers have a JSON
	return catalog.RecordOp{Verb: catalog.RecordCAS, Record: catalog.Record{Kind: catalog.RecordPeering, Key: p.Name,
		Name: p.ID, Value: value, ModifyIndex: p.Index}}
}

// Drop is the operation that removes p if it is still what it was.
func (p *Peering) Drop() catalog.RecordOp {
	return catalog.RecordOp{Verb: catalog.RecordDeleteCAS, Record: catalog.Record{Kind: catalog.RecordPeering,
		Key: p.Name, ModifyIndex: p.Index}}
}

// Same is the operation that refuses a command when p has changed since it was read.
func (p *Peering) Same() catalog.RecordOp {
	return catalog.RecordOp{Verb: catalog.RecordCheck, Record: catalog.Record{Kind: catalog.RecordPeering, Key: p.Name,
		ModifyIndex: p.Index}}
}

// What a name of a peer may be, and how much may be noted with it.
const (
	MaxNameBytes  = 64
	maxMeta       = 64
	maxMetaKey    = 128
	maxMetaValue  = 512
	namePattern   = `^[a-z0-9]([a-z0-9\-_]*[a-z0-9])?$`
	maxAddresses  = 64
	maxAddrBytes  = 262 // a name of DNS, a colon and a port
	maxTokenBytes = 256 << 10
)

var nameRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(namePattern) })

// CheckName says what is wrong with the name of a peer, which is a label of DNS.
func CheckName(name string) error {
	switch {
	case name == "":
		return errkind.New(errkind.Invalid, "PeerName is required in the payload")
	case len(name) > MaxNameBytes || !nameRule().MatchString(name):
		return errkind.Errorf(errkind.Invalid, "%q is not a valid PeerName: a name has at most %d lower-case letters, "+
			"digits, - and _, and neither begins nor ends with - or _", clip(name), MaxNameBytes)
	}
	return nil
}

// CheckMeta says what is wrong with a peering's metadata.
func CheckMeta(meta map[string]string) error {
	if len(meta) > maxMeta {
		return errkind.Errorf(errkind.Invalid, "Meta has %d entries, at most %d are kept", len(meta), maxMeta)
	}
	for k, v := range meta {
		if k == "" || len(k) > maxMetaKey || len(v) > maxMetaValue {
			return errkind.Errorf(errkind.Invalid, "Meta: the key %q: keys have 1 to %d bytes, values at most %d", clip(k),
				maxMetaKey, maxMetaValue)
		}
	}
	return nil
}

// clip keeps a text of a stranger short where it is repeated.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}

// TokenRequest is what a token is made for. External are addresses that take the place of the servers' own.
type TokenRequest struct {
	PeerName string
	Meta     map[string]string
	External []string `json:"ServerExternalAddresses"`
}

// EstablishRequest is a token and the name of who made it.
type EstablishRequest struct {
	PeerName     string
	PeeringToken string
	Meta         map[string]string
}

// Status is how a peer's connection stands, as the leader sees it. Times are zero for never.
type Status struct {
	LastHeartbeat time.Time
	LastReceive   time.Time
	LastSend      time.Time
	// Trouble is why the last try failed; "" when it did not.
	Trouble string
	// Refused is since when what one side sends has not been taken by the other, though they hear each other; zero while
	// it is taken.
	Refused time.Time
}
