// Package kubernetes logs in the pods of a cluster by their service account's token (contract 3.6).
//
// A token is looked at here first (signature where keys are given, time, issuer, audience, account), so that the
// cluster is asked about those alone that may log in; then its TokenReview decides. Nothing is cached: a deleted
// account logs in no more.
package kubernetes

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/kit/tokenreview"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
)

// Local is where a pod finds its own account.
const Local = "/var/run/secrets/kubernetes.io/serviceaccount"

// Engine is one mount of the method.
type Engine struct {
	Local string // the folder with ca.crt and token of this process' own account, where it runs in a pod
}

var _ engine.Renewer = (*Engine)(nil)

const (
	roles     = "role/"
	configKey = "config"
)

// Special implements engine.Engine.
func (*Engine) Special() engine.Special { return engine.Special{Open: []string{"login"}} }

// Serial implements engine.Engine: changes of one record follow each other.
func (*Engine) Serial(r *secrets.Request) string { return auth.Serial(r) }

// Exists implements engine.Engine.
func (*Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	return auth.Exists[role](ctx, view, roles, r.Rest)
}

// bound is what a login leaves in its token, for renewals.
type bound struct {
	Role      string `json:"role"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Renewable implements engine.Renewer: a role that is gone renews nothing, nor does an account that is: the cluster
// is asked where a reviewer may read it. While the cluster does not answer renewals go on: they are all that keeps
// what runs there running.
func (e *Engine) Renewable(ctx context.Context, view engine.View, _ *secrets.Request,
	l engine.Login) (terms engine.Terms, err error) {
	b := bound{Role: string(l.Data)} // of logins before accounts were looked at
	if strings.HasPrefix(b.Role, "{") {
		b = bound{}
		if json.Unmarshal(l.Data, &b) != nil {
			return terms, errkind.New(errkind.Corrupt, "what the login left in its token is not what was stored")
		}
	}
	r, err := auth.StillThere[role](ctx, view, roles, b.Role)
	if err != nil {
		return terms, err
	}
	return r.Tokens.Terms(), e.accountThere(ctx, view, &b)
}

// accountThere is an error where the cluster says that the account of a login is gone.
func (e *Engine) accountThere(ctx context.Context, view engine.View, b *bound) error {
	if b.Name == "" {
		return nil
	}
	c, err := auth.Find[config](ctx, view, "", configKey)
	if err != nil || c == nil {
		return err
	}
	cluster, err := e.cluster(c, "")
	if err != nil || cluster.Reviewer == "" {
		return err
	}
	account, err := tokenreview.ServiceAccount(ctx, cluster, b.Namespace, b.Name)
	if errkind.Is(err, errkind.NotFound) || (err == nil && account.UID != b.UID) {
		return errkind.Errorf(errkind.Invalid, "the service account %s/%s is gone: log in again", b.Namespace, b.Name)
	}
	return nil
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	path := strings.TrimSuffix(r.Rest, "/")
	if path == "role" || strings.HasPrefix(path, roles) {
		return auth.Crud(ctx, view, r, roles, strings.TrimPrefix(strings.TrimPrefix(path, "role"), "/"), &role{})
	}
	write := r.Op == secrets.Create || r.Op == secrets.Update
	if path != "login" && path != configKey {
		return nil, auth.ErrPath
	}
	c, err := auth.Find[config](ctx, view, "", configKey)
	switch {
	case err != nil:
		return nil, err
	case path == "login" && write:
		return e.login(ctx, view, r, f, c)
	case path == configKey && write:
		next := &config{NoIssuer: true}
		if err := next.read(f, e.Local); err != nil {
			return nil, err
		}
		return auth.Keep(configKey, next)
	case path == configKey && r.Op == secrets.Read && c != nil:
		return auth.Data(c.show())
	case path == configKey && r.Op == secrets.Read:
		return nil, auth.ErrNotFound
	}
	return nil, auth.ErrUnsupported
}

// config is which cluster is asked.
type config struct {
	Host     string   `json:"kubernetes_host"`
	CA       string   `json:"kubernetes_ca_cert,omitempty"`
	Reviewer string   `json:"token_reviewer_jwt,omitempty"`
	Keys     []string `json:"pem_keys,omitempty"`
	NoLocal  bool     `json:"disable_local_ca_jwt,omitempty"`
	NoIssuer bool     `json:"disable_iss_validation"`
	Issuer   string   `json:"issuer,omitempty"`

	Annotations bool `json:"use_annotations_as_alias_metadata,omitempty"`
}

func (c *config) read(f *secrets.Fields, local string) error {
	c.Host, c.CA, c.Reviewer = f.String("kubernetes_host"), f.String("kubernetes_ca_cert"), f.String("token_reviewer_jwt")
	c.Keys, c.NoLocal, c.NoIssuer, c.Issuer = f.Strings("pem_keys"), f.Bool("disable_local_ca_jwt", false),
		f.Bool("disable_iss_validation", true), f.String("issuer")
	c.Annotations = f.Bool("use_annotations_as_alias_metadata", false)
	if err := f.Err(); err != nil {
		return err
	}
	if c.Host == "" {
		return errkind.New(errkind.Invalid, "no host provided: field \"kubernetes_host\"")
	}
	if err := jwks.CheckURL("kubernetes_host", c.Host); err != nil {
		return errkind.E(errkind.Invalid, "", err)
	}
	if c.CA == "" && len(c.Keys) == 0 && strings.HasPrefix(c.Host, "https:") {
		if _, err := os.Stat(filepath.Join(local, "ca.crt")); c.NoLocal || err != nil {
			return errkind.New(errkind.Invalid, "one of pem_keys or kubernetes_ca_cert must be set")
		}
	}
	if err := jwks.CheckCA("kubernetes_ca_cert", c.CA); err != nil {
		return errkind.E(errkind.Invalid, "", err)
	}
	_, err := c.keys()
	return errkind.E(errkind.Invalid, "", err)
}

func (c *config) keys() (keys []any, err error) {
	for i, text := range c.Keys {
		key, err := jwks.PublicKey(text)
		if err != nil {
			return nil, errkind.Errorf(errkind.Invalid, "pem_keys[%d]: %w", i, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func (c *config) show() map[string]any {
	return map[string]any{"kubernetes_host": c.Host, "kubernetes_ca_cert": c.CA, "pem_keys": auth.List(c.Keys),
		"disable_local_ca_jwt":   c.NoLocal,
		"disable_iss_validation": c.NoIssuer, "issuer": c.Issuer, "token_reviewer_jwt_set": c.Reviewer != "",
		"use_annotations_as_alias_metadata": c.Annotations}
}

// cluster is whom to ask about a token: by the reviewer's token, else by this process' own, else by the token itself.
func (e *Engine) cluster(c *config, token string) (tokenreview.Cluster, error) {
	out := tokenreview.Cluster{Host: c.Host, CA: c.CA, Reviewer: c.Reviewer}
	for name, into := range map[string]*string{"ca.crt": &out.CA, "token": &out.Reviewer} {
		if *into != "" || c.NoLocal {
			continue
		}
		text, err := os.ReadFile(filepath.Join(e.Local, name)) // each time: Kubernetes renews it
		if err != nil && !os.IsNotExist(err) {
			return out, errkind.E(errkind.Unavailable, "this process' own service account", err)
		}
		*into = strings.TrimSpace(string(text))
	}
	if out.Reviewer == "" {
		out.Reviewer = token
	}
	return out, nil
}

func (e *Engine) login(ctx context.Context, view engine.View, r *secrets.Request, f *secrets.Fields,
	c *config) (*secrets.Response, error) {
	name, text := f.String("role"), f.String("jwt")
	if err := f.Err(); err != nil {
		return nil, err
	}
	switch {
	case name == "":
		return nil, errkind.New(errkind.Invalid, "missing role")
	case text == "":
		return nil, errkind.New(errkind.Invalid, "missing jwt")
	case c == nil:
		return nil, errkind.New(errkind.Invalid, "could not load backend configuration: write it to auth/.../config first")
	}
	role, err := auth.Find[role](ctx, view, roles, name)
	if err != nil {
		return nil, err
	}
	if role == nil {
		return nil, errkind.Errorf(errkind.Invalid, "invalid role name %q", name)
	}
	if !auth.Within(role.Tokens.CIDRs, r.Remote) {
		return nil, auth.ErrDenied
	}
	said, account, err := c.look(text)
	if err != nil {
		return nil, err
	}
	if err := role.accepts(c, said, account, r); err != nil {
		return nil, err
	}
	cluster, err := e.cluster(c, text)
	if err != nil {
		return nil, err
	}
	var audiences []string
	if role.Audience != "" {
		audiences = []string{role.Audience}
	} // else the cluster takes its own to be meant: a token for others does not log in
	vouched, err := tokenreview.Ask(ctx, cluster, text, audiences...)
	if err != nil {
		return nil, err
	}
	if *vouched != *account {
		return nil, errkind.New(errkind.Denied, "the cluster says that the token is another account's")
	}
	if err := role.inNamespace(ctx, cluster, account); err != nil {
		return nil, err
	}
	notes, err := c.notes(ctx, cluster, account)
	if err != nil {
		return nil, err
	}
	return role.token(name, r.Mount, said, account, notes)
}

// look reads a token, and checks its signature where keys are given: else the cluster does.
func (c *config) look(text string) (*jwks.Claims, *tokenreview.Account, error) {
	tok, err := jwks.Parse(text, jwks.Asymmetric)
	if err != nil {
		return nil, nil, err
	}
	keys, err := c.keys()
	if err != nil {
		return nil, nil, err
	}
	var said *jwks.Claims
	if len(keys) > 0 {
		said, err = tok.SignedBy(keys)
	} else {
		said, err = tok.Unchecked()
	}
	if err != nil {
		return nil, nil, err
	}
	account, err := tokenreview.ParseSubject(said.Subject, claim(said, "/kubernetes.io/serviceaccount/uid",
		"kubernetes.io/serviceaccount/service-account.uid"))
	if err == nil && account.UID == "" {
		err = errkind.New(errkind.Denied, "the token does not name its service account's uid")
	}
	return said, account, err
}

// claim is the first of some claims that is there: those of tokens of today and of long-lived ones.
func claim(said *jwks.Claims, names ...string) string {
	for _, name := range names {
		if v, ok := jwks.LookUp(said.All, name); ok {
			if text, ok := v.(string); ok {
				return text
			}
		}
	}
	return ""
}

// accepts checks what the role and the configuration ask for.
func (r *role) accepts(c *config, said *jwks.Claims, a *tokenreview.Account, q *secrets.Request) error {
	if said.HasExpiry || said.HasNotBefore { // long-lived tokens say nothing of time
		if err := (jwks.Leeway{}).Check(&said.Standard, q.Now); err != nil {
			return err
		}
	}
	issuer := c.Issuer
	if issuer == "" {
		issuer = "kubernetes/serviceaccount"
	}
	matches := func(text string) func(string) bool {
		return func(pattern string) bool { return auth.Glob(pattern, text) }
	}
	switch {
	case !c.NoIssuer && said.Issuer != issuer:
		return errkind.New(errkind.Denied, "invalid issuer (iss) claim")
	case r.Audience != "" && !slices.Contains(said.Audience, r.Audience):
		return errkind.New(errkind.Denied, "invalid audience (aud) claim")
	case r.Selector == "" && !r.names(a.Namespace):
		return errkind.New(errkind.Denied, "namespace not authorized")
	case !slices.ContainsFunc(r.Names, matches(a.Name)):
		return errkind.New(errkind.Denied, "service account name not authorized")
	}
	return nil
}

func (r *role) token(name, mount string, said *jwks.Claims, who *tokenreview.Account,
	notes map[string]string) (*secrets.Response, error) {
	a := r.Tokens.Auth()
	a.AliasMeta = map[string]string{"service_account_name": who.Name, "service_account_namespace": who.Namespace,
		"service_account_uid":         who.UID,
		"service_account_secret_name": claim(said, "kubernetes.io/serviceaccount/secret.name")}
	a.Metadata = map[string]string{"role": name}
	maps.Copy(a.Metadata, a.AliasMeta)
	maps.Copy(a.AliasMeta, notes)
	if a.Alias = who.UID; r.AliasSource == byName {
		a.Alias = who.Namespace + "/" + who.Name
	}
	a.DisplayName = auth.DisplayName(mount, who.Namespace+"-"+who.Name)
	raw, err := json.Marshal(bound{name, who.Namespace, who.Name, who.UID})
	a.Login = raw
	return &secrets.Response{Auth: a}, err
}
