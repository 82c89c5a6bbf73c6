package mounting

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth/approle"
	"corbel.dev/corbel/secrets/auth/aws"
	"corbel.dev/corbel/secrets/auth/cert"
	"corbel.dev/corbel/secrets/auth/cloud"
	"corbel.dev/corbel/secrets/auth/github"
	"corbel.dev/corbel/secrets/auth/jwt"
	"corbel.dev/corbel/secrets/auth/kubernetes"
	"corbel.dev/corbel/secrets/auth/ldap"
	"corbel.dev/corbel/secrets/auth/okta"
	"corbel.dev/corbel/secrets/auth/radius"
	"corbel.dev/corbel/secrets/auth/userpass"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/acltoken"
	"corbel.dev/corbel/secrets/engine/database"
	"corbel.dev/corbel/secrets/engine/kubesecrets"
	"corbel.dev/corbel/secrets/engine/kv"
	"corbel.dev/corbel/secrets/engine/ldapsecrets"
	"corbel.dev/corbel/secrets/engine/pki"
	"corbel.dev/corbel/secrets/engine/ssh"
	"corbel.dev/corbel/secrets/engine/totp"
	"corbel.dev/corbel/secrets/engine/transit"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/plugins"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// Side is where mounts of a kind may be.
type Side uint8

// The sides.
const (
	Fixed  Side = iota // made with the store, once
	Secret             // below sys/mounts
	Login              // below sys/auth
)

// Kind is a type of mounts.
type Kind struct {
	Side Side
	// Make makes the engine of a mount. salt keys the names of what must not be guessed from storage.
	Make func(e *mount.Entry, salt []byte) engine.Engine
}

// login begins the keys of Kinds that are auth methods: some of them share their type's name with an engine.
const login = "auth/"

// kind is a mount's.
func (m *Mounts) kind(e *mount.Entry) Kind {
	if e.External != nil {
		side := Secret
		if e.Auth() {
			side = Login
		}
		return Kind{side, m.Plugins.Engine}
	}
	if k, ok := m.Kinds[login+e.Type]; ok && e.Auth() {
		return k
	}
	return m.Kinds[e.Type]
}

// BuiltIn reports whether mounts of a side know a type without a plug-in.
func (m *Mounts) BuiltIn(kind, name string) bool {
	if kind == plugins.Auth {
		return m.Kinds[login+name].Make != nil || m.Kinds[name].Side == Fixed && m.Kinds[name].Make != nil
	}
	return m.Kinds[name].Make != nil || slices.Contains([]string{"kv-v2", "generic", "plugin"}, name)
}

// kinds are the types of mounts whose engines are nobody's but their mount's.
func (m *Mounts) kinds() map[string]Kind {
	withKeys := func(*mount.Entry, []byte) engine.Engine { return &jwt.Engine{Keys: m.issuers} }
	return map[string]Kind{
		"cubbyhole": {Fixed, func(*mount.Entry, []byte) engine.Engine {
			return cubbyhole{kv.V1{DefaultTTL: func() time.Duration { return 0 }}}
		}},
		"kv": {Secret, func(e *mount.Entry, _ []byte) engine.Engine {
			if e.Options["version"] == "2" {
				return kv.V2{}
			}
			return kv.V1{DefaultTTL: func() time.Duration { return m.gate.Limits(e).Default }}
		}},
		"pki": {Secret, func(e *mount.Entry, _ []byte) engine.Engine {
			return pki.New(pki.Config{Now: m.Now, TTLs: m.ttls(e), Keys: m.keygen})
		}},
		"transit": {Secret, func(*mount.Entry, []byte) engine.Engine { return &transit.Engine{Keys: m.keygen} }},
		"totp":    {Secret, func(*mount.Entry, []byte) engine.Engine { return &totp.Engine{} }},
		"ssh": {Secret, func(e *mount.Entry, salt []byte) engine.Engine {
			book := token.Book{Salt: salt}
			return &ssh.Engine{TTLs: m.ttls(e), Hash: func(password string) string { return book.Hash(e.UUID + password) }}
		}},
		"consul": {Secret, func(e *mount.Entry, _ []byte) engine.Engine { return acltoken.Consul(m.ttls(e)) }},
		"nomad":  {Secret, func(e *mount.Entry, _ []byte) engine.Engine { return acltoken.Nomad(m.ttls(e)) }},
		"ldap": {Secret, func(e *mount.Entry, _ []byte) engine.Engine {
			return ldapsecrets.New(ldapsecrets.Config{TTLs: m.ttls(e), Password: m.password(e)})
		}},
		"kubernetes": {Secret, func(e *mount.Entry, _ []byte) engine.Engine {
			return &kubesecrets.Engine{TTLs: m.ttls(e), Local: kubernetes.Local, Getenv: os.Getenv}
		}},
		"database": {Secret, func(e *mount.Entry, _ []byte) engine.Engine {
			return &database.Engine{TTLs: m.ttls(e), Password: m.password(e), Metrics: m.Metrics,
				Name: strings.ReplaceAll(strings.Trim(e.Path, "/"), "/", "-")}
		}},
		login + "userpass": {Login, func(e *mount.Entry, _ []byte) engine.Engine {
			return &userpass.Engine{Hashing: m.Hashing, Lockout: &m.Lockout, Rules: m.lockoutRules(e), Mount: e.UUID}
		}},
		login + "ldap": {Login, func(e *mount.Entry, _ []byte) engine.Engine {
			return ldap.New(&m.Lockout, m.lockoutRules(e), e.UUID)
		}},
		login + "radius": {Login, func(e *mount.Entry, _ []byte) engine.Engine {
			return radius.New(&m.Lockout, m.lockoutRules(e), e.UUID)
		}},
		login + "okta": {Login, func(e *mount.Entry, _ []byte) engine.Engine {
			return okta.New(&m.Lockout, m.lockoutRules(e), e.UUID)
		}},
		login + "jwt":  {Login, withKeys},
		login + "oidc": {Login, withKeys}, // Vault's second name for it
		login + "kubernetes": {Login, func(*mount.Entry, []byte) engine.Engine {
			return &kubernetes.Engine{Local: kubernetes.Local}
		}},
		login + "github": {Login, func(*mount.Entry, []byte) engine.Engine { return &github.Engine{} }},
		login + "aws":    {Login, func(*mount.Entry, []byte) engine.Engine { return &aws.Engine{} }},
		login + "azure":  {Login, func(*mount.Entry, []byte) engine.Engine { return cloud.Azure(m.issuers) }},
		login + "gcp":    {Login, func(*mount.Entry, []byte) engine.Engine { return cloud.GCP(m.issuers) }},
		login + "cert":   {Login, func(*mount.Entry, []byte) engine.Engine { return &cert.Engine{Meshes: &m.meshes} }},
		login + "approle": {Login, func(e *mount.Entry, salt []byte) engine.Engine {
			book := token.Book{Salt: salt}
			return &approle.Engine{Lockout: &m.Lockout, Rules: m.lockoutRules(e), Mount: e.UUID,
				Hash: func(id string) string { return book.Hash(e.UUID + id) }}
		}},
	}
}

// Engine makes the engine of a mount.
func (m *Mounts) Engine(e *mount.Entry, salt []byte) (engine.Engine, error) {
	kind := m.kind(e)
	if kind.Make == nil {
		return nil, errkind.Errorf(errkind.Invalid, "plugin not found in the catalog: %s", e.Type)
	}
	return kind.Make(e, salt), nil
}

// password draws passwords by the policies of a mount's namespace.
func (m *Mounts) password(e *mount.Entry) func(ctx context.Context, policy string) (string, error) {
	return func(ctx context.Context, policy string) (string, error) { return m.Password(ctx, e.Base, policy) }
}

// ttls gives the lifetimes of a mount.
func (m *Mounts) ttls(e *mount.Entry) func() (standard, longest time.Duration) {
	return func() (time.Duration, time.Duration) {
		l := m.gate.Limits(e)
		return l.Default, l.Max
	}
}

// cubbyhole is a store of version 1 for each token.
type cubbyhole struct{ engine.Engine }

// Special implements engine.Engine.
func (cubbyhole) Special() engine.Special { return engine.Special{Personal: true} }

var errCubbyhole = errkind.New(errkind.Invalid, "cubbyhole operations are only supported by \"service\" type tokens")

// Answer implements task.Handler.
func (c cubbyhole) Answer(ctx context.Context, t *task.Task, r *secrets.Request) (*secrets.Response, error) {
	if t.Bearer.Batch {
		return nil, errCubbyhole
	}
	return c.Handle(ctx, t.View, r)
}
