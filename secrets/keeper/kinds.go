package keeper

import (
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/auth/approle"
	"corbel.dev/corbel/secrets/auth/cert"
	"corbel.dev/corbel/secrets/auth/jwt"
	"corbel.dev/corbel/secrets/auth/kubernetes"
	"corbel.dev/corbel/secrets/auth/userpass"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/database"
	"corbel.dev/corbel/secrets/engine/kv"
	"corbel.dev/corbel/secrets/engine/pki"
	"corbel.dev/corbel/secrets/engine/transit"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/token"
)

// side is where mounts of a kind may be.
type side uint8

const (
	fixed  side = iota // made with the store, once
	secret             // below sys/mounts
	login              // below sys/auth
)

// kind is a type of mounts.
type kind struct {
	side side
	// make makes the engine of a mount. salt keys the names of what must not be guessed from storage.
	make func(k *Keeper, e *mount.Entry, salt []byte) engine.Engine
}

// kinds are the types of mounts that there are.
var kinds = map[string]kind{
	"system": {fixed, func(k *Keeper, _ *mount.Entry, _ []byte) engine.Engine { return &system{k: k} }},
	"identity": {fixed, func(k *Keeper, _ *mount.Entry, salt []byte) engine.Engine {
		book := token.Book{Salt: salt}
		return people{&identity.Engine{Hash: book.Hash, Address: k.cfg.APIAddr, Mounts: func(accessor string) *mount.Entry {
			if st := k.gate.Load(); st != nil {
				return st.Mounts.ByAccessor(accessor)
			}
			return nil
		}}, k}
	}},
	"token": {fixed, func(k *Keeper, _ *mount.Entry, _ []byte) engine.Engine { return &tokens{k: k} }},
	"cubbyhole": {fixed, func(*Keeper, *mount.Entry, []byte) engine.Engine {
		return cubbyhole{kv.V1{DefaultTTL: func() time.Duration { return 0 }}}
	}},
	"kv": {secret, func(k *Keeper, e *mount.Entry, _ []byte) engine.Engine {
		if e.Options["version"] == "2" {
			return kv.V2{}
		}
		return kv.V1{DefaultTTL: func() time.Duration { return k.gate.Limits(e).Default }}
	}},
	"pki": {secret, func(k *Keeper, e *mount.Entry, _ []byte) engine.Engine {
		return pki.New(pki.Config{Now: k.cfg.Now, TTLs: k.ttls(e), Keys: k.keygen})
	}},
	"transit": {secret, func(k *Keeper, _ *mount.Entry,
		_ []byte) engine.Engine {
		return &transit.Engine{Keys: k.keygen}
	}},
	"database": {secret, func(k *Keeper, e *mount.Entry, _ []byte) engine.Engine {
		return &database.Engine{TTLs: k.ttls(e), Password: k.passwordBy, Metrics: k.meters.registry,
			Name: strings.ReplaceAll(strings.Trim(e.Path, "/"), "/", "-")}
	}},
	"userpass": {login, func(k *Keeper, e *mount.Entry, _ []byte) engine.Engine {
		return &userpass.Engine{Hashing: k.hashing, Lockout: &k.lockout, Rules: k.lockoutRules(e), Mount: e.UUID}
	}},
	"jwt":  {login, func(k *Keeper, _ *mount.Entry, _ []byte) engine.Engine { return &jwt.Engine{Keys: k.keys} }},
	"oidc": {login, func(k *Keeper, _ *mount.Entry, _ []byte) engine.Engine { return &jwt.Engine{Keys: k.keys} }},
	// Vault's second name for it
	"kubernetes": {login, func(*Keeper, *mount.Entry,
		[]byte) engine.Engine {
		return &kubernetes.Engine{Local: kubernetes.Local}
	}},
	"cert": {login, func(k *Keeper, _ *mount.Entry,
		_ []byte) engine.Engine {
		return &cert.Engine{Meshes: &k.meshes}
	}},
	"approle": {login, func(k *Keeper, e *mount.Entry, salt []byte) engine.Engine {
		book := token.Book{Salt: salt}
		return &approle.Engine{Lockout: &k.lockout, Rules: k.lockoutRules(e), Mount: e.UUID,
			Hash: func(id string) string { return book.Hash(e.UUID + id) }}
	}},
}

// engine makes the engine of a mount.
func (k *Keeper) engine(e *mount.Entry, salt []byte) (engine.Engine, error) {
	kind, ok := kinds[e.Type]
	if !ok {
		return nil, errkind.Errorf(errkind.Invalid, "plugin not found in the catalog: %s", e.Type)
	}
	return kind.make(k, e, salt), nil
}

// ttls gives the lifetimes of a mount.
func (k *Keeper) ttls(e *mount.Entry) func() (standard, longest time.Duration) {
	return func() (time.Duration, time.Duration) {
		l := k.gate.Limits(e)
		return l.Default, l.Max
	}
}
