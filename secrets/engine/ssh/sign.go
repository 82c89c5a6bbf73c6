package ssh

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/ownname"
	xssh "golang.org/x/crypto/ssh"
)

// order is a certificate that is asked for, while it is made.
type order struct {
	*call
	role *Role
	cert *xssh.Certificate
}

func (c *call) sign() (*secrets.Response, error) {
	o, err := c.order()
	if err != nil {
		return nil, err
	}
	text := c.f.String("public_key")
	if text == "" {
		return nil, invalid("missing public_key")
	}
	key, _, _, _, err := xssh.ParseAuthorizedKey([]byte(text))
	if err != nil {
		return nil, invalid("failed to parse public_key as SSH key: %v", err)
	}
	if _, is := key.(*xssh.Certificate); is {
		return nil, invalid("failed to parse public_key as SSH key: it is a certificate")
	}
	if err := o.role.allowsKey(key); err != nil {
		return nil, err
	}
	shown, err := o.certify(key)
	if err != nil {
		return nil, err
	}
	return answer(shown)
}

func (c *call) issue() (*secrets.Response, error) {
	o, err := c.order()
	if err != nil {
		return nil, err
	}
	kind := c.f.String("key_type")
	if kind == "" {
		kind = "rsa"
	}
	made, err := newKey(kind, c.f.Int("key_bits", 0))
	if err != nil {
		return nil, err
	}
	private, public, err := texts(made)
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := xssh.ParseAuthorizedKey([]byte(public))
	if err != nil {
		return nil, err
	}
	if err := o.role.allowsKey(key); err != nil {
		return nil, err
	}
	shown, err := o.certify(key)
	if err != nil {
		return nil, err
	}
	shown["private_key"], shown["private_key_type"] = private, kind
	return answer(shown)
}

// order reads what is asked for, without the key.
func (c *call) order() (*order, error) {
	r, err := c.role()
	if err != nil {
		return nil, err
	}
	if r.Type != typeCA {
		return nil, invalid("role key type '%s' not allowed to sign or issue certificates", r.Type)
	}
	return &order{c, r, &xssh.Certificate{}}, nil
}

// certify fills in the certificate by the role and signs it.
func (o *order) certify(key xssh.PublicKey) (map[string]any, error) {
	for _, step := range []func() error{o.kind, o.principals, o.span, o.options, o.extensions, o.f.Err} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	var serial [8]byte
	if _, err := rand.Read(serial[:]); err != nil {
		return nil, err
	}
	o.cert.Key, o.cert.Serial = key, binary.BigEndian.Uint64(serial[:])
	if err := o.keyID(); err != nil {
		return nil, err
	}
	ca, err := o.ca()
	if err != nil {
		return nil, err
	}
	signer, err := xssh.ParsePrivateKey([]byte(ca.Private))
	if err != nil {
		return nil, err
	}
	if err := o.cert.SignCert(rand.Reader, o.role.signer(signer)); err != nil {
		return nil, err
	}
	return map[string]any{"serial_number": strconv.FormatUint(o.cert.Serial, 16),
		"signed_key": string(xssh.MarshalAuthorizedKey(o.cert))}, nil
}

// signer signs with the algorithm of the role; an RSA key makes no SHA-1 signatures unless the role wants them.
func (r *Role) signer(s xssh.Signer) xssh.Signer {
	with, ok := s.(xssh.AlgorithmSigner)
	if !ok || s.PublicKey().Type() != xssh.KeyAlgoRSA {
		return s
	}
	algorithm := r.Signer
	if algorithm == "" || algorithm == "default" {
		algorithm = xssh.KeyAlgoRSASHA256
	}
	if one, err := xssh.NewSignerWithAlgorithms(with, []string{algorithm}); err == nil {
		return one
	}
	return s
}

// kind is whether the certificate is of a user or a host.
func (o *order) kind() error {
	kind := o.f.String("cert_type")
	switch {
	case kind == "" || kind == "user":
		if !o.role.User {
			return invalid("cert_type 'user' is not allowed by role")
		}
		o.cert.CertType = xssh.UserCert
	case kind == "host":
		if !o.role.Host {
			return invalid("cert_type 'host' is not allowed by role")
		}
		o.cert.CertType = xssh.HostCert
	default:
		return invalid("cert_type must be either 'user' or 'host'")
	}
	return nil
}

// principals are the names that the certificate is for: those asked for, else the role's own.
func (o *order) principals() error {
	allowed, standard := o.role.Allowed, o.role.Default
	if o.role.Template {
		allowed = ownname.All(allowed, o.r.Who)
		standard, _ = ownname.Fill(standard, o.r.Who)
	}
	if o.cert.CertType == xssh.HostCert {
		allowed, standard = o.role.Domains, ""
	}
	asked := o.f.Strings("valid_principals")
	if len(asked) == 0 && standard != "" {
		asked = []string{standard}
	}
	if len(asked) == 0 {
		return invalid("empty valid principals not allowed by role: name some with valid_principals")
	}
	for _, name := range asked {
		if !o.mayBe(name, allowed, standard) {
			return invalid("%s is not a valid value for valid_principals", name)
		}
	}
	o.cert.ValidPrincipals = asked
	return nil
}

func (o *order) mayBe(name string, allowed []string, standard string) bool {
	if slices.Contains(allowed, "*") || (standard != "" && name == standard) {
		return true
	}
	if o.cert.CertType == xssh.UserCert {
		return slices.Contains(allowed, name)
	}
	return slices.ContainsFunc(allowed, func(domain string) bool {
		return (o.role.Bare && name == domain) || (o.role.Subdomain && strings.HasSuffix(name, "."+domain))
	})
}

// span is how long the certificate is good.
func (o *order) span() error {
	standard, longest := o.e.TTLs()
	if o.role.TTL > 0 {
		standard = o.role.TTL
	}
	if o.role.Max > 0 {
		longest = min(longest, o.role.Max)
	}
	ttl := o.f.Duration("ttl", 0)
	switch {
	case ttl < 0:
		return invalid("ttl must not be negative")
	case ttl > longest:
		return invalid("ttl is larger than maximum allowed %d", int64(longest/time.Second))
	case ttl == 0:
		ttl = min(standard, longest)
	}
	o.cert.ValidAfter = uint64(o.r.Now.Add(-o.role.Before).Unix())
	o.cert.ValidBefore = uint64(o.r.Now.Add(ttl).Unix())
	return nil
}

func (o *order) options() error {
	asked := o.f.Texts("critical_options")
	if len(asked) == 0 {
		o.cert.CriticalOptions = o.role.DefaultCritical
		return nil
	}
	if bad := beyond(asked, o.role.Critical); len(bad) > 0 && len(o.role.Critical) > 0 {
		return invalid("critical options not on allowed list: %v", bad)
	}
	o.cert.CriticalOptions = asked
	return nil
}

func (o *order) extensions() error {
	if o.cert.CertType == xssh.HostCert {
		return nil // a host has none
	}
	asked := o.f.Texts("extensions")
	if len(asked) == 0 {
		asked = maps.Clone(o.role.DefaultExtensions)
		for name, text := range asked {
			if o.role.ExtensionTemplate {
				filled, ok := ownname.Fill(text, o.r.Who)
				if !ok {
					delete(asked, name) // who has no such name has no such extension
					continue
				}
				asked[name] = filled
			}
		}
		o.cert.Extensions = asked
		return nil
	}
	if slices.Contains(o.role.Extensions, "*") {
		o.cert.Extensions = asked
		return nil
	}
	if bad := beyond(asked, o.role.Extensions); len(bad) > 0 {
		return invalid("extensions %v are not on allowed list", bad)
	}
	o.cert.Extensions = asked
	return nil
}

// beyond are the names that are not on a list, in order.
func beyond(asked map[string]string, allowed []string) (bad []string) {
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if !slices.Contains(allowed, name) {
			bad = append(bad, name)
		}
	}
	return bad
}

// keyID is the name by which logs know the certificate.
func (o *order) keyID() error {
	if asked := o.f.String("key_id"); asked != "" {
		if !o.role.KeyIDs {
			return invalid("setting key_id is not allowed by role")
		}
		o.cert.KeyId = asked
		return nil
	}
	format := o.role.IDFormat
	if format == "" {
		format = "vault-{{token_display_name}}-{{public_key_hash}}"
		if o.r.Holder == "" {
			format = "vault-{{public_key_hash}}"
		}
	}
	sum := sha256.Sum256(o.cert.Key.Marshal())
	o.cert.KeyId = strings.NewReplacer("{{token_display_name}}", o.r.Holder, "{{role_name}}", o.name,
		"{{public_key_hash}}", hex.EncodeToString(sum[:])).Replace(format)
	return nil
}

// allowsKey compares a key with the lengths that the role allows; a role without any allows all.
func (r *Role) allowsKey(key xssh.PublicKey) error {
	if len(r.KeyLengths) == 0 {
		return nil
	}
	names, bits := describe(key)
	for _, name := range names {
		text, ok := r.KeyLengths[name]
		if !ok {
			continue
		}
		for part := range strings.SplitSeq(strings.Trim(text, "[]"), ",") {
			if want, _ := strconv.Atoi(strings.TrimSpace(part)); want == 0 || want == bits {
				return nil
			}
		}
		return invalid("public_key failed to meet the key requirements: key is of an invalid size: %d", bits)
	}
	return invalid("public_key failed to meet the key requirements: key type is not allowed: %s", names[0])
}

// describe gives the names of a key's type, and its size in bits.
func describe(key xssh.PublicKey) (names []string, bits int) {
	kind := key.Type()
	switch {
	case kind == xssh.KeyAlgoRSA:
		var rsa struct {
			Name string
			E, N []byte
		}
		if xssh.Unmarshal(key.Marshal(), &rsa) == nil {
			for len(rsa.N) > 0 && rsa.N[0] == 0 {
				rsa.N = rsa.N[1:]
			}
			bits = 8 * len(rsa.N)
		}
		return []string{"rsa", kind}, bits
	case strings.HasPrefix(kind, "ecdsa-sha2-nistp"):
		_, _ = fmt.Sscanf(kind, "ecdsa-sha2-nistp%d", &bits)
		return []string{"ec", "ecdsa", kind}, bits
	case kind == xssh.KeyAlgoED25519:
		return []string{"ed25519", kind}, 256
	}
	return []string{kind}, 0
}
