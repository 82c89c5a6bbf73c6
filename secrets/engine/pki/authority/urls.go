package authority

import (
	"crypto/x509"
	"net/url"
	"strings"

	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/record"
)

// URLs are what certificates say of where their issuer is to be asked.
type URLs struct {
	Issuing []string `json:"issuing_certificates"`
	CRLs    []string `json:"crl_distribution_points"`
	OCSP    []string `json:"ocsp_servers"`
	Expand  bool     `json:"enable_templating"`
}

// Params are the URLs by the API's names.
func (u *URLs) Params() record.Params {
	return record.Params{{Name: "issuing_certificates", At: &u.Issuing}, {Name: "crl_distribution_points", At: &u.CRLs},
		{Name: "ocsp_servers", At: &u.OCSP}, {Name: "enable_templating", At: &u.Expand}}
}

// Check refuses what is no URL.
func (u *URLs) Check() error {
	for name, list := range map[string][]string{"issuing_certificates": u.Issuing, "crl_distribution_points": u.CRLs,
		"ocsp_servers": u.OCSP} {
		for _, text := range list {
			if at, err := url.Parse(text); !u.Expand && (err != nil || at.Host == "" ||
				(at.Scheme != "http" && at.Scheme != "https" && at.Scheme != "ldap")) {
				return forms.Refused("invalid URL found in %s: %s", name, text)
			}
		}
	}
	return nil
}

// Into writes into a template where its issuer is to be asked: id is the issuer's, "" for a root that is being made.
// cluster is asked where the URLs are templates.
func (u *URLs) Into(t *x509.Certificate, id string, cluster func() (*Cluster, error)) error {
	t.IssuingCertificateURL, t.CRLDistributionPoints, t.OCSPServer = u.Issuing, u.CRLs, u.OCSP
	if !u.Expand {
		return nil
	}
	at, err := cluster()
	if err != nil {
		return err
	}
	expand := strings.NewReplacer("{{issuer_id}}", id, "{{cluster_path}}", at.Path, "{{cluster_aia_path}}", at.AIA)
	for _, list := range []*[]string{&t.IssuingCertificateURL, &t.CRLDistributionPoints, &t.OCSPServer} {
		own := make([]string, len(*list))
		for n, text := range *list {
			own[n] = expand.Replace(text)
			if p, err := url.Parse(own[n]); err != nil || p.Host == "" || (id == "" && strings.Contains(text, "{{issuer_id}}")) {
				return forms.Refused("the URL template %q does not give a URL here: %q (is config/cluster set?)", text, own[n])
			}
		}
		*list = own
	}
	return nil
}

// Cluster is what templates of URLs name.
type Cluster struct {
	Path string `json:"path"`
	AIA  string `json:"aia_path"`
}

// Params are the paths by the API's names.
func (cl *Cluster) Params() record.Params {
	return record.Params{{Name: "path", At: &cl.Path}, {Name: "aia_path", At: &cl.AIA}}
}
