package pki

import (
	"crypto"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/authority"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

func (c *call) mountURLs() (*authority.URLs, error) {
	u, ok, err := c.e.urls.Get(c, c.view, "config/urls", record.ReadJSON[authority.URLs])
	if err != nil || !ok {
		return &authority.URLs{}, err
	}
	return u, nil
}

func (c *call) cluster() (*authority.Cluster, error) {
	raw, ok, err := c.view.Get(c, "config/cluster")
	if err != nil || !ok {
		return &authority.Cluster{}, err
	}
	return record.ReadJSON[authority.Cluster](raw)
}

// addURLs writes into a template where its issuer is to be asked; a root that is being made has no issuer yet.
func (c *call) addURLs(i *authority.Issuer, t *x509.Certificate) error {
	u, err := c.mountURLs()
	if err != nil {
		return err
	}
	id := ""
	if i != nil {
		id = i.ID
		if i.URLs != nil {
			u = i.URLs
		}
	}
	return u.Into(t, id, c.cluster)
}

// certify makes the certificate of a template, with the issuer's URLs.
func (c *call) certify(a *authority.CA, t *x509.Certificate, public crypto.PublicKey, bits int,
	pss bool) (*x509.Certificate, error) {
	if err := c.addURLs(a.Issuer, t); err != nil {
		return nil, err
	}
	return a.Certify(t, public, bits, pss, c.r.Now)
}

// settings answers what is asked of the mount's settings.
type settings struct{ *call }

func (c settings) readURLs() (*secrets.Response, error) {
	u, err := c.mountURLs()
	if err != nil {
		return nil, err
	}
	return show(u.Params())
}

func (c settings) writeURLs() (*secrets.Response, error) {
	old, err := c.mountURLs()
	if err != nil {
		return nil, err
	}
	u := *old
	if err := u.Params().Read(c.f); err != nil {
		return nil, err
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	if err := c.Put("config/urls", u); err != nil {
		return nil, err
	}
	return show(u.Params())
}

func (c settings) readCluster() (*secrets.Response, error) {
	cl, err := c.cluster()
	if err != nil {
		return nil, err
	}
	return show(cl.Params())
}

func (c settings) writeCluster() (*secrets.Response, error) {
	cl, err := c.cluster()
	if err != nil {
		return nil, err
	}
	if err := cl.Params().Read(c.f); err != nil {
		return nil, err
	}
	for _, text := range []string{cl.Path, cl.AIA} {
		if at, err := url.Parse(text); text != "" && (err != nil || at.Host == "") {
			return nil, invalid("invalid, non-URL path given to cluster: %s", text)
		}
	}
	if err := c.Put("config/cluster", cl); err != nil {
		return nil, err
	}
	return show(cl.Params())
}

// issuers answers what is asked of issuers.
type issuers struct{ *call }

func (c issuers) readDefault() (*secrets.Response, error) {
	x, err := c.index()
	if err != nil {
		return nil, err
	}
	return answer(map[string]any{"default": x.Default, "default_follows_latest_issuer": x.Follows})
}

func (c issuers) writeDefault() (*secrets.Response, error) {
	ref := c.f.String("default")
	if ref == "" && !c.f.Has("default_follows_latest_issuer") {
		return nil, invalid("invalid issuer specification; must be non-empty and can't be 'default'")
	}
	return c.setDefault(ref, c.f)
}

func (c issuers) setDefault(ref string, f *secrets.Fields) (*secrets.Response, error) {
	x, err := c.index()
	if err != nil {
		return nil, err
	}
	if f != nil {
		x.Follows = f.Bool("default_follows_latest_issuer", x.Follows)
		if err := f.Err(); err != nil {
			return nil, err
		}
	}
	if ref != "" {
		if x.Default = authority.Find(x.Issuers, ref, ""); x.Default == "" {
			return nil, invalid("unable to find PKI issuer for reference: %v", ref)
		}
		i, err := c.issuerBy(x.Default)
		if err != nil {
			return nil, err
		}
		if i.KeyID == "" {
			c.warn = append(c.warn, "This selected default issuer has no key associated with it. Some operations like "+
				"issuing certificates and signing CRLs will be unavailable.")
		}
	}
	if err := c.Put(authority.IndexKey, x); err != nil {
		return nil, err
	}
	return answer(map[string]any{"default": x.Default, "default_follows_latest_issuer": x.Follows})
}

// keyring answers what is asked of the authorities' keys.
type keyring struct{ *call }

func (c keyring) readDefault() (*secrets.Response, error) {
	x, err := c.index()
	if err != nil {
		return nil, err
	}
	return answer(map[string]any{"default": x.DefaultKey})
}

func (c keyring) writeDefault() (*secrets.Response, error) {
	x, err := c.index()
	if err != nil {
		return nil, err
	}
	ref := c.f.String("default")
	if x.DefaultKey = authority.Find(x.Keys, ref, ""); x.DefaultKey == "" {
		return nil, invalid("unable to find PKI key for reference: %v", ref)
	}
	if err := c.Put(authority.IndexKey, x); err != nil {
		return nil, err
	}
	return answer(map[string]any{"default": x.DefaultKey})
}

func (c issuers) list() (*secrets.Response, error) {
	list, err := c.allIssuers()
	if err != nil {
		return nil, err
	}
	x, err := c.index()
	if err != nil {
		return nil, err
	}
	ids, info := []string{}, map[string]any{}
	for _, i := range list {
		ids = append(ids, i.ID)
		info[i.ID] = map[string]any{"issuer_name": i.Name, "is_default": i.ID == x.Default,
			"serial_number": forms.Colons(i.X509().SerialNumber), "key_id": i.KeyID}
	}
	return keysWithInfo(ids, info)
}

func keysWithInfo(ids []string, info map[string]any) (*secrets.Response, error) {
	if len(ids) == 0 {
		return nil, errNotFound
	}
	slices.Sort(ids)
	return answer(map[string]any{"keys": ids, "key_info": info})
}

func (c issuers) read() (*secrets.Response, error) {
	i, err := c.issuerBy(c.args[0])
	if err != nil {
		return nil, err
	}
	return answer(i.Show())
}

func (c issuers) write() (*secrets.Response, error) {
	ch, err := c.change()
	if err != nil {
		return nil, err
	}
	id := authority.Find(ch.Issuers, c.args[0], ch.Default)
	if id == "" {
		return nil, invalid("unable to find PKI issuer for reference: %v", c.args[0])
	}
	i := ch.Touch(id)
	params := record.Params{{Name: "issuer_name", At: &i.Name}, {Name: "manual_chain", At: &i.Manual},
		{Name: "leaf_not_after_behavior", At: &i.NotAfter},
		{Name: "usage", At: &i.Usage}, {Name: "revocation_signature_algorithm", At: &i.Algorithm}}
	if err := params.Read(c.f); err != nil {
		return nil, err
	}
	if err := authority.CheckName("issuer", i.Name, ch.Issuers, id); err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"err", "truncate", "permit"}, i.NotAfter) {
		return nil, invalid("unknown value for field \"leaf_not_after_behavior\": possible values are \"err\", \"permit\"," +
			" or \"truncate\"")
	}
	for _, u := range i.Usage {
		if !slices.Contains(authority.Usages, u) {
			return nil, invalid("field \"usage\": %q is none of %s", u, strings.Join(authority.Usages, ", "))
		}
	}
	if err := i.ReadURLs(c.f); err != nil {
		return nil, err
	}
	for n := range ch.Issuers {
		if ch.Issuers[n].ID == id {
			ch.Issuers[n].Name = i.Name
		}
	}
	if err := ch.Save(); err != nil {
		return nil, err
	}
	return answer(i.Show())
}

func (c issuers) delete() (*secrets.Response, error) {
	ch, err := c.change()
	if err != nil {
		return nil, err
	}
	id := authority.Find(ch.Issuers, c.args[0], ch.Default)
	if id == "" {
		return nil, invalid("unable to find PKI issuer for reference: %v", c.args[0])
	}
	if id == ch.Default {
		c.warn = append(c.warn, "Deleted issuer "+id+" (via issuer_ref "+c.args[0]+"); this was configured as the default "+
			"issuer. Operations without an explicit issuer will not work until a new default is configured.")
	}
	for _, p := range ch.Issuers {
		i := ch.Issuer(p.ID)
		if i.ID != id && slices.ContainsFunc(i.Manual, func(ref string) bool {
			return authority.Find(ch.Issuers, ref, ch.Default) == id
		}) {
			return nil, invalid("the issuer %s is in the manual_chain of %s", id, i.ID)
		}
	}
	ch.RemoveIssuer(id)
	return &secrets.Response{}, ch.Save()
}

func (c keyring) list() (*secrets.Response, error) {
	x, err := c.index()
	if err != nil {
		return nil, err
	}
	ids, info := []string{}, map[string]any{}
	for _, p := range x.Keys {
		ids = append(ids, p.ID)
		info[p.ID] = map[string]any{"key_name": p.Name, "is_default": p.ID == x.DefaultKey}
	}
	return keysWithInfo(ids, info)
}

func (c keyring) named() (*authority.Index, *authority.Key, error) {
	x, err := c.index()
	if err != nil {
		return nil, nil, err
	}
	id := authority.Find(x.Keys, c.args[0], x.DefaultKey)
	if id == "" {
		return nil, nil, invalid("unable to find PKI key for reference: %v", c.args[0])
	}
	k, err := c.Key(id)
	return x, k, err
}

func (c keyring) read() (*secrets.Response, error) {
	_, k, err := c.named()
	if err != nil {
		return nil, err
	}
	id, err := forms.KeyID(k.Signer.Public())
	if err != nil {
		return nil, err
	}
	return answer(map[string]any{"key_id": k.ID, "key_name": k.Name, "key_type": k.Type,
		"subject_key_id": forms.HexColons(id)})
}

func (c keyring) write() (*secrets.Response, error) {
	x, k, err := c.named()
	if err != nil {
		return nil, err
	}
	own := *k
	if c.f.Has("key_name") {
		own.Name = c.f.String("key_name")
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if err := authority.CheckName("key", own.Name, x.Keys, own.ID); err != nil {
		return nil, err
	}
	for n := range x.Keys {
		if x.Keys[n].ID == own.ID {
			x.Keys[n].Name = own.Name
		}
	}
	if err := c.Put("key/"+own.ID, own); err != nil {
		return nil, err
	}
	if err := c.Put(authority.IndexKey, x); err != nil {
		return nil, err
	}
	return answer(map[string]any{"key_id": own.ID, "key_name": own.Name, "key_type": own.Type})
}

func (c keyring) delete() (*secrets.Response, error) {
	x, k, err := c.named()
	if err != nil {
		return nil, err
	}
	list, err := c.allIssuers()
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		if i.KeyID == k.ID {
			return nil, invalid("unable to delete key: issuer %s depends on it", i.ID)
		}
	}
	x.Keys = slices.DeleteFunc(x.Keys, func(p authority.Pointer) bool { return p.ID == k.ID })
	if x.DefaultKey == k.ID {
		x.DefaultKey = ""
		c.warn = append(c.warn, "Deleted key "+k.ID+" was the default key")
	}
	c.ops = append(c.ops, storage.Delete("key/"+k.ID))
	return &secrets.Response{}, c.Put(authority.IndexKey, x)
}
