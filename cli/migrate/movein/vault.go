package movein

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/migrate"
	"corbel.dev/corbel/client/vault"
)

// VaultKinds are what is brought of a Vault, in order.
var VaultKinds = []string{"policies", "mounts", "auth", "roles", "secrets", "entities", "groups"}

// vaultRun brings a Vault over.
type vaultRun struct {
	*run
	from, to *vault.Client
	mounts   map[string]object // of the source, by path
	auths    map[string]object
	entities map[string]string // names by the source's IDs
}

// Vault brings over what a Vault or OpenBao gives to a token: policies, mounts with their options, auth methods and
// their roles, KV secrets (the newest version), entities with their aliases, and internal groups.
func Vault(ctx context.Context, from, to *vault.Client, o Options) (*migrate.Report, error) {
	v := &vaultRun{run: newRun(o, from.Address(), to.Address()), from: from, to: to, entities: map[string]string{}}
	for what, cl := range map[string]*vault.Client{"source": from, "target": to} {
		if _, err := cl.Do(ctx, "GET", "auth/token/lookup-self", nil, nil); err != nil {
			return nil, fmt.Errorf("the %s: %w", what, err)
		}
	}
	for i, step := range []func(context.Context) error{v.policies, v.mount, v.auth, v.roles, v.secrets, v.people,
		v.groups} {
		if err := step(ctx); err != nil {
			v.note(VaultKinds[i], "(all)", migrate.Failed, err.Error())
		}
		if ctx.Err() != nil {
			return v.report, ctx.Err()
		}
		if v.Progress != nil {
			v.Progress(VaultKinds[i])
		}
	}
	v.left(ctx)
	return v.report, nil
}

// data reads an object; nil where there is none.
func data(ctx context.Context, cl *vault.Client, path string) (object, error) {
	a, err := cl.Do(ctx, "GET", path, nil, nil)
	var e *vault.Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, short(err)
	}
	return a.Data, nil
}

// short is an error in one line.
func short(err error) error {
	var e *vault.Error
	if errors.As(err, &e) {
		return fmt.Errorf("%d %s", e.Status, strings.Join(e.Texts, "; "))
	}
	return err
}

// names lists; none where there is nothing.
func names(ctx context.Context, cl *vault.Client, path string) ([]string, error) {
	a, err := cl.Do(ctx, "LIST", path, nil, nil)
	var e *vault.Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, short(err)
	}
	return strs(a.Data["keys"]), nil
}

// copyOf brings the object at a path over; without names fields that stay behind.
func (v *vaultRun) copyOf(ctx context.Context, kind, path string, without ...string) bool {
	want, err := data(ctx, v.from, path)
	if err != nil || want == nil {
		if err != nil {
			v.note(kind, path, migrate.Failed, err.Error())
		}
		return false
	}
	for _, name := range without {
		delete(want, name)
	}
	return v.put(ctx, kind, path, path, want)
}

func (v *vaultRun) put(ctx context.Context, kind, name, path string, want object) bool {
	return v.bring(ctx, thing{kind: kind, name: name, want: want,
		read: func(ctx context.Context) (object, error) { return data(ctx, v.to, path) },
		write: func(ctx context.Context) error {
			_, err := v.to.Do(ctx, "POST", path, nil, want)
			return short(err)
		}})
}

func (v *vaultRun) policies(ctx context.Context) error {
	list, err := names(ctx, v.from, "sys/policies/acl")
	for _, name := range list {
		if name != "root" {
			v.copyOf(ctx, "policies", "sys/policies/acl/"+name, "version", "modified", "data_version")
		}
	}
	return err
}

// own are mounts that every store has.
var own = []string{"system", "ns_system", "identity", "cubbyhole", "token", "ns_token", "ns_identity", "ns_cubbyhole"}

// table reads mounts or auth methods, but those that every store has.
func table(ctx context.Context, cl *vault.Client, path string) (map[string]object, error) {
	all, err := data(ctx, cl, path)
	out := map[string]object{}
	for name, x := range all {
		if m, ok := x.(object); ok && text(m, "type") != "" && !slices.Contains(own, text(m, "type")) {
			out[name] = m
		}
	}
	return out, err
}

// enable brings mounts over, each with what makes it what it is.
func (v *vaultRun) enable(ctx context.Context, kind, at string) (map[string]object, error) {
	all, err := table(ctx, v.from, at)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		m := all[path]
		name := strings.TrimSuffix(path, "/")
		want := object{"type": m["type"], "description": m["description"], "options": m["options"]}
		body := maps.Clone(want)
		config := object{}
		if c, ok := m["config"].(object); ok {
			for _, field := range []string{"default_lease_ttl", "max_lease_ttl", "listing_visibility"} {
				if !empty(plain(c[field])) {
					config[field] = c[field]
				}
			}
		}
		body["config"] = config
		ok := v.bring(ctx, thing{kind: kind, name: path, want: want,
			read: func(ctx context.Context) (object, error) {
				there, err := table(ctx, v.to, at)
				return there[path], err
			},
			write: func(ctx context.Context) error {
				_, err := v.to.Do(ctx, "POST", at+"/"+name, nil, body)
				return short(err)
			}})
		if !ok {
			delete(all, path)
		}
	}
	return all, err
}

func (v *vaultRun) mount(ctx context.Context) (err error) {
	v.mounts, err = v.enable(ctx, "mounts", "sys/mounts")
	return err
}

func (v *vaultRun) auth(ctx context.Context) (err error) {
	v.auths, err = v.enable(ctx, "auth", "sys/auth")
	return err
}

// lists are where mounts of a type have what can be read and written again, by type.
var lists = map[string][]string{"approle": {"role"}, "jwt": {"role"}, "oidc": {"role"}, "kubernetes": {"role"},
	"cert": {"certs"}, "pki": {"roles"}, "database": {"roles"}, "ssh": {"roles"}}

// withheld is what cannot leave a source, by type: the list, and what to do.
var withheld = map[string][2]string{
	"userpass": {"users", "passwords cannot be read: create the user here with a new one"},
	"transit":  {"keys", "keys cannot leave the source: rewrap by decrypting there and encrypting here"},
	"pki":      {"issuers", "keys cannot leave the source: import the issuer's bundle with pki/config/ca"},
	"database": {"config", "its password cannot be read: write the configuration here and rotate-root"},
	"totp":     {"keys", "keys cannot be read: create the key here and hand it out anew"},
}

// roles brings over what methods and engines are set up with.
func (v *vaultRun) roles(ctx context.Context) error {
	for prefix, all := range map[string]map[string]object{"auth/": v.auths, "": v.mounts} {
		for _, path := range slices.Sorted(maps.Keys(all)) {
			kind := text(all[path], "type")
			if kind == "jwt" || kind == "oidc" || kind == "kubernetes" {
				v.copyOf(ctx, "roles", prefix+path+"config", "oidc_client_secret", "status")
			}
			for _, list := range lists[kind] {
				found, err := names(ctx, v.from, prefix+path+list)
				if err != nil {
					return err
				}
				for _, name := range found {
					v.role(ctx, kind, prefix+path+list+"/"+name)
				}
			}
			v.withhold(ctx, kind, prefix+path)
		}
	}
	return nil
}

// role brings one over; that of an approle with the ID that its machines know, where it is new here.
func (v *vaultRun) role(ctx context.Context, kind, at string) {
	there, err := data(ctx, v.to, at)
	if !v.copyOf(ctx, "roles", at, "role_id", "last_updated_time") || kind != "approle" || err != nil {
		return
	}
	before := v.Overwrite
	v.Overwrite = before || there == nil
	v.copyOf(ctx, "roles", at+"/role-id")
	v.Overwrite = before
}

func (v *vaultRun) withhold(ctx context.Context, kind, path string) {
	what, is := withheld[kind]
	if !is {
		return
	}
	found, err := names(ctx, v.from, path+what[0])
	if err != nil {
		v.note("roles", path+what[0], migrate.Failed, err.Error())
	}
	for _, name := range found {
		v.note("roles", path+what[0]+"/"+name, migrate.Skipped, what[1])
	}
}

func (v *vaultRun) secrets(ctx context.Context) error {
	for _, path := range slices.Sorted(maps.Keys(v.mounts)) {
		m := v.mounts[path]
		if kind := text(m, "type"); kind != "kv" && kind != "generic" {
			continue
		}
		options, _ := m["options"].(object)
		if err := v.tree(ctx, path, text(options, "version") == "2", ""); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// tree walks one mount.
func (v *vaultRun) tree(ctx context.Context, mount string, versions bool, folder string) error {
	at := mount
	if versions {
		at += "metadata/"
	}
	found, err := names(ctx, v.from, at+folder)
	if err != nil {
		return err
	}
	for _, name := range found {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if strings.HasSuffix(name, "/") {
			if err := v.tree(ctx, mount, versions, folder+name); err != nil {
				return err
			}
		} else if versions {
			v.secret2(ctx, mount, folder+name)
		} else {
			v.copyOf(ctx, "secrets", mount+folder+name)
		}
	}
	return nil
}

// secret2 brings a secret of version 2: its settings and its newest version.
func (v *vaultRun) secret2(ctx context.Context, mount, name string) {
	meta, err := data(ctx, v.from, mount+"metadata/"+name)
	if err != nil {
		v.note("secrets", mount+name, migrate.Failed, err.Error())
		return
	}
	settings := object{}
	for _, field := range []string{"custom_metadata", "max_versions", "cas_required", "delete_version_after"} {
		if x := plain(meta[field]); !empty(x) && x != "0s" {
			settings[field] = meta[field]
		}
	}
	now, err := data(ctx, v.from, mount+"data/"+name)
	if err != nil {
		v.note("secrets", mount+name, migrate.Failed, err.Error())
		return
	}
	inner, _ := now["data"].(object)
	if inner == nil {
		v.note("secrets", mount+name, migrate.Skipped, "its newest version is deleted")
		return
	}
	v.bring(ctx, thing{kind: "secrets", name: mount + name, want: object{"data": inner},
		read: func(ctx context.Context) (object, error) {
			there, err := data(ctx, v.to, mount+"data/"+name)
			if there["data"] == nil {
				return nil, err
			}
			return there, err
		},
		write: func(ctx context.Context) error {
			body := object{"data": inner}
			if _, err := v.to.Do(ctx, "POST", mount+"data/"+name, nil, body); err != nil {
				return short(err)
			}
			if len(settings) == 0 {
				return nil
			}
			_, err := v.to.Do(ctx, "POST", mount+"metadata/"+name, nil, settings)
			return short(err)
		}})
}
