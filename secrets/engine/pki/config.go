package pki

import (
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// urls are what certificates say of where their issuer is to be asked.
type urls struct {
	Issuing []string `json:"issuing_certificates"`
	CRLs    []string `json:"crl_distribution_points"`
	OCSP    []string `json:"ocsp_servers"`
	Expand  bool     `json:"enable_templating"`
}

func (u *urls) params() record.Params {
	return record.Params{{Name: "issuing_certificates", At: &u.Issuing}, {Name: "crl_distribution_points", At: &u.CRLs},
		{Name: "ocsp_servers", At: &u.OCSP}, {Name: "enable_templating", At: &u.Expand}}
}

func (u *urls) check() error {
	for name, list := range map[string][]string{"issuing_certificates": u.Issuing, "crl_distribution_points": u.CRLs,
		"ocsp_servers": u.OCSP} {
		for _, text := range list {
			if at, err := url.Parse(text); !u.Expand && (err != nil || at.Host == "" ||
				(at.Scheme != "http" && at.Scheme != "https" && at.Scheme != "ldap")) {
				return invalid("invalid URL found in %s: %s", name, text)
			}
		}
	}
	return nil
}

func (c *call) mountURLs() (*urls, error) {
	u, ok, err := c.e.urls.Get(c, c.view, "config/urls", parsed[urls])
	if err != nil || !ok {
		return &urls{}, err
	}
	return u, nil
}

// cluster is what templates of URLs name.
type cluster struct {
	Path string `json:"path"`
	AIA  string `json:"aia_path"`
}

func (c *call) cluster() (*cluster, error) {
	raw, ok, err := c.view.Get(c, "config/cluster")
	if err != nil || !ok {
		return &cluster{}, err
	}
	return parsed[cluster](raw)
}

// addURLs writes into a template where its issuer is to be asked; a root that is being made has no issuer yet.
func (c *call) addURLs(i *issuer, t *x509.Certificate) error {
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
	t.IssuingCertificateURL, t.CRLDistributionPoints, t.OCSPServer = u.Issuing, u.CRLs, u.OCSP
	if !u.Expand {
		return nil
	}
	at, err := c.cluster()
	if err != nil {
		return err
	}
	expand := strings.NewReplacer("{{issuer_id}}", id, "{{cluster_path}}", at.Path, "{{cluster_aia_path}}", at.AIA)
	for _, list := range []*[]string{&t.IssuingCertificateURL, &t.CRLDistributionPoints, &t.OCSPServer} {
		own := make([]string, len(*list))
		for n, text := range *list {
			own[n] = expand.Replace(text)
			if p, err := url.Parse(own[n]); err != nil || p.Host == "" || (id == "" && strings.Contains(text, "{{issuer_id}}")) {
				return invalid("the URL template %q does not give a URL here: %q (is config/cluster set?)", text, own[n])
			}
		}
		*list = own
	}
	return nil
}

// settings answers what is asked of the mount's settings.
type settings struct{ *call }

func (c settings) readURLs() (*secrets.Response, error) {
	u, err := c.mountURLs()
	if err != nil {
		return nil, err
	}
	return show(u.params())
}

func (c settings) writeURLs() (*secrets.Response, error) {
	old, err := c.mountURLs()
	if err != nil {
		return nil, err
	}
	u := *old
	if err := u.params().Read(c.f); err != nil {
		return nil, err
	}
	if err := u.check(); err != nil {
		return nil, err
	}
	if err := c.put("config/urls", u); err != nil {
		return nil, err
	}
	return show(u.params())
}

func (cl *cluster) params() record.Params {
	return record.Params{{Name: "path", At: &cl.Path}, {Name: "aia_path", At: &cl.AIA}}
}

func (c settings) readCluster() (*secrets.Response, error) {
	cl, err := c.cluster()
	if err != nil {
		return nil, err
	}
	return show(cl.params())
}

func (c settings) writeCluster() (*secrets.Response, error) {
	cl, err := c.cluster()
	if err != nil {
		return nil, err
	}
	if err := cl.params().Read(c.f); err != nil {
		return nil, err
	}
	for _, text := range []string{cl.Path, cl.AIA} {
		if at, err := url.Parse(text); text != "" && (err != nil || at.Host == "") {
			return nil, invalid("invalid, non-URL path given to cluster: %s", text)
		}
	}
	if err := c.put("config/cluster", cl); err != nil {
		return nil, err
	}
	return show(cl.params())
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
		if x.Default = find(x.Issuers, ref, ""); x.Default == "" {
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
	if err := c.put(indexKey, x); err != nil {
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
	if x.DefaultKey = find(x.Keys, ref, ""); x.DefaultKey == "" {
		return nil, invalid("unable to find PKI key for reference: %v", ref)
	}
	if err := c.put(indexKey, x); err != nil {
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
			"serial_number": forms.Colons(i.cert.SerialNumber), "key_id": i.KeyID}
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

func (i *issuer) show() map[string]any {
	out := map[string]any{"issuer_id": i.ID, "issuer_name": i.Name, "key_id": i.KeyID,
		"certificate":  forms.CertPEM(i.Cert),
		"manual_chain": i.Manual, "ca_chain": i.pemChain(false),
		"leaf_not_after_behavior": i.NotAfter, "usage": strings.Join(i.Usage, ","),
		"revocation_signature_algorithm": i.Algorithm, "revoked": !i.Revoked.IsZero(),
		"issuing_certificates": []string{}, "crl_distribution_points": []string{}, "ocsp_servers": []string{},
		"enable_aia_url_templating": false}
	if i.URLs != nil {
		i.URLs.params().Show(out)
		out["enable_aia_url_templating"] = i.URLs.Expand
		delete(out, "enable_templating")
	}
	if !i.Revoked.IsZero() {
		out["revocation_time"], out["revocation_time_rfc3339"] = i.Revoked.Unix(), i.Revoked.Format(time.RFC3339Nano)
	}
	return out
}

func (c issuers) read() (*secrets.Response, error) {
	i, err := c.issuerBy(c.args[0])
	if err != nil {
		return nil, err
	}
	return answer(i.show())
}

func (c issuers) write() (*secrets.Response, error) {
	ch, err := c.change()
	if err != nil {
		return nil, err
	}
	id := find(ch.Issuers, c.args[0], ch.Default)
	if id == "" {
		return nil, invalid("unable to find PKI issuer for reference: %v", c.args[0])
	}
	i := ch.issuers[id]
	params := record.Params{{Name: "issuer_name", At: &i.Name}, {Name: "manual_chain", At: &i.Manual},
		{Name: "leaf_not_after_behavior", At: &i.NotAfter},
		{Name: "usage", At: &i.Usage}, {Name: "revocation_signature_algorithm", At: &i.Algorithm}}
	if err := params.Read(c.f); err != nil {
		return nil, err
	}
	if err := checkName("issuer", i.Name, ch.Issuers, id); err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"err", "truncate", "permit"}, i.NotAfter) {
		return nil, invalid("unknown value for field \"leaf_not_after_behavior\": possible values are \"err\", \"permit\"," +
			" or \"truncate\"")
	}
	for _, u := range i.Usage {
		if !slices.Contains(usages, u) {
			return nil, invalid("field \"usage\": %q is none of %s", u, strings.Join(usages, ", "))
		}
	}
	if err := i.readURLs(c.f); err != nil {
		return nil, err
	}
	for n := range ch.Issuers {
		if ch.Issuers[n].ID == id {
			ch.Issuers[n].Name = i.Name
		}
	}
	ch.touched[id] = true
	if err := ch.save(); err != nil {
		return nil, err
	}
	return answer(i.show())
}

// readURLs takes the issuer's own URLs; three empty lists are the mount's again.
func (i *issuer) readURLs(f *secrets.Fields) error {
	if !slices.ContainsFunc([]string{"issuing_certificates", "crl_distribution_points", "ocsp_servers",
		"enable_aia_url_templating"}, f.Has) {
		return nil
	}
	u := &urls{}
	if i.URLs != nil {
		*u = *i.URLs
	}
	if err := u.params()[:3].Read(f); err != nil {
		return err
	}
	u.Expand = f.Bool("enable_aia_url_templating", u.Expand)
	if i.URLs = u; len(u.Issuing)+len(u.CRLs)+len(u.OCSP) == 0 {
		i.URLs = nil
	}
	return u.check()
}

func (c issuers) delete() (*secrets.Response, error) {
	ch, err := c.change()
	if err != nil {
		return nil, err
	}
	id := find(ch.Issuers, c.args[0], ch.Default)
	if id == "" {
		return nil, invalid("unable to find PKI issuer for reference: %v", c.args[0])
	}
	if id == ch.Default {
		c.warn = append(c.warn, "Deleted issuer "+id+" (via issuer_ref "+c.args[0]+"); this was configured as the default "+
			"issuer. Operations without an explicit issuer will not work until a new default is configured.")
	}
	for _, i := range ch.issuers {
		if i.ID != id && slices.ContainsFunc(i.Manual, func(ref string) bool {
			return find(ch.Issuers, ref, ch.Default) == id
		}) {
			return nil, invalid("the issuer %s is in the manual_chain of %s", id, i.ID)
		}
	}
	ch.removeIssuer(id)
	return &secrets.Response{}, ch.save()
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

func (c keyring) named() (*index, *privateKey, error) {
	x, err := c.index()
	if err != nil {
		return nil, nil, err
	}
	id := find(x.Keys, c.args[0], x.DefaultKey)
	if id == "" {
		return nil, nil, invalid("unable to find PKI key for reference: %v", c.args[0])
	}
	k, err := c.keyBy(id)
	return x, k, err
}

func (c keyring) read() (*secrets.Response, error) {
	_, k, err := c.named()
	if err != nil {
		return nil, err
	}
	id, err := forms.KeyID(k.signer.Public())
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
	if err := checkName("key", own.Name, x.Keys, own.ID); err != nil {
		return nil, err
	}
	for n := range x.Keys {
		if x.Keys[n].ID == own.ID {
			x.Keys[n].Name = own.Name
		}
	}
	if err := c.put("key/"+own.ID, own); err != nil {
		return nil, err
	}
	if err := c.put(indexKey, x); err != nil {
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
	x.Keys = slices.DeleteFunc(x.Keys, func(p pointer) bool { return p.ID == k.ID })
	if x.DefaultKey == k.ID {
		x.DefaultKey = ""
		c.warn = append(c.warn, "Deleted key "+k.ID+" was the default key")
	}
	c.ops = append(c.ops, storage.Delete("key/"+k.ID))
	return &secrets.Response{}, c.put(indexKey, x)
}
