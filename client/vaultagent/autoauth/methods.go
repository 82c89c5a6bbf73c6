package autoauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"corbel.dev/corbel/client/vault"
	"corbel.dev/corbel/client/vaultagent/agentconfig"
)

// method is a way to log in. It belongs to one goroutine.
type method interface {
	login(ctx context.Context, wrapTTL string) (*vault.Answer, error)
	// fresh reports whether credentials came since the last login that are worth another.
	fresh() bool
}

func newMethod(cfg *Config) (method, error) {
	m := &cfg.Auth.Method
	base := base{cfg: cfg, m: m}
	switch m.Type {
	case "approle":
		return &appRole{base: base, role: file{key: "role_id_file_path", path: m.Config["role_id_file_path"]},
			secret: file{key: "secret_id_file_path", path: m.Config["secret_id_file_path"],
				remove: m.On("remove_secret_id_file_after_reading", true)}}, nil
	case "jwt":
		return &roleAndToken{base: base, watched: true, token: file{key: "path", path: m.Config["path"],
			remove: m.On("remove_jwt_after_reading", true), follow: m.On("remove_jwt_follows_symlinks", false)}}, nil
	case "kubernetes":
		path := m.Config["token_path"]
		if path == "" {
			path = "/var/run/secrets/kubernetes.io/serviceaccount/token"
		}
		return &roleAndToken{base: base, token: file{key: "token_path", path: path}}, nil
	case "userpass", "ldap":
		return &namePassword{base: base, password: file{key: "password_file_path", path: m.Config["password_file_path"],
			remove: m.On("remove_password_after_reading", m.Type == "ldap")}}, nil
	case "cert":
		return &certificate{base: base}, nil
	case "token_file":
		return &ready{base: base, token: file{key: "token_file_path", path: m.Config["token_file_path"]}}, nil
	}
	return nil, fmt.Errorf("auto_auth: there is no method %q", m.Type)
}

// base is what all methods have.
type base struct {
	cfg *Config
	m   *agentconfig.Method
}

func (b *base) fresh() bool { return false }

// send asks the method's mount for a token.
func (b *base) send(ctx context.Context, path, wrapTTL string, body any) (*vault.Answer, error) {
	c, err := b.cfg.connect("", wrapTTL)
	if err != nil {
		return nil, err
	}
	return c.Do(ctx, "PUT", b.m.MountPath+"/"+path, nil, body)
}

// file is one that holds a credential.
type file struct {
	key, path      string
	remove, follow bool   // it is removed once read; follow: what a link points to
	last           string // what was read last
}

// maxCredential bounds a file: a certificate chain in a token is some 10 KiB.
const maxCredential = 1 << 20

// read is what the file holds; where it was removed, what it held.
func (f *file) read() (string, error) {
	text, err := slurp(f.path)
	if errors.Is(err, os.ErrNotExist) && f.remove && f.last != "" {
		return f.last, nil
	}
	if err != nil {
		return "", fmt.Errorf("config.%s: %w", f.key, err)
	}
	if text == "" {
		return "", fmt.Errorf("config.%s: %s is empty", f.key, f.path)
	}
	f.last = text
	if f.remove {
		path := f.path
		if f.follow {
			if path, err = filepath.EvalSymlinks(path); err != nil {
				return "", fmt.Errorf("config.%s: %w", f.key, err)
			}
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("config.%s: it is to be removed: %w", f.key, err)
		}
	}
	return text, nil
}

func slurp(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCredential+1))
	if err == nil && len(text) > maxCredential {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxCredential)
	}
	return strings.TrimSpace(string(text)), err
}

// another reports whether the file holds something else than was read last.
func (f *file) another() bool {
	text, err := slurp(f.path)
	return err == nil && text != "" && text != f.last
}

type appRole struct {
	base
	role, secret file
}

func (a *appRole) login(ctx context.Context, wrapTTL string) (*vault.Answer, error) {
	role, err := a.role.read()
	if err != nil {
		return nil, err
	}
	body := map[string]string{"role_id": role}
	if a.secret.path != "" {
		if body["secret_id"], err = a.secretID(ctx); err != nil {
			return nil, err
		}
	}
	return a.send(ctx, "login", wrapTTL, body)
}

// secretID is the secret ID, opened where it comes wrapped.
func (a *appRole) secretID(ctx context.Context) (string, error) {
	place := a.m.Config["secret_id_response_wrapping_path"]
	before := a.secret.last
	text, err := a.secret.read()
	if err != nil || place == "" || text == before {
		return text, err
	}
	a.secret.last = "" // until it is opened: a token opens once
	c, err := a.cfg.connect("", "")
	if err != nil {
		return "", err
	}
	seen, err := c.Do(ctx, "PUT", "sys/wrapping/lookup", nil, map[string]string{"token": text})
	if err != nil {
		return "", fmt.Errorf("look at the wrapped secret ID: %w", err)
	}
	if made, _ := seen.Data["creation_path"].(string); strings.Trim(made, "/") != strings.Trim(place, "/") {
		return "", fmt.Errorf("the wrapped secret ID was made at %q, not at %q: has somebody exchanged it?", made, place)
	}
	if c, err = a.cfg.connect(text, ""); err != nil {
		return "", err
	}
	opened, err := c.Do(ctx, "PUT", "sys/wrapping/unwrap", nil, nil)
	if err != nil {
		return "", fmt.Errorf("open the wrapped secret ID: %w", err)
	}
	id, _ := opened.Data["secret_id"].(string)
	if id == "" {
		return "", errors.New("the wrapped secret ID holds no secret_id")
	}
	a.secret.last = id
	return id, nil
}

// roleAndToken is a login with a role and a signed token.
type roleAndToken struct {
	base
	token   file
	watched bool
}

func (r *roleAndToken) login(ctx context.Context, wrapTTL string) (*vault.Answer, error) {
	token, err := r.token.read()
	if err != nil {
		return nil, err
	}
	return r.send(ctx, "login", wrapTTL, map[string]string{"role": r.m.Config["role"], "jwt": token})
}

func (r *roleAndToken) fresh() bool { return r.watched && r.token.another() }

type namePassword struct {
	base
	password file
}

func (n *namePassword) login(ctx context.Context, wrapTTL string) (*vault.Answer, error) {
	password, err := n.password.read()
	if err != nil {
		return nil, err
	}
	return n.send(ctx, "login/"+n.m.Config["username"], wrapTTL, map[string]string{"password": password})
}

// certificate is a login by a client certificate, read anew each time.
type certificate struct{ base }

func (c *certificate) login(ctx context.Context, wrapTTL string) (*vault.Answer, error) {
	cfg := c.cfg.Vault
	cfg.WrapTTL = wrapTTL
	for key, dst := range map[string]*string{"ca_cert": &cfg.CAFile, "client_cert": &cfg.CertFile,
		"client_key": &cfg.KeyFile} {
		if path := c.m.Config[key]; path != "" {
			*dst = path
		}
	}
	client, err := vault.New(cfg)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	body := map[string]string{}
	if name := c.m.Config["name"]; name != "" {
		body["name"] = name
	}
	return client.Do(ctx, "PUT", c.m.MountPath+"/login", nil, body)
}

// ready is a token that is there already.
type ready struct {
	base
	token file
}

func (r *ready) login(ctx context.Context, wrapTTL string) (*vault.Answer, error) {
	token, err := r.token.read()
	if err != nil {
		return nil, err
	}
	if wrapTTL != "" {
		return nil, errors.New("token_file and wrap_ttl do not go together: wrap the token in the sink")
	}
	c, err := r.cfg.connect(token, "")
	if err != nil {
		return nil, err
	}
	a, err := c.Do(ctx, "GET", "auth/token/lookup-self", nil, nil)
	if err != nil {
		return nil, err
	}
	auth := &vault.Auth{ClientToken: token}
	auth.Renewable, _ = a.Data["renewable"].(bool)
	if auth.LeaseDuration, err = strconv.ParseInt(fmt.Sprint(a.Data["ttl"]), 10, 64); err != nil {
		return nil, fmt.Errorf("the token's ttl is no number: %w", err)
	}
	return &vault.Answer{Auth: auth}, nil
}

func (r *ready) fresh() bool { return r.token.another() }
