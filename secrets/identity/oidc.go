package identity

import (
	"net/url"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/storage"
)

// Identity tokens (contract 4.4, identity/oidc): JSON Web Tokens that say who the caller is, signed with named keys
// that are turned by time, and whose public halves anybody may read. They are records of their own: nothing of
// entities changes with them.

const (
	oidcConfigKey = "oidc/config"
	oidcKeys      = "oidc/key/"  // name: namedKey
	oidcRoles     = "oidc/role/" // name: oidcRole
	oidcPath      = "/v1/identity/oidc"
	// OIDCClients is where the clients of OpenID Connect are, each with the key that it uses.
	OIDCClients   = "oidc/client/"
	wellKnown     = ".well-known/"
	discoveryPath = "oidc/" + wellKnown + "openid-configuration"
	keysPath      = "oidc/" + wellKnown + "keys"
)

type oidcConfig struct {
	Issuer string `json:"issuer"`
}

// tokens answers what is asked of identity tokens (OIDC): their keys, their roles, and they themselves.
type tokens struct{ *call }

// route routes what is below identity/oidc.
func (c tokens) route(path string) (*secrets.Response, error) {
	what, rest, _ := strings.Cut(path, "/")
	name, more, _ := strings.Cut(rest, "/")
	switch {
	case path == "config":
		return c.configure()
	case what == "key" && more == "":
		return c.key(name)
	case what == "key" && more == "rotate" && c.writes():
		return c.rotate(name)
	case what == "role" && more == "":
		return c.role(name)
	case what == "token" && name != "" && more == "" && c.Op == secrets.Read:
		return c.issue(name)
	case path == "introspect" && c.writes():
		return c.introspect()
	case path == ".well-known/openid-configuration" && c.Op == secrets.Read:
		return c.discovery()
	case path == ".well-known/keys" && c.Op == secrets.Read:
		return c.published()
	case slices.Contains([]string{"introspect", ".well-known/openid-configuration", ".well-known/keys"}, path),
		what == "token" && name != "" && more == "", what == "key" && more == "rotate":
		return nil, auth.ErrUnsupported
	}
	return nil, auth.ErrPath
}

// issuer is what tokens say that they are of.
func (c tokens) issuer() (string, error) {
	found, err := auth.Find[oidcConfig](c, c.View, "", oidcConfigKey)
	if err != nil {
		return "", err
	}
	base := c.e.Address
	if found != nil && found.Issuer != "" {
		base = found.Issuer
	}
	if base == "" {
		return "", errkind.New(errkind.Unavailable,
			"nobody said at which address this server is reached: set api_addr, or issuer in identity/oidc/config")
	}
	return strings.TrimSuffix(base, "/") + oidcPath, nil
}

func (c tokens) configure() (*secrets.Response, error) {
	found, err := auth.Find[oidcConfig](c, c.View, "", oidcConfigKey)
	if err != nil {
		return nil, err
	}
	if found == nil {
		found = &oidcConfig{}
	}
	switch {
	case c.Op == secrets.Read:
		return auth.Data(found)
	case !c.writes():
		return nil, auth.ErrUnsupported
	}
	if c.f.Has("issuer") {
		found.Issuer = c.f.String("issuer")
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if found.Issuer != "" && !PlainIssuer(found.Issuer) {
		return nil, errkind.New(errkind.Invalid,
			"invalid issuer, which must include only a scheme, host, and optional port (e.g. https://example.com:8200)")
	}
	op, err := put(oidcConfigKey, found)
	c.ops = append(c.ops, op)
	resp := &secrets.Response{}
	if found.Issuer != "" {
		resp.Warnings = []string{`If "issuer" is set explicitly, all tokens must be validated against that address, ` +
			`including those issued by secondary clusters. Setting issuer to "" will restore the default behavior of using ` +
			`the cluster's api_addr as the issuer.`}
	}
	return resp, err
}

// PlainIssuer reports whether a text is a URL of a scheme, a host and a port alone.
func PlainIssuer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") &&
		strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == "" && u.User == nil
}

// allKeys gives all named keys.
func (c tokens) allKeys() ([]*namedKey, error) {
	names, err := c.View.List(c, oidcKeys, "", 0)
	if err != nil {
		return nil, err
	}
	var out []*namedKey
	for _, name := range names {
		k, err := auth.Find[namedKey](c, c.View, oidcKeys, name)
		if err != nil {
			return nil, err
		}
		if k != nil {
			out = append(out, k)
		}
	}
	return out, nil
}

func (c tokens) discovery() (*secrets.Response, error) {
	issuer, err := c.issuer()
	if err != nil {
		return nil, err
	}
	resp, err := auth.Data(map[string]any{"issuer": issuer, "jwks_uri": issuer + "/.well-known/keys",
		"id_token_signing_alg_values_supported": jwks.Published,
		"response_types_supported":              []string{"id_token"}, "subject_types_supported": []string{"public"}})
	return bare(resp), err
}

func (c tokens) published() (*secrets.Response, error) {
	list, err := c.allKeys()
	if err != nil {
		return nil, err
	}
	set, err := setOf(list, c.now)
	return bare(&secrets.Response{Data: set}), err
}

// bare is an answer without the envelope, for clients of OIDC.
func bare(r *secrets.Response) *secrets.Response {
	return &secrets.Response{Raw: &secrets.Raw{ContentType: "application/json", Body: r.Data}}
}

func (c *call) store(key string, v any) error {
	op, err := put(key, v)
	c.ops = append(c.ops, op)
	return err
}

func (c *call) drop(key string) { c.ops = append(c.ops, storage.Delete(key)) }
