package pki

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/acme"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/pki/role"
)

// acmeMount is the mount as ACME sees it.
type acmeMount struct{ *call }

// acme answers what belongs to a directory; is is false where the request does not.
func (c *call) acme() (resp *secrets.Response, is bool, err error) {
	if acme.IsTidy(c.r) {
		resp, err = acme.Tidy(c, c.view, c.r.Now)
		return resp, true, err
	}
	if _, _, is = acme.Split(c.r.Rest); !is {
		return nil, false, nil
	}
	resp, err = c.e.acme.Handle(c, c.view, c.r, acmeMount{c})
	if err == nil && (resp.Raw == nil || resp.Raw.Status < 400) {
		resp.Ops = append(resp.Ops, c.ops...)
	}
	return resp, true, err
}

// Step implements engine.Stepper: ACME's challenges.
func (*Engine) Step(ctx context.Context, then any) (*secrets.Response, error) {
	return acme.Step(ctx, then)
}

func (m acmeMount) Base() (string, error) {
	cl, err := m.cluster()
	if err != nil {
		return "", err
	}
	return cl.Path, nil
}

// Sign implements acme.Authority. The names were proven; whether they may be is the role's to say.
func (m acmeMount) Sign(at acme.Directory, s *acme.Settings, der []byte, ttl time.Duration) (string, error) {
	var own *role.Role
	if name := s.Role(at); name != "" {
		var err error
		if own, err = m.role(name); err != nil {
			return "", err
		}
	}
	r, err := own.Proven(s.RoleEKU, s.MaxTTL)
	if err != nil {
		return "", err
	}
	asked := map[string]any{"csr": forms.EncodePEM("CERTIFICATE REQUEST", der)}
	if ttl > 0 {
		asked["ttl"] = ttl.String()
	}
	f := secrets.FieldsOf(asked)
	inner := &call{Context: m.Context, e: m.e, view: m.view, r: m.r, f: &f, ref: at.Issuer}
	resp, err := issuing{inner}.signBy(r)
	if err != nil {
		return "", err
	}
	var made struct {
		Certificate string   `json:"certificate"`
		Chain       []string `json:"ca_chain"`
	}
	m.ops = append(m.ops, inner.ops...)
	err = json.Unmarshal(resp.Data, &made)
	return strings.Join(append([]string{made.Certificate}, made.Chain...), "\n") + "\n", err
}

// Revoke implements acme.Authority.
func (m acmeMount) Revoke(der []byte) (already bool, err error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return false, invalid("the certificate cannot be read")
	}
	if rv, err := m.revocation(forms.Hyphens(cert.SerialNumber)); err != nil || rv != nil {
		return rv != nil, err
	}
	_, err = certificates(m).revokeCert(cert)
	return false, err
}

func (m acmeMount) readSettings() (*secrets.Response, error) { return acme.ReadSettings(m, m.view) }

func (m acmeMount) writeSettings() (*secrets.Response, error) {
	base, err := m.Base()
	if err != nil {
		return nil, err
	}
	return acme.WriteSettings(m, m.view, m.f, base)
}

func (m acmeMount) listEAB() (*secrets.Response, error)   { return acme.ListEAB(m, m.view) }
func (m acmeMount) deleteEAB() (*secrets.Response, error) { return acme.DeleteEAB(m.args[0]) }
