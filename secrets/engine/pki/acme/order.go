package acme

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/secrets"
)

// Identifier is what a certificate is to name: a host or an address.
type Identifier struct {
	Type  string `json:"type"` // dns or ip
	Value string `json:"value"`
}

// order is a wish for a certificate, under "acme/orders/<account>/<id>".
type order struct {
	ID       string       `json:"id"`
	Status   string       `json:"status"`
	Names    []Identifier `json:"names"`
	Authz    []string     `json:"authz"` // the ids of its authorizations, in the order of Names
	Expires  time.Time    `json:"expires"`
	NotAfter time.Time    `json:"not_after,omitzero"`
	Chain    string       `json:"chain,omitempty"`
}

const (
	// orderLife is how long a client has to prove its names and to fetch its certificate.
	orderLife  = 24 * time.Hour
	namesMost  = 100
	ordersMost = 1000 // of an account, that have not expired
)

func (c *call) orderKey(id string) string { return "acme/orders/" + c.acct.ID + "/" + id }
func (c *call) authzKey(id string) string { return "acme/authz/" + c.acct.ID + "/" + id }

// check brings an identifier into its one form.
func (i *Identifier) check() error {
	refused := problem(http.StatusBadRequest, "rejectedIdentifier", "%.300q is no name of a host and no address", i.Value)
	switch i.Type {
	case "dns":
		i.Value = strings.ToLower(i.Value)
		name := strings.TrimPrefix(i.Value, "*.")
		if len(name) > 253 || strings.HasSuffix(name, ".") {
			return refused
		}
		if _, err := netip.ParseAddr(name); err == nil {
			return refused
		}
		for label := range strings.SplitSeq(name, ".") {
			if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
				strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
				return refused
			}
		}
		return nil
	case "ip":
		at, err := netip.ParseAddr(i.Value)
		if err != nil || at.Zone() != "" {
			return refused
		}
		i.Value = at.String()
		return nil
	}
	return problem(http.StatusBadRequest, "unsupportedIdentifier", "identifiers are of type dns or ip")
}

func (c *call) newOrder() (*secrets.Response, error) {
	var in struct {
		Names     []Identifier `json:"identifiers"`
		NotBefore string       `json:"notBefore"`
		NotAfter  string       `json:"notAfter"`
	}
	if _, err := c.payload(&in); err != nil {
		return nil, err
	}
	if len(in.Names) == 0 || len(in.Names) > namesMost {
		return nil, malformed("identifiers: must be 1 to %d", namesMost)
	}
	if in.NotBefore != "" {
		return nil, malformed("notBefore is not supported: certificates hold from when they are made")
	}
	o := &order{ID: uuid.NewString(), Status: statusPending, Expires: c.r.Now.UTC().Add(orderLife)}
	if in.NotAfter != "" {
		at, err := time.Parse(time.RFC3339, in.NotAfter)
		if err != nil || !at.After(c.r.Now) || at.After(c.r.Now.Add(c.set.MaxTTL)) {
			return nil, malformed("notAfter: must be a time in RFC 3339, at most %v ahead", c.set.MaxTTL)
		}
		o.NotAfter = at.UTC()
	}
	open, err := c.view.List(c, "acme/orders/"+c.acct.ID+"/", "", ordersMost)
	if err != nil {
		return nil, err
	}
	if len(open) >= ordersMost {
		return nil, problem(http.StatusTooManyRequests, "rateLimited", "the account has %d orders of the last %v", ordersMost,
			orderLife)
	}
	ends := []string{c.orderKey(o.ID)}
	for _, name := range in.Names {
		if err := name.check(); err != nil {
			return nil, err
		}
		if slices.Contains(o.Names, name) {
			continue
		}
		z := newAuthz(name, o.Expires)
		if err := c.put(c.authzKey(z.ID), z); err != nil {
			return nil, err
		}
		o.Names, o.Authz, ends = append(o.Names, name), append(o.Authz, z.ID), append(ends, c.authzKey(z.ID))
	}
	if err := c.put(c.orderKey(o.ID), o); err != nil {
		return nil, err
	}
	if err := c.put(endKey(o.Expires, o.ID), ends); err != nil {
		return nil, err
	}
	return c.showOrder(http.StatusCreated, o)
}

// order reads one, with its state of now.
func (c *call) order(id string) (*order, error) {
	o, err := get[order](c, c.view, c.orderKey(id))
	if err != nil {
		return nil, err
	}
	if o == nil || !c.r.Now.Before(o.Expires) {
		return nil, problem(http.StatusNotFound, "malformed", "the account has no such order")
	}
	if o.Status != statusPending {
		return o, nil
	}
	now := *o
	now.Status = statusReady
	for _, id := range o.Authz {
		z, err := get[authz](c, c.view, c.authzKey(id))
		switch {
		case err != nil:
			return nil, err
		case z == nil || (z.Status != statusValid && z.Status != statusPending):
			now.Status = statusInvalid
			return &now, nil
		case z.Status == statusPending:
			now.Status = statusPending
		}
	}
	return &now, nil
}

func (c *call) showOrder(status int, o *order) (*secrets.Response, error) {
	at := c.base + "order/" + o.ID
	list := make([]string, len(o.Authz))
	for i, id := range o.Authz {
		list[i] = c.base + "authorization/" + id
	}
	out := map[string]any{"status": o.Status, "expires": o.Expires.Format(time.RFC3339), "identifiers": o.Names,
		"authorizations": list, "finalize": at + "/finalize"}
	if !o.NotAfter.IsZero() {
		out["notAfter"] = o.NotAfter.Format(time.RFC3339)
	}
	if o.Chain != "" {
		out["certificate"] = at + "/cert"
	}
	return c.object(status, out, "Location", at)
}

func (c *call) readOrder() (*secrets.Response, error) {
	o, err := c.order(c.parts[1])
	if err != nil {
		return nil, err
	}
	return c.showOrder(http.StatusOK, o)
}

func (c *call) listOrders() (*secrets.Response, error) {
	if err := c.mine(c.parts[1]); err != nil {
		return nil, err
	}
	ids, err := c.view.List(c, "acme/orders/"+c.acct.ID+"/", "", ordersMost)
	if err != nil {
		return nil, err
	}
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = c.base + "order/" + id
	}
	return c.object(http.StatusOK, map[string]any{"orders": list})
}

func (c *call) finalize() (*secrets.Response, error) {
	var in struct {
		CSR string `json:"csr"`
	}
	if _, err := c.payload(&in); err != nil {
		return nil, err
	}
	o, err := c.order(c.parts[1])
	if err != nil {
		return nil, err
	}
	if o.Status != statusReady {
		return nil, problem(http.StatusForbidden, "orderNotReady", "the order is %s", o.Status)
	}
	der, err := base64.RawURLEncoding.DecodeString(in.CSR)
	if err != nil {
		return nil, badCSR("csr is not in base64url")
	}
	if err := o.fits(der, c.acct); err != nil {
		return nil, err
	}
	var ttl time.Duration
	if !o.NotAfter.IsZero() {
		if ttl = o.NotAfter.Sub(c.r.Now).Truncate(time.Second); ttl < time.Second {
			return nil, problem(http.StatusForbidden, "orderNotReady", "notAfter of the order is over")
		}
	}
	chain, err := c.by.Sign(c.dir, c.set, der, ttl)
	if err != nil {
		if p, is := problemOf(err); is {
			return nil, badCSR("%s", p.Detail)
		}
		return nil, err
	}
	done := *o
	done.Status, done.Chain = statusValid, chain
	if err := c.keepSerial(chain); err != nil {
		return nil, err
	}
	if err := c.put(c.orderKey(o.ID), done); err != nil {
		return nil, err
	}
	return c.showOrder(http.StatusOK, &done)
}

// keepSerial stores whose certificate it is, until it ends: that account may revoke it.
func (c *call) keepSerial(chain string) error {
	block, _ := pem.Decode([]byte(chain))
	if block == nil {
		return problem(http.StatusInternalServerError, "serverInternal", "no certificate was made")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	at := serialKey(cert)
	if err := c.put(at, c.acct.ID); err != nil {
		return err
	}
	return c.put(endKey(cert.NotAfter, hex.EncodeToString(cert.SerialNumber.Bytes())), []string{at})
}

func serialKey(cert *x509.Certificate) string {
	return "acme/serials/" + hex.EncodeToString(cert.SerialNumber.Bytes())
}

func badCSR(format string, args ...any) error {
	return problem(http.StatusBadRequest, "badCSR", format, args...)
}

var (
	oidCN  = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidSAN = asn1.ObjectIdentifier{2, 5, 29, 17}
)

// fits refuses a request for a certificate that names anything else than the order, or is of the account's own key.
func (o *order) fits(der []byte, a *account) error {
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil || csr.CheckSignature() != nil {
		return badCSR("csr cannot be read, or is not signed by its key")
	}
	if k, err := parseKey(a.Key); err != nil || k.same(csr.PublicKey) {
		return badCSR("csr has the key of the account")
	}
	var names []Identifier
	add := func(i Identifier) error {
		if err := i.check(); err != nil {
			return err
		}
		if !slices.Contains(names, i) {
			names = append(names, i)
		}
		return nil
	}
	for _, part := range csr.Subject.Names {
		if !part.Type.Equal(oidCN) {
			return badCSR("the subject of csr may have a common name alone")
		}
	}
	for _, ext := range csr.Extensions {
		if ext.Id.Equal(oidSAN) && !onlyHosts(ext.Value) {
			return badCSR("csr names other things than hosts and addresses")
		}
	}
	for _, name := range csr.DNSNames {
		if err := add(Identifier{"dns", name}); err != nil {
			return err
		}
	}
	for _, at := range csr.IPAddresses {
		if err := add(Identifier{"ip", at.String()}); err != nil {
			return err
		}
	}
	if cn := csr.Subject.CommonName; cn != "" {
		i := Identifier{"dns", cn}
		if net.ParseIP(cn) != nil {
			i.Type = "ip"
		}
		if err := add(i); err != nil {
			return err
		}
	}
	if !sameNames(names, o.Names) {
		return badCSR("csr does not name what the order names")
	}
	return nil
}

// onlyHosts reports whether the value of a subjectAltName has dNSName and iPAddress alone.
func onlyHosts(der []byte) bool {
	var list asn1.RawValue
	if rest, err := asn1.Unmarshal(der, &list); err != nil || len(rest) > 0 || !list.IsCompound {
		return false
	}
	for rest := list.Bytes; len(rest) > 0; {
		var one asn1.RawValue
		var err error
		if rest, err = asn1.Unmarshal(rest, &one); err != nil || one.Class != asn1.ClassContextSpecific ||
			(one.Tag != 2 && one.Tag != 7) {
			return false
		}
	}
	return true
}

func sameNames(a, b []Identifier) bool {
	by := func(x, y Identifier) int { return strings.Compare(x.Type+x.Value, y.Type+y.Value) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), by), slices.SortedFunc(slices.Values(b), by))
}

func (c *call) certificate() (*secrets.Response, error) {
	o, err := c.order(c.parts[1])
	if err != nil {
		return nil, err
	}
	if o.Chain == "" {
		return nil, problem(http.StatusForbidden, "orderNotReady", "the order is %s", o.Status)
	}
	return &secrets.Response{Raw: &secrets.Raw{ContentType: "application/pem-certificate-chain",
		Body: []byte(o.Chain)}}, nil
}

// revoke revokes a certificate for the account that it was made for, or for whoever has its key.
func (c *call) revoke() (*secrets.Response, error) {
	var in struct {
		Certificate string `json:"certificate"`
		Reason      int    `json:"reason"`
	}
	if _, err := c.payload(&in); err != nil {
		return nil, err
	}
	der, err := base64.RawURLEncoding.DecodeString(in.Certificate)
	if err != nil {
		return nil, malformed("certificate is not in base64url")
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, malformed("certificate cannot be read")
	}
	if in.Reason < 0 || in.Reason > 10 || in.Reason == 7 {
		return nil, problem(http.StatusBadRequest, "badRevocationReason", "reason: must be 0 to 10, and not 7")
	}
	owner, err := get[string](c, c.view, serialKey(cert))
	if err != nil {
		return nil, err
	}
	if byKey := c.acct == nil && c.msg.key.same(cert.PublicKey); !byKey &&
		(c.acct == nil || owner == nil || *owner != c.acct.ID) {
		return nil, problem(http.StatusForbidden, "unauthorized", "the certificate is not this account's")
	}
	already, err := c.by.Revoke(der)
	if err != nil {
		return nil, err
	}
	if already {
		return nil, problem(http.StatusBadRequest, "alreadyRevoked", "the certificate was revoked before")
	}
	return &secrets.Response{Raw: &secrets.Raw{ContentType: "text/plain"}}, nil
}

const endPrefix = "acme/ends/"

// endKey is an entry of the index by time of what is deleted then: its value lists the keys.
func endKey(at time.Time, id string) string {
	return fmt.Sprintf("%s%020d/%s", endPrefix, max(at.UnixNano(), 0), id)
}

func draw() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // does not fail
	return base64.RawURLEncoding.EncodeToString(b)
}
