package cert

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/meshcert"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// role says which certificates log in, and as what.
type role struct {
	Certificate    string      `json:"certificate,omitempty"` // PEM: authorities, or certificates themselves
	Mesh           bool        `json:"trust_mesh_roots,omitempty"`
	Names          []string    `json:"allowed_names,omitempty"`
	CommonNames    []string    `json:"allowed_common_names,omitempty"`
	DNS            []string    `json:"allowed_dns_sans,omitempty"`
	Emails         []string    `json:"allowed_email_sans,omitempty"`
	URIs           []string    `json:"allowed_uri_sans,omitempty"`
	Units          []string    `json:"allowed_organizational_units,omitempty"`
	Extensions     []string    `json:"required_extensions,omitempty"`
	MetaExtensions []string    `json:"allowed_metadata_extensions,omitempty"`
	Display        string      `json:"display_name,omitempty"`
	OCSP           ocspRules   `json:"ocsp,omitzero"`
	Tokens         auth.Params `json:"tokens"`
}

func (r *role) lists() map[string]*[]string {
	return map[string]*[]string{"allowed_names": &r.Names, "allowed_common_names": &r.CommonNames,
		"allowed_dns_sans": &r.DNS, "allowed_email_sans": &r.Emails,
		"allowed_uri_sans": &r.URIs, "allowed_organizational_units": &r.Units, "required_extensions": &r.Extensions,
		"allowed_metadata_extensions": &r.MetaExtensions}
}

// Read implements auth.Record.
func (r *role) Read(f *secrets.Fields) error {
	if err := r.Tokens.Read(f); err != nil {
		return err
	}
	for field, into := range r.lists() {
		if f.Has(field) {
			*into = f.Strings(field)
		}
	}
	if f.Has("certificate") {
		r.Certificate = f.String("certificate")
	}
	if f.Has("display_name") {
		r.Display = f.String("display_name")
	}
	r.Mesh = f.Bool("trust_mesh_roots", r.Mesh)
	if err := r.OCSP.params().Read(f); err != nil {
		return err
	}
	if err := f.Err(); err != nil {
		return err
	}
	for _, text := range r.Extensions {
		oid, _, ok := strings.Cut(text, ":")
		if !ok || !isOID(oid) {
			return errkind.Errorf(errkind.Invalid,
				"field \"required_extensions\": %q: must be an object identifier, a colon and a value", text)
		}
	}
	for _, oid := range r.MetaExtensions {
		if !isOID(oid) {
			return errkind.Errorf(errkind.Invalid, "field \"allowed_metadata_extensions\": %q is no object identifier", oid)
		}
	}
	if err := r.OCSP.check(); err != nil {
		return err
	}
	certs, err := r.authorities()
	switch {
	case err != nil || (len(certs) == 0 && r.Certificate != ""):
		return errkind.New(errkind.Invalid, "field \"certificate\": failed to parse certificate: must be PEM")
	case !r.Mesh && len(certs) == 0:
		return errkind.New(errkind.Invalid, "field \"certificate\": is missing")
	case r.Mesh && (len(r.URIs) == 0 || slices.ContainsFunc(r.URIs,
		func(u string) bool { return !strings.HasPrefix(u, "spiffe://") })):
		return errkind.New(errkind.Invalid, "field \"allowed_uri_sans\": with trust_mesh_roots it must name whom the "+
			"mesh's certificates are of, as spiffe://...")
	case r.Mesh && r.Certificate != "":
		return errkind.New(errkind.Invalid,
			"field \"certificate\": cannot be beside trust_mesh_roots: make a role of its own")
	case r.Mesh && strings.HasSuffix(r.Tokens.Type, "batch"):
		return errkind.New(errkind.Invalid, "field \"token_type\": cannot be batch with trust_mesh_roots: nobody could "+
			"end the tokens with their workload")
	}
	return nil
}

// Show implements auth.Record.
func (r *role) Show() map[string]any {
	out := map[string]any{"certificate": r.Certificate, "display_name": r.Display, "trust_mesh_roots": r.Mesh}
	r.OCSP.params().Show(out)
	for field, list := range r.lists() {
		out[field] = auth.List(*list)
	}
	r.Tokens.Show(out)
	return out
}

func (r *role) authorities() ([]*x509.Certificate, error) { return parse([]byte(r.Certificate)) }

// parse reads all certificates of a PEM text.
func parse(text []byte) (out []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out, nil
		}
		if block.Type == "CERTIFICATE" {
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, err
			}
			out = append(out, c)
		}
	}
}

// matches reports whether a certificate says what the role asks for.
func (r *role) matches(c *x509.Certificate) bool {
	var uris []string
	for _, u := range c.URIs {
		uris = append(uris, u.String())
	}
	for _, rule := range []struct{ want, has []string }{
		{r.Names, slices.Concat([]string{c.Subject.CommonName}, c.DNSNames, c.EmailAddresses)},
		{r.CommonNames, []string{c.Subject.CommonName}}, {r.DNS, c.DNSNames}, {r.Emails, c.EmailAddresses}, {r.URIs, uris},
		{r.Units, c.Subject.OrganizationalUnit},
	} {
		if len(rule.want) > 0 && !slices.ContainsFunc(rule.want, func(pattern string) bool {
			return slices.ContainsFunc(rule.has, func(text string) bool { return auth.Glob(pattern, text) })
		}) {
			return false
		}
	}
	for _, want := range r.Extensions {
		oid, pattern, _ := strings.Cut(want, ":")
		text, ok := extension(c, oid)
		if !ok || !auth.Glob(pattern, text) {
			return false
		}
	}
	return !r.Mesh || workloadOf(c) != ""
}

func isOID(text string) bool {
	parts := strings.Split(text, ".")
	return len(parts) > 1 && !slices.ContainsFunc(parts, func(p string) bool {
		return p == "" || strings.Trim(p, "0123456789") != ""
	})
}

// extension is the text that an extension of the certificate holds.
func extension(c *x509.Certificate, oid string) (string, bool) {
	for _, e := range c.Extensions {
		if e.Id.String() == oid {
			var text string
			if rest, err := asn1.Unmarshal(e.Value, &text); err != nil || len(rest) > 0 {
				text = string(e.Value)
			}
			return text, true
		}
	}
	return "", false
}

// workloadOf is the one name of a mesh certificate. SPIFFE allows no second one.
func workloadOf(c *x509.Certificate) string {
	u, err := meshcert.URI(c)
	if err != nil || u.Scheme != "spiffe" || u.Host == "" {
		return ""
	}
	return u.String()
}

// config is what holds for all roles of the mount.
type config struct {
	NoBinding bool   `json:"disable_binding,omitempty"`
	AliasMeta bool   `json:"enable_identity_alias_metadata,omitempty"`
	MeshAddr  string `json:"mesh_address,omitempty"` // of a server with Consul's API
	MeshCA    string `json:"mesh_ca_pem,omitempty"`
	MeshToken string `json:"mesh_token,omitempty"`
	OCSPCache int    `json:"ocsp_cache_size,omitempty"` // answers that are kept; 0 is 100
}

func configOf(ctx context.Context, view engine.View) (*config, error) {
	c, err := auth.Find[config](ctx, view, "", configKey)
	if c == nil && err == nil {
		c = &config{}
	}
	return c, err
}

// Read takes what was given; the address of the mesh with its authority and token is one thing.
func (c *config) Read(f *secrets.Fields) error {
	c.NoBinding, c.AliasMeta = f.Bool("disable_binding", c.NoBinding),
		f.Bool("enable_identity_alias_metadata", c.AliasMeta)
	if c.OCSPCache = f.Int("ocsp_cache_size", c.OCSPCache); c.OCSPCache < 0 || c.OCSPCache > 100_000 {
		return errkind.New(errkind.Invalid, "field \"ocsp_cache_size\": must be 0 to 100000")
	}
	if f.Has("mesh_address") {
		c.MeshAddr, c.MeshCA, c.MeshToken = strings.TrimSuffix(f.String("mesh_address"), "/"), f.String("mesh_ca_pem"),
			f.String("mesh_token")
	} else if f.Has("mesh_ca_pem") || f.Has("mesh_token") {
		return errkind.New(errkind.Invalid, "mesh_ca_pem, mesh_token: are given with mesh_address")
	}
	if err := f.Err(); err != nil {
		return err
	}
	return c.checkMesh()
}

func (e *Engine) config(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	c, err := configOf(ctx, view)
	if err != nil {
		return nil, err
	}
	switch r.Op {
	case secrets.Read:
		return auth.Data(map[string]any{"disable_binding": c.NoBinding, "enable_identity_alias_metadata": c.AliasMeta,
			"ocsp_cache_size": cmp.Or(c.OCSPCache, ocspKept),
			"mesh_address":    c.MeshAddr, "mesh_ca_pem": c.MeshCA})
	case secrets.Create, secrets.Update:
		f, err := r.Fields()
		if err != nil {
			return nil, err
		}
		if err := c.Read(f); err != nil {
			return nil, err
		}
		if c.MeshAddr != "" {
			if _, _, err := e.Meshes.trust(ctx, c, r.Now); err != nil {
				return nil, errkind.Errorf(errkind.Invalid, "field \"mesh_address\": %w", err)
			}
		}
		return auth.Keep(configKey, c)
	case secrets.Delete:
		return &secrets.Response{Ops: []secrets.Op{storage.Delete(configKey)}}, nil
	}
	return nil, auth.ErrUnsupported
}
