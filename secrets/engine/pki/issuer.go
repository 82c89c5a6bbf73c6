package pki

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/storage"
)

// indexKey holds which issuers and keys there are: few, so names are found without a list of storage.
const indexKey = "index"

type index struct {
	Default string    `json:"default,omitempty"` // issuer
	Follows bool      `json:"default_follows_latest_issuer,omitempty"`
	Issuers []pointer `json:"issuers,omitempty"`

	DefaultKey string    `json:"default_key,omitempty"`
	Keys       []pointer `json:"keys,omitempty"`
}

// pointer is an issuer or a key by its names.
type pointer struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// find returns the id that a reference means, or "".
func find(list []pointer, ref, standard string) string {
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

// issuer is an issuer as it is stored, under "issuer/<id>".
type issuer struct {
	ID     string   `json:"id"`
	Name   string   `json:"name,omitempty"`
	KeyID  string   `json:"key,omitempty"`
	Cert   []byte   `json:"certificate"`
	Chain  [][]byte `json:"chain"` // its own certificate first
	Manual []string `json:"manual_chain,omitempty"`

	NotAfter  string    `json:"leaf_not_after_behavior"`
	Usage     []string  `json:"usage"`
	Algorithm string    `json:"revocation_signature_algorithm,omitempty"`
	URLs      *urls     `json:"urls,omitempty"` // its own, in the place of the mount's
	Revoked   time.Time `json:"revoked,omitzero"`

	cert        *x509.Certificate
	chain       []*x509.Certificate
	constrained bool   // names are constrained by some certificate of the chain
	group       string // issuers of one subject and key, which share their revocations
}

var usages = []string{"read-only", "issuing-certificates", "crl-signing", "ocsp-signing"}

func parseIssuer(raw []byte) (*issuer, error) {
	i, err := parsed[issuer](raw)
	if err == nil {
		err = i.read()
	}
	return i, err
}

// read parses the certificates.
func (i *issuer) read() (err error) {
	i.chain = nil
	if len(i.Chain) == 0 || !bytes.Equal(i.Chain[0], i.Cert) {
		i.Chain = [][]byte{i.Cert}
	}
	for _, der := range i.Chain {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return errkind.Errorf(errkind.Corrupt, "the issuer %s is not what was stored", i.ID)
		}
		i.chain = append(i.chain, cert)
		i.constrained = i.constrained || constrains(cert)
	}
	i.cert = i.chain[0]
	sum := sha256.Sum256(append(append([]byte{}, i.cert.RawSubject...), i.cert.RawSubjectPublicKeyInfo...))
	i.group = hex.EncodeToString(sum[:8])
	return nil
}

var oidNameConstraints = []int{2, 5, 29, 30}

func constrains(cert *x509.Certificate) bool {
	return slices.ContainsFunc(cert.Extensions, func(ext forms.Extension) bool { return ext.Id.Equal(oidNameConstraints) })
}

func (i *issuer) may(usage string) bool { return slices.Contains(i.Usage, usage) }

// pemChain is the chain without, where asked, certificates that sign themselves.
func (i *issuer) pemChain(withoutRoots bool) []string {
	out := []string{}
	for _, cert := range i.chain {
		if !withoutRoots || !selfSigned(cert) {
			out = append(out, forms.CertPEM(cert.Raw))
		}
	}
	return out
}

func selfSigned(cert *x509.Certificate) bool {
	return bytes.Equal(cert.RawIssuer, cert.RawSubject) && cert.CheckSignatureFrom(cert) == nil
}

// index reads which issuers and keys there are. The caller gets its own copy.
func (c *call) index() (*index, error) {
	x, ok, err := c.e.indexes.Get(c, c.view, indexKey, parsed[index])
	if err != nil || !ok {
		return &index{}, err
	}
	own := *x
	own.Issuers, own.Keys = slices.Clone(x.Issuers), slices.Clone(x.Keys)
	return &own, nil
}

var errNoIssuer = errkind.New(errkind.Invalid, "no default issuer is configured: generate or import one first")

// issuerBy returns the issuer that a reference means: an id, a name, or "default".
func (c *call) issuerBy(ref string) (*issuer, error) {
	x, ok, err := c.e.indexes.Get(c, c.view, indexKey, parsed[index])
	if err != nil {
		return nil, err
	}
	if !ok {
		x = &index{}
	}
	if ref == "" {
		ref = "default"
	}
	id := find(x.Issuers, ref, x.Default)
	if id == "" {
		if ref == "default" {
			return nil, errNoIssuer
		}
		return nil, invalid("unable to find PKI issuer for reference: %v", ref)
	}
	i, ok, err := c.e.issuers.Get(c, c.view, "issuer/"+id, parseIssuer)
	if err == nil && !ok {
		err = errkind.Errorf(errkind.Corrupt, "the issuer %s is missing", id)
	}
	return i, err
}

// allIssuers returns every issuer.
func (c *call) allIssuers() ([]*issuer, error) {
	x, err := c.index()
	if err != nil {
		return nil, err
	}
	var out []*issuer
	for _, p := range x.Issuers {
		i, err := c.issuerBy(p.ID)
		if err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	return out, nil
}

// keyBy returns a key by its id.
func (c *call) keyBy(id string) (*privateKey, error) {
	k, ok, err := c.e.keys.Get(c, c.view, "key/"+id, parseKey)
	if err == nil && !ok {
		err = invalid("unable to find PKI key for reference: %v", id)
	}
	return k, err
}

// authority is an issuer with its key.
type authority struct {
	*issuer
	key *privateKey
}

// authority returns an issuer that may do what usage names.
func (c *call) authority(ref, usage string) (*authority, error) {
	i, err := c.issuerBy(ref)
	if err != nil {
		return nil, err
	}
	if i.KeyID == "" {
		return nil, invalid("the issuer %s has no private key here", i.ID)
	}
	if !i.may(usage) {
		return nil, invalid("the issuer %s does not have the usage %s", i.ID, usage)
	}
	k, err := c.keyBy(i.KeyID)
	if err != nil {
		return nil, err
	}
	return &authority{i, k}, nil
}

// checkName refuses names that no reference could mean; what is the object's kind.
func checkName(what, name string, list []pointer, self string) error {
	if name == "" {
		return nil
	}
	if name == "default" {
		return invalid("reserved keyword 'default' can not be used as %s name", what)
	}
	if strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.')
	}) || strings.Trim(name, ".-") == "" {
		return invalid("%s name contained invalid characters", what)
	}
	for _, p := range list {
		if p.ID != self && (p.Name == name || p.ID == name) {
			return invalid("%s name already in use", what)
		}
	}
	return nil
}

// change is the issuers and keys of a mount while a request changes them.
type change struct {
	*index
	c       *call
	issuers map[string]*issuer
	touched map[string]bool
	made    map[string]*privateKey // keys of this very commit
}

func (ch *change) key(id string) (*privateKey, error) {
	if k := ch.made[id]; k != nil {
		return k, nil
	}
	return ch.c.keyBy(id)
}

// change reads all issuers, so that their chains can be told anew.
func (c *call) change() (*change, error) {
	x, err := c.index()
	if err != nil {
		return nil, err
	}
	ch := &change{index: x, c: c, issuers: map[string]*issuer{}, touched: map[string]bool{},
		made: map[string]*privateKey{}}
	list, err := c.allIssuers()
	for _, i := range list {
		own := *i
		ch.issuers[i.ID] = &own
	}
	return ch, err
}

// addKey takes a key in, or finds that it is there.
func (ch *change) addKey(k *privateKey) (id string, isNew bool, err error) {
	for _, p := range ch.Keys {
		have, err := ch.key(p.ID)
		if err != nil {
			return "", false, err
		}
		if forms.SamePublic(have.signer.Public(), k.signer.Public()) {
			return p.ID, false, nil
		}
	}
	if err := checkName("key", k.Name, ch.Keys, ""); err != nil {
		return "", false, err
	}
	if k.DER, err = x509.MarshalPKCS8PrivateKey(k.signer); err != nil {
		return "", false, err
	}
	if k.Type, _, err = forms.KeyShape(k.signer.Public()); err != nil {
		return "", false, err
	}
	k.ID = uuid.NewString()
	ch.Keys, ch.made[k.ID] = append(ch.Keys, pointer{k.ID, k.Name}), k
	if ch.DefaultKey == "" {
		ch.DefaultKey = k.ID
	}
	for _, i := range ch.issuers { // whose key was not here so far
		if i.KeyID == "" && forms.SamePublic(i.cert.PublicKey, k.signer.Public()) {
			i.KeyID, ch.touched[i.ID] = k.ID, true
		}
	}
	return k.ID, true, ch.c.put("key/"+k.ID, k)
}

// keyOf returns the id of the key that belongs to a certificate, if it is here.
func (ch *change) keyOf(cert *x509.Certificate) (string, error) {
	for _, p := range ch.Keys {
		k, err := ch.key(p.ID)
		if err != nil {
			return "", err
		}
		if forms.SamePublic(k.signer.Public(), cert.PublicKey) {
			return p.ID, nil
		}
	}
	return "", nil
}

// addIssuer takes a certificate in, or finds that it is there.
func (ch *change) addIssuer(cert *x509.Certificate, name, key string) (i *issuer, isNew bool, err error) {
	for _, have := range ch.issuers {
		if bytes.Equal(have.Cert, cert.Raw) {
			if have.KeyID == "" && key != "" {
				have.KeyID, ch.touched[have.ID] = key, true
			}
			return have, false, nil
		}
	}
	if err := checkName("issuer", name, ch.Issuers, ""); err != nil {
		return nil, false, err
	}
	i = &issuer{ID: uuid.NewString(), Name: name, KeyID: key, Cert: cert.Raw, NotAfter: "err", Usage: slices.Clone(usages)}
	if err := i.read(); err != nil {
		return nil, false, err
	}
	ch.issuers[i.ID], ch.touched[i.ID] = i, true
	ch.Issuers = append(ch.Issuers, pointer{i.ID, name})
	if ch.Default == "" || (ch.Follows && key != "") {
		ch.Default = i.ID
	}
	return i, true, nil
}

// chainMost bounds a chain.
const chainMost = 10

// save tells the chains anew and stores what changed.
func (ch *change) save() error {
	for _, p := range ch.Issuers {
		i := ch.issuers[p.ID]
		chain, err := ch.chainOf(i)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(chain, i.Chain, bytes.Equal) {
			i.Chain, ch.touched[p.ID] = chain, true
			if err := i.read(); err != nil {
				return err
			}
		}
		if ch.touched[p.ID] {
			if err := ch.c.put("issuer/"+p.ID, i); err != nil {
				return err
			}
		}
	}
	return ch.c.put(indexKey, ch.index)
}

func (ch *change) chainOf(i *issuer) ([][]byte, error) {
	chain := [][]byte{i.Cert}
	if len(i.Manual) > 0 {
		for _, ref := range i.Manual {
			id := find(ch.Issuers, ref, ch.Default)
			if id == "" {
				return nil, invalid("manual_chain: unable to find PKI issuer for reference: %v", ref)
			}
			if id != i.ID {
				chain = append(chain, ch.issuers[id].Cert)
			}
		}
		return chain, nil
	}
	for at := i.cert; len(chain) < chainMost && !selfSigned(at); {
		parent := ch.parentOf(at)
		if parent == nil || slices.ContainsFunc(chain, func(der []byte) bool { return bytes.Equal(der, parent.Raw) }) {
			break
		}
		chain, at = append(chain, parent.Raw), parent
	}
	return chain, nil
}

// parentOf prefers a parent that signs itself: a chain that ends is better than one that goes on to somebody else.
func (ch *change) parentOf(cert *x509.Certificate) (best *x509.Certificate) {
	for _, p := range ch.Issuers {
		i := ch.issuers[p.ID]
		if bytes.Equal(i.cert.RawSubject, cert.RawIssuer) && cert.CheckSignatureFrom(i.cert) == nil && (best == nil ||
			selfSigned(i.cert)) {
			best = i.cert
		}
	}
	return best
}

// removeIssuer takes an issuer away.
func (ch *change) removeIssuer(id string) {
	delete(ch.issuers, id)
	ch.Issuers = slices.DeleteFunc(ch.Issuers, func(p pointer) bool { return p.ID == id })
	if ch.Default == id {
		ch.Default = ""
	}
	ch.c.ops = append(ch.c.ops, storage.Delete("issuer/"+id))
}

// privateKey is a key as it is stored: PKCS 8, under "key/<id>".
type privateKey struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	Type string `json:"type"`
	DER  []byte `json:"pkcs8"`

	signer crypto.Signer
}

func parseKey(raw []byte) (*privateKey, error) {
	k, err := parsed[privateKey](raw)
	if err != nil {
		return nil, err
	}
	any, err := x509.ParsePKCS8PrivateKey(k.DER)
	if signer, ok := any.(crypto.Signer); err == nil && ok {
		k.signer = signer
		return k, nil
	}
	return nil, errkind.Errorf(errkind.Corrupt, "the key %s is not what was stored", k.ID)
}

// newKey makes a key; RSA keys take a core for long, and take turns.
func (e *Engine) newKey(ctx context.Context, who, kind string, bits int) (crypto.Signer, error) {
	switch kind {
	case forms.KeyEC:
		return ecdsa.GenerateKey(forms.Curves[bits], rand.Reader)
	case forms.KeyEd25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	permit, err := e.cfg.Keys.Acquire(ctx, who)
	if err != nil {
		return nil, err
	}
	defer permit.Release()
	return rsa.GenerateKey(rand.Reader, bits)
}
