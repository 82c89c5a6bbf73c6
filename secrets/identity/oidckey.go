package identity

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// namedKey signs tokens. The key that signs next is published already, and those that signed before are for
// as long as their tokens may live, so verifiers that fetch the set now and then never miss one.
type namedKey struct {
	Name         string        `json:"name"`
	Algorithm    string        `json:"algorithm"`
	Rotation     time.Duration `json:"rotation_period"`
	Verification time.Duration `json:"verification_ttl"`
	Clients      []string      `json:"allowed_client_ids,omitempty"`
	Turn         time.Time     `json:"next_rotation"`
	Now          signing       `json:"now"`
	Next         signing       `json:"next"`
	Former       []former      `json:"former,omitempty"`
}

// signing is a private key, as PKCS 8, and its public half.
type signing struct {
	ID      string `json:"id"`
	Private []byte `json:"private"`
	Public  []byte `json:"public"`
}

// former is a key that signs no more.
type former struct {
	ID     string    `json:"id"`
	Public []byte    `json:"public"`
	Until  time.Time `json:"until"`
}

func (k *namedKey) draw() (s signing, err error) {
	s.ID = uuid.NewString()
	if s.Private, err = jwks.NewKey(jwks.Algorithm(k.Algorithm)); err != nil {
		return s, err
	}
	s.Public, err = jwks.PublicOf(s.Private)
	return s, err
}

// published are the keys that tokens may be signed with, or were.
func (k *namedKey) published(now time.Time) []jwks.Verifier {
	alg := jwks.Algorithm(k.Algorithm)
	out := []jwks.Verifier{{ID: k.Now.ID, Alg: alg, Public: k.Now.Public},
		{ID: k.Next.ID, Alg: alg, Public: k.Next.Public}}
	for _, f := range k.Former {
		if now.Before(f.Until) {
			out = append(out, jwks.Verifier{ID: f.ID, Alg: alg, Public: f.Public})
		}
	}
	return out
}

// setOf is a JSON Web Key Set of what verifies tokens of the keys.
func setOf(list []*namedKey, now time.Time) ([]byte, error) {
	var published []jwks.Verifier
	for _, k := range list {
		published = append(published, k.published(now)...)
	}
	set, err := jwks.Set(published)
	if err != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "a key is not what was stored")
	}
	return set, nil
}

// DefaultVerification is for how long what a key signed before can be verified, where nobody said.
const DefaultVerification = 24 * time.Hour

// defaultKey is the name of the key that is made when it is needed first.
const defaultKey = "default"

func (b *Book) namedKey(ctx context.Context, name string) (*namedKey, error) {
	k, err := auth.Find[namedKey](ctx, b.View, oidcKeys, name)
	if err == nil && k == nil {
		err = errkind.Errorf(errkind.Invalid, "cannot find key %q", name)
	}
	return k, err
}

// EnsureKey gives the operations that make the key default, where it is named and is not there yet; nil for one that
// is. Any other that is missing is an error of kind Invalid.
func (b *Book) EnsureKey(ctx context.Context, name string, now time.Time) ([]secrets.Op, error) {
	k, err := auth.Find[namedKey](ctx, b.View, oidcKeys, name)
	if err != nil || k != nil {
		return nil, err
	}
	if name != defaultKey {
		return nil, errkind.Errorf(errkind.Invalid, "cannot find key %q", name)
	}
	k = &namedKey{Name: name, Algorithm: "RS256", Rotation: 24 * time.Hour, Verification: DefaultVerification,
		Clients: []string{"*"}, Turn: now.Add(24 * time.Hour)}
	for _, s := range []*signing{&k.Now, &k.Next} {
		if *s, err = k.draw(); err != nil {
			return nil, err
		}
	}
	op, err := put(oidcKeys+name, k)
	return []secrets.Op{op}, err
}

// Verification is for how long what a key signed before can be verified.
func (b *Book) Verification(ctx context.Context, name string) (time.Duration, error) {
	k, err := b.namedKey(ctx, name)
	if err != nil {
		return 0, err
	}
	return k.Verification, nil
}

// KeySet is a JSON Web Key Set of what verifies tokens of the keys.
func (b *Book) KeySet(ctx context.Context, names []string, now time.Time) ([]byte, error) {
	var list []*namedKey
	for _, name := range names {
		k, err := b.namedKey(ctx, name)
		if err != nil {
			return nil, err
		}
		list = append(list, k)
	}
	return setOf(list, now)
}

// AlgorithmOf is the algorithm that a key signs by.
func (b *Book) AlgorithmOf(ctx context.Context, name string) (jwks.Algorithm, error) {
	k, err := b.namedKey(ctx, name)
	if err != nil {
		return "", err
	}
	return jwks.Algorithm(k.Algorithm), nil
}

// Sign makes a token that says what claims do, with a key that allows the client.
func (b *Book) Sign(ctx context.Context, name, client string, claims map[string]any) (string, error) {
	k, err := b.namedKey(ctx, name)
	switch {
	case err != nil:
		return "", err
	case !slices.Contains(k.Clients, "*") && !slices.Contains(k.Clients, client):
		return "", errkind.Errorf(errkind.Invalid, "the key %q does not list the client ID as an allowed client ID", name)
	}
	text, err := jwks.SignWith(jwks.Algorithm(k.Algorithm), k.Now.Private, k.Now.ID, claims)
	if err != nil {
		return "", errkind.Errorf(errkind.Internal, "the token cannot be signed")
	}
	return text, nil
}

// maxFormer bounds how many former keys are published: rotations by hand may be many.
const maxFormer = 64

// turn makes the next key the one that signs. What signed before is published for that long.
func (k *namedKey) turn(now time.Time, verification time.Duration) error {
	next, err := k.draw()
	if err != nil {
		return err
	}
	k.Former = slices.DeleteFunc(k.Former, func(f former) bool { return !now.Before(f.Until) })
	if k.Former = append(k.Former, former{k.Now.ID, k.Now.Public, now.Add(verification)}); len(k.Former) > maxFormer {
		k.Former = k.Former[len(k.Former)-maxFormer:]
	}
	k.Now, k.Next, k.Turn = k.Next, next, now.Add(k.Rotation)
	return nil
}

func (k *namedKey) read(f *secrets.Fields, fresh bool) error {
	if f.Has("algorithm") {
		alg := f.String("algorithm")
		if !fresh && alg != k.Algorithm {
			return errkind.New(errkind.Invalid, "field \"algorithm\": a key keeps the one that it was made with: make "+
				"another key")
		}
		k.Algorithm = alg
	}
	k.Rotation, k.Verification = f.Duration("rotation_period", k.Rotation), f.Duration("verification_ttl", k.Verification)
	if f.Has("allowed_client_ids") {
		k.Clients = f.Strings("allowed_client_ids")
	}
	if err := f.Err(); err != nil {
		return err
	}
	switch {
	case !slices.Contains(jwks.Published, jwks.Algorithm(k.Algorithm)):
		return errkind.Errorf(errkind.Invalid, "unknown signing algorithm %q: must be one of %v", k.Algorithm, jwks.Published)
	case k.Rotation < time.Minute:
		return errkind.New(errkind.Invalid, "rotation_period must be at least one minute")
	case k.Verification < time.Second:
		return errkind.New(errkind.Invalid, "verification_ttl must be at least one second")
	case k.Verification > 10*k.Rotation:
		return errkind.New(errkind.Invalid, "verification_ttl cannot be longer than 10x rotation_period")
	}
	return nil
}

// key answers create, read, update, delete and list of named keys.
func (c tokens) key(name string) (*secrets.Response, error) {
	if name == "" {
		if c.Op != secrets.List {
			return nil, errUnsupported
		}
		return auth.Keys(c.View.List(c, oidcKeys, "", 0))
	}
	k, err := auth.Find[namedKey](c, c.View, oidcKeys, name)
	switch {
	case err != nil:
		return nil, err
	case c.Op == secrets.Read && k == nil:
		return nil, errNotFound
	case c.Op == secrets.Read:
		return auth.Data(map[string]any{"algorithm": k.Algorithm, "rotation_period": auth.Seconds(k.Rotation),
			"verification_ttl": auth.Seconds(k.Verification), "allowed_client_ids": auth.List(k.Clients)})
	case c.Op == secrets.Delete:
		return c.deleteKey(name)
	case !c.writes():
		return nil, errUnsupported
	}
	return nil, c.writeKey(name, k)
}

func (c tokens) writeKey(name string, k *namedKey) error {
	fresh := k == nil
	if fresh {
		k = &namedKey{Name: name, Algorithm: "RS256", Rotation: 24 * time.Hour, Verification: DefaultVerification}
	}
	if err := k.read(c.f, fresh); err != nil {
		return err
	}
	users, err := c.rolesOf(name)
	if err != nil {
		return err
	}
	for _, r := range users {
		if r.TTL > k.Verification {
			return errkind.Errorf(errkind.Invalid, "unable to update key %q because it is currently referenced by one or "+
				"more roles with a token ttl greater than %d seconds", name, auth.Seconds(k.Verification))
		}
	}
	if fresh {
		for _, s := range []*signing{&k.Now, &k.Next} {
			if *s, err = k.draw(); err != nil {
				return err
			}
		}
		k.Turn = c.now.Add(k.Rotation)
	} else if soon := c.now.Add(k.Rotation); soon.Before(k.Turn) {
		k.Turn = soon
	}
	c.e.quiet.Store(0)
	return c.store(oidcKeys+name, k)
}

// rolesOf gives the roles that sign with a key.
func (c tokens) rolesOf(key string) (out []*oidcRole, err error) {
	names, err := c.View.List(c, oidcRoles, "", 0)
	for _, name := range names {
		r, ferr := auth.Find[oidcRole](c, c.View, oidcRoles, name)
		if ferr != nil {
			return nil, ferr
		}
		if r != nil && r.Key == key {
			out = append(out, r)
		}
	}
	return out, err
}

func (c tokens) deleteKey(name string) (*secrets.Response, error) {
	users, err := c.rolesOf(name)
	if err != nil {
		return nil, err
	}
	if len(users) > 0 {
		var names []string
		for _, r := range users {
			names = append(names, r.Name)
		}
		return nil, errkind.Errorf(errkind.Invalid,
			"unable to delete key %q because it is currently referenced by these roles: %s", name, strings.Join(names, ", "))
	}
	clients, err := c.View.Scan(c, OIDCClients, storage.After(OIDCClients), 0)
	if err != nil {
		return nil, err
	}
	for _, r := range clients {
		var uses struct {
			Key string `json:"key"`
		}
		if json.Unmarshal(r.Value, &uses) == nil && uses.Key == name {
			return nil, errkind.Errorf(errkind.Invalid,
				"unable to delete key %q because it is currently referenced by the client %q", name,
				strings.TrimPrefix(r.Key, OIDCClients))
		}
	}
	c.drop(oidcKeys + name)
	return nil, nil
}

// rotate turns a key, by hand or by time.
func (c tokens) rotate(name string) (*secrets.Response, error) {
	k, err := auth.Find[namedKey](c, c.View, oidcKeys, name)
	if err != nil {
		return nil, err
	}
	if k == nil {
		if c.Due {
			return nil, nil
		}
		return nil, errkind.Errorf(errkind.Invalid, "no named key found at %q", name)
	}
	if c.Due && c.now.Before(k.Turn) { // it was turned meanwhile
		return nil, nil
	}
	verification := c.f.Duration("verification_ttl", k.Verification)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if verification < 0 {
		return nil, errkind.New(errkind.Invalid, "field \"verification_ttl\": must not be negative")
	}
	if err := k.turn(c.now, verification); err != nil {
		return nil, err
	}
	return nil, c.store(oidcKeys+name, k)
}

// dueLook is how often keys are looked through for those whose time has come: periods are a minute at least.
const dueLook = 15 * time.Second

// Due implements engine.Tender: keys that are to be turned.
func (e *Engine) Due(ctx context.Context, view engine.View, now time.Time) (out []*secrets.Request, err error) {
	if now.UnixNano() < e.quiet.Load() {
		return nil, nil
	}
	names, err := view.List(ctx, oidcKeys, "", 0)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		raw, ok, err := view.Get(ctx, oidcKeys+name)
		if err != nil {
			return nil, err
		}
		var k struct {
			Turn time.Time `json:"next_rotation"`
		}
		if ok && json.Unmarshal(raw, &k) == nil && !now.Before(k.Turn) {
			out = append(out, &secrets.Request{Op: secrets.Update, Rest: "oidc/key/" + name + "/rotate"})
		}
	}
	if len(out) == 0 {
		e.quiet.Store(now.Add(dueLook).UnixNano())
	}
	return out, nil
}
