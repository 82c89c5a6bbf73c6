package tools

import (
	"strings"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
)

// engineRoutes are the paths of the types of mounts that do not list their own, a line each: the path, what
// may be done there (Read, Write, List, Delete, Patch), and "open" where no token is needed.
var engineRoutes = map[string]string{
	"token": `create W
		create/{role} W
		create-orphan W
		lookup W
		lookup-self RW
		lookup-accessor W
		renew W
		renew-self W
		renew-accessor W
		revoke W
		revoke-self W
		revoke-orphan W
		revoke-accessor W
		tidy W
		accessors L
		roles L
		roles/{role} RWD`,
	"cubbyhole": `{path} RWLD`,
	"kv":        `{path} RWLD`,
	"kv-v2": `config RW
		data/{path} RWDP
		delete/{path} W
		undelete/{path} W
		destroy/{path} WD
		metadata/{path} RWLDP
		detailed-metadata/{path} L
		subkeys/{path} R`,
	"identity": `entity W
		entity/id L
		entity/id/{id} RWD
		entity/name L
		entity/name/{name} RWD
		entity/batch-delete W
		entity/merge W
		entity-alias W
		entity-alias/id L
		entity-alias/id/{id} RWD
		group W
		group/id L
		group/id/{id} RWD
		group/name L
		group/name/{name} RWD
		group-alias W
		group-alias/id L
		group-alias/id/{id} RWD
		lookup/entity W
		lookup/group W
		mfa/method L
		mfa/method/{id} R
		mfa/method/totp WL
		mfa/method/totp/{id} RWD
		mfa/method/totp/generate W
		mfa/method/totp/admin-generate W
		mfa/method/totp/admin-destroy W
		mfa/login-enforcement L
		mfa/login-enforcement/{name} RWD
		oidc/provider L
		oidc/provider/{name} RWD
		oidc/provider/{name}/authorize RW
		oidc/provider/{name}/token W open
		oidc/provider/{name}/userinfo RW open
		oidc/provider/{name}/.well-known/openid-configuration R open
		oidc/provider/{name}/.well-known/keys R open
		oidc/scope L
		oidc/scope/{name} RWD
		oidc/assignment L
		oidc/assignment/{name} RWD
		oidc/client L
		oidc/client/{name} RWD
		oidc/config RW
		oidc/key L
		oidc/key/{name} RWD
		oidc/key/{name}/rotate W
		oidc/role L
		oidc/role/{name} RWD
		oidc/token/{role} R
		oidc/introspect W
		oidc/.well-known/openid-configuration R open
		oidc/.well-known/keys R open`,
	"userpass": `users L
		users/{username} RWD
		users/{username}/password W
		users/{username}/policies W
		login/{username} W open`,
	"consul": `config/access RWD
		roles L
		roles/{name} RWD
		creds/{name} R`,
	"nomad": `config/access RWD
		config/lease RWD
		role L
		role/{name} RWD
		creds/{name} R`,
	"ldap": `config RW
		users L
		users/{username} RWD
		groups L
		groups/{name} RWD
		login/{username} W open`,
	"approle": `role L
		role/{role} RWD
		role/{role}/role-id RW
		role/{role}/secret-id WL
		role/{role}/custom-secret-id W
		role/{role}/secret-id/lookup W
		role/{role}/secret-id/destroy WD
		role/{role}/secret-id-accessor/lookup W
		role/{role}/secret-id-accessor/destroy WD
		role/{role}/policies RWD
		role/{role}/bind-secret-id RWD
		role/{role}/secret-id-num-uses RWD
		role/{role}/secret-id-ttl RWD
		role/{role}/secret-id-bound-cidrs RWD
		role/{role}/token-ttl RWD
		role/{role}/token-max-ttl RWD
		role/{role}/token-bound-cidrs RWD
		role/{role}/token-num-uses RWD
		role/{role}/period RWD
		tidy/secret-id W
		login W open`,
	"cert": `config RW
		certs L
		certs/{name} RWD
		crls L
		crls/{name} RWD
		login W open`,
	"transit": `keys L
		keys/{name} RWD
		keys/{name}/config W
		keys/{name}/rotate W
		keys/{name}/trim W
		keys/{name}/import W
		keys/{name}/import_version W
		keys/{name}/csr W
		keys/{name}/set-certificate W
		keys/{name}/soft-delete W
		keys/{name}/soft-delete-restore W
		encrypt/{name} W
		decrypt/{name} W
		rewrap/{name} W
		sign/{name} W
		sign/{name}/{algorithm} W
		verify/{name} W
		verify/{name}/{algorithm} W
		hmac/{name} W
		hmac/{name}/{algorithm} W
		datakey/{kind}/{name} W
		export/{kind}/{name} R
		export/{kind}/{name}/{version} R
		backup/{name} R
		restore W
		restore/{name} W
		wrapping_key R
		random W
		random/{bytes} W
		hash W
		hash/{algorithm} W
		config/keys RW
		cache-config RW`,
	"ssh": `config/ca RWD
		public_key R open
		roles L
		roles/{role} RWD
		sign/{role} W
		issue/{role} W
		creds/{role} W
		verify W open
		lookup W`,
	"totp": `keys L
		keys/{name} RWD
		code/{name} RW`,
	"database": `config L
		config/{name} RWD
		reset/{name} W
		reload/{plugin} W
		rotate-root/{name} W
		roles L
		roles/{name} RWD
		creds/{name} R
		static-roles L
		static-roles/{name} RWD
		static-creds/{name} R
		rotate-role/{name} W`,
	"jwt": `config RW
		role L
		role/{name} RWD
		oidc/auth_url W open
		oidc/callback R open
		login W open`,
	"kubernetes": `config RW
		role L
		role/{name} RWD
		login W open`,
}

var routeOps = map[rune]secrets.Operation{'R': secrets.Read, 'W': secrets.Update, 'L': secrets.List,
	'D': secrets.Delete, 'P': secrets.Patch}

// RoutesOf lists a mount's paths, and whether they are known.
func RoutesOf(e *mount.Entry, of engine.Engine) ([]engine.Route, bool) {
	if router, ok := of.(engine.Router); ok {
		return router.Routes(), true
	}
	kind := e.Type
	switch {
	case kind == "kv" && e.Options["version"] == "2":
		kind = "kv-v2"
	case kind == "oidc":
		kind = "jwt"
	}
	text, ok := engineRoutes[kind]
	if !ok {
		return nil, false
	}
	var out []engine.Route
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		r := engine.Route{Path: words[0], Open: len(words) > 2}
		for _, letter := range words[1] {
			r.Ops = append(r.Ops, routeOps[letter])
		}
		out = append(out, r)
	}
	return out, true
}
