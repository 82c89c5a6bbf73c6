package authority

import (
	"bytes"
	"crypto/x509"
	"slices"

	"github.com/google/uuid"

	"corbel.dev/corbel/secrets/engine/pki/forms"
)

// Store is where a Change's records are: what it puts and deletes is stored with the request.
type Store interface {
	Key(id string) (*Key, error)
	Put(key string, v any) error
	Delete(key string)
}

// Change is the issuers and keys of a mount while a request changes them.
type Change struct {
	*Index
	store   Store
	issuers map[string]*Issuer
	touched map[string]bool
	made    map[string]*Key // keys of this very commit
}

func (ch *Change) key(id string) (*Key, error) {
	if k := ch.made[id]; k != nil {
		return k, nil
	}
	return ch.store.Key(id)
}

// NewChange begins a change of what a mount has; list are all its issuers, which are copied.
func NewChange(x *Index, list []*Issuer, store Store) *Change {
	ch := &Change{Index: x, store: store, issuers: map[string]*Issuer{}, touched: map[string]bool{},
		made: map[string]*Key{}}
	for _, i := range list {
		own := *i
		ch.issuers[i.ID] = &own
	}
	return ch
}

// Issuer is an issuer to look at.
func (ch *Change) Issuer(id string) *Issuer { return ch.issuers[id] }

// Touch is an issuer to change: Save stores it.
func (ch *Change) Touch(id string) *Issuer {
	ch.touched[id] = true
	return ch.issuers[id]
}

// AddKey takes a key in, or finds that it is there.
func (ch *Change) AddKey(k *Key) (id string, isNew bool, err error) {
	for _, p := range ch.Keys {
		have, err := ch.key(p.ID)
		if err != nil {
			return "", false, err
		}
		if forms.SamePublic(have.Signer.Public(), k.Signer.Public()) {
			return p.ID, false, nil
		}
	}
	if err := CheckName("key", k.Name, ch.Keys, ""); err != nil {
		return "", false, err
	}
	if k.DER, err = x509.MarshalPKCS8PrivateKey(k.Signer); err != nil {
		return "", false, err
	}
	if k.Type, _, err = forms.KeyShape(k.Signer.Public()); err != nil {
		return "", false, err
	}
	k.ID = uuid.NewString()
	ch.Keys, ch.made[k.ID] = append(ch.Keys, Pointer{k.ID, k.Name}), k
	if ch.DefaultKey == "" {
		ch.DefaultKey = k.ID
	}
	for _, i := range ch.issuers { // whose key was not here so far
		if i.KeyID == "" && forms.SamePublic(i.cert.PublicKey, k.Signer.Public()) {
			i.KeyID, ch.touched[i.ID] = k.ID, true
		}
	}
	return k.ID, true, ch.store.Put("key/"+k.ID, k)
}

// KeyOf returns the id of the key that belongs to a certificate, if it is here.
func (ch *Change) KeyOf(cert *x509.Certificate) (string, error) {
	for _, p := range ch.Keys {
		k, err := ch.key(p.ID)
		if err != nil {
			return "", err
		}
		if forms.SamePublic(k.Signer.Public(), cert.PublicKey) {
			return p.ID, nil
		}
	}
	return "", nil
}

// AddIssuer takes a certificate in, or finds that it is there.
func (ch *Change) AddIssuer(cert *x509.Certificate, name, key string) (i *Issuer, isNew bool, err error) {
	for _, have := range ch.issuers {
		if bytes.Equal(have.Cert, cert.Raw) {
			if have.KeyID == "" && key != "" {
				have.KeyID, ch.touched[have.ID] = key, true
			}
			return have, false, nil
		}
	}
	if err := CheckName("issuer", name, ch.Issuers, ""); err != nil {
		return nil, false, err
	}
	i = &Issuer{ID: uuid.NewString(), Name: name, KeyID: key, Cert: cert.Raw, NotAfter: "err", Usage: slices.Clone(Usages)}
	if err := i.parse(); err != nil {
		return nil, false, err
	}
	ch.issuers[i.ID], ch.touched[i.ID] = i, true
	ch.Issuers = append(ch.Issuers, Pointer{i.ID, name})
	if ch.Default == "" || (ch.Follows && key != "") {
		ch.Default = i.ID
	}
	return i, true, nil
}

// chainMost bounds a chain.
const chainMost = 10

// Save tells the chains anew and stores what changed.
func (ch *Change) Save() error {
	for _, p := range ch.Issuers {
		i := ch.issuers[p.ID]
		chain, err := ch.chainOf(i)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(chain, i.Chain, bytes.Equal) {
			i.Chain, ch.touched[p.ID] = chain, true
			if err := i.parse(); err != nil {
				return err
			}
		}
		if ch.touched[p.ID] {
			if err := ch.store.Put("issuer/"+p.ID, i); err != nil {
				return err
			}
		}
	}
	return ch.store.Put(IndexKey, ch.Index)
}

func (ch *Change) chainOf(i *Issuer) ([][]byte, error) {
	chain := [][]byte{i.Cert}
	if len(i.Manual) > 0 {
		for _, ref := range i.Manual {
			id := Find(ch.Issuers, ref, ch.Default)
			if id == "" {
				return nil, forms.Refused("manual_chain: unable to find PKI issuer for reference: %v", ref)
			}
			if id != i.ID {
				chain = append(chain, ch.issuers[id].Cert)
			}
		}
		return chain, nil
	}
	for at := i.cert; len(chain) < chainMost && !SelfSigned(at); {
		parent := ch.parentOf(at)
		if parent == nil || slices.ContainsFunc(chain, func(der []byte) bool { return bytes.Equal(der, parent.Raw) }) {
			break
		}
		chain, at = append(chain, parent.Raw), parent
	}
	return chain, nil
}

// parentOf prefers a parent that signs itself: a chain that ends is better than one that goes on to somebody else.
func (ch *Change) parentOf(cert *x509.Certificate) (best *x509.Certificate) {
	for _, p := range ch.Issuers {
		i := ch.issuers[p.ID]
		if bytes.Equal(i.cert.RawSubject, cert.RawIssuer) && cert.CheckSignatureFrom(i.cert) == nil && (best == nil ||
			SelfSigned(i.cert)) {
			best = i.cert
		}
	}
	return best
}

// RemoveIssuer takes an issuer away.
func (ch *Change) RemoveIssuer(id string) {
	delete(ch.issuers, id)
	ch.Issuers = slices.DeleteFunc(ch.Issuers, func(p Pointer) bool { return p.ID == id })
	if ch.Default == id {
		ch.Default = ""
	}
	ch.store.Delete("issuer/" + id)
}
