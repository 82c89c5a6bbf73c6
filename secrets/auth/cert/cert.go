// Package cert logs in by the client certificate of the TLS connection (contract 3.4): one that is named, one that a
// named authority signed, or one of the service mesh.
//
// That the caller holds the certificate's key is what the handshake has shown; who signed it is judged here, at each
// login and renewal, so lists of revoked certificates and the mesh's present roots count at once. A login by the mesh
// is the workload's: when that is registered nowhere any more, its tokens end (Live).
package cert

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
)

// Engine is one mount of the method.
type Engine struct {
	Meshes *Meshes

	answers responders
	quiet   atomic.Int64 // no list is to be fetched before (ns)
}

var (
	_ engine.Engine     = (*Engine)(nil)
	_ engine.Renewer    = (*Engine)(nil)
	_ engine.Workplaces = (*Engine)(nil)
	_ engine.Tender     = (*Engine)(nil)
)

const (
	certs     = "certs/"
	crls      = "crls/"
	configKey = "config"
)

var errInvalid = errkind.New(errkind.Invalid, "invalid certificate or no client certificate supplied")

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{Open: []string{"login"}} }

// Serial implements engine.Engine: changes of one record follow each other.
func (*Engine) Serial(r *secrets.Request) string { return auth.Serial(r) }

// Exists implements engine.Engine.
func (*Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	return auth.Exists[role](ctx, view, certs, r.Rest)
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	path := strings.TrimSuffix(r.Rest, "/")
	kind, name, _ := strings.Cut(path, "/")
	switch {
	case kind == "certs":
		return auth.Crud(ctx, view, r, certs, name, &role{})
	case kind == "crls":
		return e.lists(ctx, view, r, name)
	case path == configKey:
		return e.config(ctx, view, r)
	case path != "login":
		return nil, auth.ErrPath
	case r.Op != secrets.Create && r.Op != secrets.Update:
		return nil, auth.ErrUnsupported
	}
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	name = f.String("name")
	if err := f.Err(); err != nil {
		return nil, err
	}
	return e.login(ctx, view, r, name)
}

// presented is what a connection brought.
type presented struct {
	leaf    *x509.Certificate
	between []*x509.Certificate
	now     time.Time
}

// maxChain bounds what is looked at of a connection's certificates.
const maxChain = 10

func present(r *secrets.Request) (*presented, error) {
	if len(r.Certificates) == 0 {
		return nil, errkind.New(errkind.Invalid, "client certificate must be supplied")
	}
	p := &presented{now: r.Now}
	for i, der := range r.Certificates[:min(len(r.Certificates), maxChain)] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, errInvalid
		}
		if i == 0 {
			p.leaf = c
		} else {
			p.between = append(p.between, c)
		}
	}
	return p, nil
}

// login finds the first role, by name, that takes the certificate.
func (e *Engine) login(ctx context.Context, view engine.View, r *secrets.Request, name string) (*secrets.Response,
	error) {
	p, err := present(r)
	if err != nil {
		return nil, err
	}
	c, err := configOf(ctx, view)
	if err != nil {
		return nil, err
	}
	names := []string{name}
	if name == "" {
		if names, err = view.List(ctx, certs, "", 0); err != nil {
			return nil, err
		}
	}
	var refused error
	for _, name := range names {
		role, err := auth.Find[role](ctx, view, certs, name)
		if err != nil {
			return nil, err
		}
		if role == nil {
			continue
		}
		err = e.judge(ctx, view, c, role, p)
		if err == nil {
			if !auth.Within(role.Tokens.CIDRs, r.Remote) {
				return nil, auth.ErrDenied
			}
			return role.token(c, name, r.Mount, p.leaf)
		}
		if refused = err; !errkind.Is(err, errkind.Denied) && len(names) == 1 {
			return nil, err
		}
	}
	// it might have been good for the mesh, or the responder, that does not answer
	if errkind.Is(refused, errkind.Unavailable) {
		return nil, refused
	}
	return nil, errInvalid
}

// judge reports why a role does not take a certificate: an error of kind Denied, or Unavailable where that cannot be
// told.
func (e *Engine) judge(ctx context.Context, view engine.View, c *config, role *role, p *presented) error {
	if !role.matches(p.leaf) {
		return errkind.New(errkind.Denied, "the role asks for another certificate")
	}
	trusted, err := role.authorities()
	if err != nil {
		return err
	}
	between := p.between
	if role.Mesh {
		roots, signers, err := e.Meshes.trust(ctx, c, p.now)
		if err != nil {
			return err
		}
		trusted, between = append(trusted, roots...), append(slices.Clone(between), signers...)
	}
	chains := p.chains(trusted, between)
	if len(chains) == 0 {
		return errkind.New(errkind.Denied, "the certificate is signed by nobody that the role trusts")
	}
	if chains, err = unrevoked(ctx, view, chains); err != nil {
		return err
	}
	if len(chains) == 0 {
		return errkind.New(errkind.Denied, "the certificate was revoked")
	}
	if err := e.answers.vouch(ctx, c, &role.OCSP, chains, p.now); err != nil {
		return err
	}
	if role.Mesh {
		live, err := e.Meshes.live(ctx, c, workloadOf(p.leaf), p.now)
		if err != nil {
			return err
		}
		if !live {
			return errkind.New(errkind.Denied, "no instance of the workload is registered")
		}
	}
	return nil
}

// chains are the ways from the leaf to a trusted certificate. One that is trusted itself, and no authority, is its own.
func (p *presented) chains(trusted, between []*x509.Certificate) [][]*x509.Certificate {
	roots, via := x509.NewCertPool(), x509.NewCertPool()
	for _, t := range trusted {
		if t.IsCA {
			roots.AddCert(t)
		} else if t.Equal(p.leaf) && !p.now.Before(t.NotBefore) && !p.now.After(t.NotAfter) {
			return [][]*x509.Certificate{{t}}
		}
	}
	for _, b := range between {
		via.AddCert(b)
	}
	chains, err := p.leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: via, CurrentTime: p.now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return nil
	}
	return chains
}

// bound is what a login leaves in its token, for renewals.
type bound struct {
	Role string `json:"role"`
	Key  string `json:"subject_key_id"`
	By   string `json:"authority_key_id"`
}

func colons(b []byte) string {
	text := hex.EncodeToString(b)
	var out []byte
	for i := range len(text) {
		if i > 0 && i%2 == 0 {
			out = append(out, ':')
		}
		out = append(out, text[i])
	}
	return string(out)
}

func (r *role) token(c *config, name, mount string, leaf *x509.Certificate) (*secrets.Response, error) {
	a := r.Tokens.Auth()
	a.Alias = leaf.Subject.CommonName
	if r.Mesh {
		a.Alias = workloadOf(leaf)
		a.Workload = a.Alias
	}
	if a.Alias == "" {
		return nil, errkind.New(errkind.Invalid,
			"the certificate has no common name, so there is nobody that the login could be of")
	}
	a.Metadata = map[string]string{"cert_name": name, "common_name": leaf.Subject.CommonName,
		"serial_number":  leaf.SerialNumber.String(),
		"subject_key_id": colons(leaf.SubjectKeyId), "authority_key_id": colons(leaf.AuthorityKeyId)}
	for _, oid := range r.MetaExtensions {
		if text, ok := extension(leaf, oid); ok {
			a.Metadata[strings.ReplaceAll(oid, ".", "-")] = text
		}
	}
	if c.AliasMeta {
		a.AliasMeta = a.Metadata
	}
	display := r.Display
	if display == "" {
		display = name
	}
	a.DisplayName = auth.DisplayName(mount, display)
	raw, err := json.Marshal(bound{Role: name, Key: colons(leaf.SubjectKeyId), By: colons(leaf.AuthorityKeyId)})
	a.Login = raw
	return &secrets.Response{Auth: a}, err
}

// Renewable implements engine.Renewer: the role's policies must be those of the login, and the same certificate be
// there, still good for its role; a workload must still be one.
func (e *Engine) Renewable(ctx context.Context, view engine.View, r *secrets.Request,
	l engine.Login) (terms engine.Terms, err error) {
	var b bound
	if json.Unmarshal(l.Data, &b) != nil {
		return terms, errkind.New(errkind.Corrupt, "what the login left in its token is not what was stored")
	}
	role, err := auth.StillThere[role](ctx, view, certs, b.Role)
	if err == nil {
		err = role.Tokens.Unchanged(l.Policies)
	}
	if err != nil {
		return terms, err
	}
	return role.Tokens.Terms(), e.stillGood(ctx, view, r, role, &b, l.Workload)
}

// stillGood reports why who logged in by a role could not do so again.
func (e *Engine) stillGood(ctx context.Context, view engine.View, r *secrets.Request, role *role, b *bound,
	workload string) error {
	c, err := configOf(ctx, view)
	if err != nil {
		return err
	}
	if workload != "" { // its certificates are short-lived: the registration is what counts
		live, err := e.Meshes.live(ctx, c, workload, r.Now)
		if err == nil && !live {
			err = errkind.New(errkind.Invalid, "no instance of the workload is registered")
		}
		return err
	}
	if c.NoBinding {
		return nil
	}
	p, err := present(r)
	if err != nil {
		return err
	}
	if colons(p.leaf.SubjectKeyId) != b.Key || colons(p.leaf.AuthorityKeyId) != b.By {
		return errkind.New(errkind.Invalid, "client identity during renewal not matching client identity used during login")
	}
	if err := e.judge(ctx, view, c, role, p); errkind.Is(err, errkind.Denied) {
		return errInvalid
	} else if err != nil {
		return err
	}
	return nil
}

// Live implements engine.Workplaces.
func (e *Engine) Live(ctx context.Context, view engine.View, workload string, now time.Time) (bool, error) {
	c, err := configOf(ctx, view)
	if err != nil {
		return false, err
	}
	return e.Meshes.live(ctx, c, workload, now)
}
