// Package aws logs in whoever is somebody in AWS (contract 3.7): a principal of IAM, by a request to STS that it signed
// and that STS is asked to judge; or a machine of EC2, by its identity document, which AWS signed.
//
// No other API of AWS is asked, so a mount needs no credentials there, and what only an API could tell cannot be bound
// by a role. The document of a machine is the same at each login: the first login takes it, with a nonce, and others
// must bring that nonce, so that who reads the document later is nobody.
package aws

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// Engine is one mount of the method.
type Engine struct{}

var (
	_ engine.Renewer = (*Engine)(nil)
	_ engine.Router  = (*Engine)(nil)
)

const (
	rolePrefix = "role/"
	certPrefix = "config/certificate/"
	seenPrefix = "identity-accesslist/"
	clientKey  = "config/client"
	namesKey   = "config/identity"
)

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{Open: []string{"login"}} }

// Serial implements engine.Engine. A login that writes asks to be alone with its machine.
func (*Engine) Serial(r *secrets.Request) string { return auth.Serial(r) }

// Exists implements engine.Engine.
func (*Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	prefix := rolePrefix
	if strings.HasPrefix(r.Rest, certPrefix) {
		prefix = certPrefix
	}
	return auth.Exists[map[string]any](ctx, view, prefix, r.Rest)
}

// Routes implements engine.Router.
func (*Engine) Routes() []engine.Route {
	crud := []secrets.Operation{secrets.Read, secrets.Update, secrets.Delete}
	list := []secrets.Operation{secrets.List}
	return []engine.Route{{Path: "config/client", Ops: crud}, {Path: "config/identity", Ops: crud[:2]},
		{Path: "config/certificates", Ops: list}, {Path: "config/certificate/{name}", Ops: crud},
		{Path: "role", Ops: list}, {Path: "role/{name}", Ops: crud},
		{Path: "identity-accesslist", Ops: list},
		{Path: "identity-accesslist/{instance}", Ops: []secrets.Operation{secrets.Read, secrets.Delete}},
		{Path: "login", Ops: []secrets.Operation{secrets.Update}, Open: true}}
}

// Handle implements engine.Engine.
func (*Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	path := strings.TrimSuffix(r.Rest, "/")
	switch {
	case path == "roles" && r.Op == secrets.List: // its second name
		return auth.Keys(view.List(ctx, rolePrefix, "", 0))
	case path == "role" || strings.HasPrefix(path, rolePrefix):
		return auth.Crud(ctx, view, r, rolePrefix, strings.TrimPrefix(strings.TrimPrefix(path, "role"), "/"), &role{})
	case path == "config/certificates" && r.Op == secrets.List:
		return auth.Keys(view.List(ctx, certPrefix, "", 0))
	case strings.HasPrefix(path, certPrefix):
		return auth.Crud(ctx, view, r, certPrefix, strings.TrimPrefix(path, certPrefix), &certificate{Type: ofPKCS7})
	case path == clientKey:
		return configure(ctx, view, r, clientKey, &client{})
	case path == namesKey && r.Op != secrets.Delete:
		return configure(ctx, view, r, namesKey, &names{IAM: "role_id", EC2: "role_id"})
	case path+"/" == seenPrefix && r.Op == secrets.List:
		return auth.Keys(view.List(ctx, seenPrefix, "", 0))
	case strings.HasPrefix(path, seenPrefix):
		return seenMachine(ctx, view, r, strings.TrimPrefix(path, seenPrefix))
	case path != "login":
		return nil, auth.ErrPath
	case r.Op != secrets.Create && r.Op != secrets.Update:
		return nil, auth.ErrUnsupported
	}
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	l := &attempt{Context: ctx, Request: r, view: view, f: f, role: f.String("role")}
	switch {
	case f.Has("pkcs7") || f.Has("identity"):
		return l.machine()
	case f.Has("iam_request_url") || f.Has("iam_http_request_method"):
		return l.principal()
	}
	return nil, invalid("didn't supply required authentication values: pkcs7, or identity and signature, or the fields " +
		"iam_http_request_method, iam_request_url, iam_request_body and iam_request_headers")
}

// attempt is a login.
type attempt struct {
	context.Context
	*secrets.Request
	view engine.View
	f    *secrets.Fields
	role string
}

func invalid(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

// configure answers the requests of a record that is there by default.
func configure[T any, P interface {
	*T
	auth.Record
}](ctx context.Context, view engine.View, r *secrets.Request, key string, fresh P) (*secrets.Response, error) {
	have, err := auth.Find[T](ctx, view, "", key)
	if err != nil {
		return nil, err
	}
	if have != nil {
		fresh = have
	}
	switch r.Op {
	case secrets.Read:
		if have == nil && key == clientKey {
			return nil, auth.ErrNotFound
		}
		return auth.Data(fresh.Show())
	case secrets.Delete:
		return &secrets.Response{Ops: []secrets.Op{storage.Delete(key)}}, nil
	case secrets.Create, secrets.Update:
		f, err := r.Fields()
		if err != nil {
			return nil, err
		}
		if err := fresh.Read(f); err != nil {
			return nil, err
		}
		resp, err := auth.Keep(key, fresh)
		if err == nil && f.Has("secret_key") {
			resp.Warnings = []string{"access_key and secret_key are not kept: no API of AWS but STS is asked, which needs none"}
		}
		return resp, err
	}
	return nil, auth.ErrUnsupported
}

// client is config/client: where STS is, and what signed requests must and may have.
type client struct {
	STS      string   `json:"sts_endpoint,omitempty"`
	Region   string   `json:"sts_region,omitempty"`
	CA       string   `json:"sts_ca_pem,omitempty"` // of an endpoint of one's own
	ServerID string   `json:"iam_server_id_header_value,omitempty"`
	Headers  []string `json:"allowed_sts_header_values,omitempty"`
}

func (c *client) params() record.Params {
	return record.Params{{Name: "sts_endpoint", At: &c.STS}, {Name: "sts_region", At: &c.Region},
		{Name: "sts_ca_pem", At: &c.CA}, {Name: "iam_server_id_header_value", At: &c.ServerID},
		{Name: "allowed_sts_header_values", At: &c.Headers}}
}

// Read implements auth.Record.
func (c *client) Read(f *secrets.Fields) error {
	if err := c.params().Read(f); err != nil {
		return err
	}
	if c.STS != "" {
		if err := jwks.CheckURL("sts_endpoint", c.STS); err != nil {
			return errkind.E(errkind.Invalid, "", err)
		}
	}
	if strings.ContainsAny(c.Region, "/.:?#@") {
		return invalid("field \"sts_region\": %q is no region", c.Region)
	}
	return errkind.E(errkind.Invalid, "", jwks.CheckCA("sts_ca_pem", c.CA))
}

// Show implements auth.Record.
func (c *client) Show() map[string]any {
	out := map[string]any{}
	c.params().Show(out)
	return out
}

// endpoint is where STS is asked.
func (c *client) endpoint() string {
	switch {
	case c.STS != "":
		return strings.TrimSuffix(c.STS, "/") + "/"
	case c.Region != "":
		return "https://sts." + c.Region + ".amazonaws.com/"
	}
	return "https://sts.amazonaws.com/"
}

// names is config/identity: what aliases are called.
type names struct {
	IAM string `json:"iam_alias"`
	EC2 string `json:"ec2_alias"`
}

// Read implements auth.Record.
func (n *names) Read(f *secrets.Fields) error {
	if err := (record.Params{{Name: "iam_alias", At: &n.IAM}, {Name: "ec2_alias", At: &n.EC2}}).Read(f); err != nil {
		return err
	}
	switch {
	case !slices.Contains([]string{"role_id", "unique_id", "canonical_arn", "full_arn"}, n.IAM):
		return invalid("field \"iam_alias\": must be role_id, unique_id, canonical_arn or full_arn")
	case !slices.Contains([]string{"role_id", "instance_id", "image_id"}, n.EC2):
		return invalid("field \"ec2_alias\": must be role_id, instance_id or image_id")
	}
	return nil
}

// Show implements auth.Record.
func (n *names) Show() map[string]any { return map[string]any{"iam_alias": n.IAM, "ec2_alias": n.EC2} }

// aliases are those of the mount.
func (l *attempt) aliases() (*names, error) {
	n, err := auth.Find[names](l, l.view, "", namesKey)
	if err == nil && n == nil {
		n = &names{IAM: "role_id", EC2: "role_id"}
	}
	return n, err
}

// certificate is one that AWS signs documents of machines with.
type certificate struct {
	PEM  string `json:"aws_public_cert"`
	Type string `json:"type"`
}

const (
	ofPKCS7    = "pkcs7"
	ofIdentity = "identity"
)

// Read implements auth.Record.
func (c *certificate) Read(f *secrets.Fields) error {
	if f.Has("aws_public_cert") {
		c.PEM = f.String("aws_public_cert")
		if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(c.PEM)); err == nil {
			c.PEM = string(raw)
		}
	}
	if f.Has("type") {
		c.Type = f.String("type")
	}
	if err := f.Err(); err != nil {
		return err
	}
	if c.Type != ofPKCS7 && c.Type != ofIdentity {
		return invalid("field \"type\": must be pkcs7 or identity")
	}
	_, err := c.key()
	return err
}

// Show implements auth.Record.
func (c *certificate) Show() map[string]any {
	return map[string]any{"aws_public_cert": c.PEM, "type": c.Type}
}

func (c *certificate) key() (any, error) {
	block, _ := pem.Decode([]byte(c.PEM))
	if block == nil {
		return nil, invalid("field \"aws_public_cert\": holds no certificate in PEM, nor one in base64")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, invalid("field \"aws_public_cert\": %v", err)
	}
	return cert.PublicKey, nil
}

// keysOf are those of a type of the mount's certificates.
func (l *attempt) keysOf(kind string) (keys []any, err error) {
	list, err := l.view.List(l, certPrefix, "", 0)
	if err != nil {
		return nil, err
	}
	for _, name := range list {
		c, err := auth.Find[certificate](l, l.view, certPrefix, name)
		if err != nil {
			return nil, err
		}
		if c == nil || c.Type != kind {
			continue
		}
		key, err := c.key()
		if err != nil {
			return nil, errkind.E(errkind.Corrupt, "", err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, invalid("there is no certificate of AWS of the type %s: write it to config/certificate/NAME, from AWS' "+
			"page on instance identity documents", kind)
	}
	return keys, nil
}
