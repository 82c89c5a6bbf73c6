package pki

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine/pki/authority"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/record"
)

// index reads which issuers and keys there are. The caller gets its own copy.
func (c *call) index() (*authority.Index, error) {
	x, ok, err := c.e.indexes.Get(c, c.view, authority.IndexKey, record.ReadJSON[authority.Index])
	if err != nil || !ok {
		return &authority.Index{}, err
	}
	own := *x
	own.Issuers, own.Keys = slices.Clone(x.Issuers), slices.Clone(x.Keys)
	return &own, nil
}

var errNoIssuer = errkind.New(errkind.Invalid, "no default issuer is configured: generate or import one first")

// issuerBy returns the issuer that a reference means: an id, a name, or "default".
func (c *call) issuerBy(ref string) (*authority.Issuer, error) {
	x, ok, err := c.e.indexes.Get(c, c.view, authority.IndexKey, record.ReadJSON[authority.Index])
	if err != nil {
		return nil, err
	}
	if !ok {
		x = &authority.Index{}
	}
	if ref == "" {
		ref = "default"
	}
	id := authority.Find(x.Issuers, ref, x.Default)
	if id == "" {
		if ref == "default" {
			return nil, errNoIssuer
		}
		return nil, invalid("unable to find PKI issuer for reference: %v", ref)
	}
	i, ok, err := c.e.issuers.Get(c, c.view, "issuer/"+id, authority.ParseIssuer)
	if err == nil && !ok {
		err = errkind.Errorf(errkind.Corrupt, "the issuer %s is missing", id)
	}
	return i, err
}

// allIssuers returns every issuer.
func (c *call) allIssuers() ([]*authority.Issuer, error) {
	x, err := c.index()
	if err != nil {
		return nil, err
	}
	var out []*authority.Issuer
	for _, p := range x.Issuers {
		i, err := c.issuerBy(p.ID)
		if err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	return out, nil
}

// Key returns a key by its id.
func (c *call) Key(id string) (*authority.Key, error) {
	k, ok, err := c.e.keys.Get(c, c.view, "key/"+id, authority.ParseKey)
	if err == nil && !ok {
		err = invalid("unable to find PKI key for reference: %v", id)
	}
	return k, err
}

// authority returns an issuer that may do what usage names.
func (c *call) authority(ref, usage string) (*authority.CA, error) {
	i, err := c.issuerBy(ref)
	if err != nil {
		return nil, err
	}
	if i.KeyID == "" {
		return nil, invalid("the issuer %s has no private key here", i.ID)
	}
	if !i.May(usage) {
		return nil, invalid("the issuer %s does not have the usage %s", i.ID, usage)
	}
	k, err := c.Key(i.KeyID)
	if err != nil {
		return nil, err
	}
	return &authority.CA{Issuer: i, Key: k}, nil
}

// change reads all issuers, so that their chains can be told anew.
func (c *call) change() (*authority.Change, error) {
	x, err := c.index()
	if err != nil {
		return nil, err
	}
	list, err := c.allIssuers()
	return authority.NewChange(x, list, c), err
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
