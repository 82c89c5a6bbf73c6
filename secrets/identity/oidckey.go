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

// freshKey is a key as it is before anybody says more of it.
func freshKey(name string) *namedKey {
	return &namedKey{Name: name, Algorithm: "RS256", Rotation: 24 * time.Hour, Verification: 24 * time.Hour}
}

// begin draws what a key signs with now and next.
func (k *namedKey) begin(now time.Time) (err error) {
	for _, s := range []*signing{&k.Now, &k.Next} {
		if *s, err = k.draw(); err != nil {
			return err
		}
	}
	k.Turn = now.Add(k.Rotation)
	return nil
}

// allows reports whether the key signs for a client.
func (k *namedKey) allows(client string) bool {
	return slices.Contains(k.Clients, "*") || slices.Contains(k.Clients, client)
}

// sign makes a token that says what claims do.
func (k *namedKey) sign(claims any) (string, error) {
	text, err := jwks.SignWith(jwks.Algorithm(k.Algorithm), k.Now.Private, k.Now.ID, claims)
	if err != nil {
		return "", errkind.Errorf(errkind.Internal, "the token cannot be signed")
	}
	return text, nil
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

// defaultKey is the name of the key that is made when it is needed first.
const defaultKey = "default"

// Signer is a named key for tokens of others than identity's own roles.
type Signer struct{ key *namedKey }

// Signer finds a named key; one that is missing is an error of kind Invalid.
func (b *Book) Signer(ctx context.Context, name string) (Signer, error) {
	k, err := auth.Find[namedKey](ctx, b.View, oidcKeys, name)
	if err == nil && k == nil {
		err = errkind.Errorf(errkind.Invalid, "cannot find key %q", name)
	}
	return Signer{k}, err
}

// EnsureSigner is Signer, which makes the key default where that is not there yet: ops store it.
func (b *Book) EnsureSigner(ctx context.Context, name string, now time.Time) (s Signer, ops []secrets.Op, err error) {
	s, err = b.Signer(ctx, name)
	if name != defaultKey || !errkind.Is(err, errkind.Invalid) {
		return s, nil, err
	}
	s.key = freshKey(name)
	s.key.Clients = []string{"*"}
	if err := s.key.begin(now); err != nil {
		return s, nil, err
	}
	op, err := put(oidcKeys+name, s.key)
	return s, []secrets.Op{op}, err
}

// Verification is for how long what the key signed before can be verified.
func (s Signer) Verification() time.Duration { return s.key.Verification }

// Algorithm is what the key signs by.
func (s Signer) Algorithm() jwks.Algorithm { return jwks.Algorithm(s.key.Algorithm) }

// Sign makes a token that says what claims do, for a client that the key allows.
func (s Signer) Sign(client string, claims map[string]any) (string, error) {
	if !s.key.allows(client) {
		return "", errkind.Errorf(errkind.Invalid, "the key %q does not list the client ID as an allowed client ID",
			s.key.Name)
	}
	return s.key.sign(claims)
}

// KeySet is a JSON Web Key Set of what verifies tokens of the keys.
func (b *Book) KeySet(ctx context.Context, names []string, now time.Time) ([]byte, error) {
	var list []*namedKey
	for _, name := range names {
		s, err := b.Signer(ctx, name)
		if err != nil {
			return nil, err
		}
		list = append(list, s.key)
	}
	return setOf(list, now)
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
			return nil, auth.ErrUnsupported
		}
		return auth.Keys(c.View.List(c, oidcKeys, "", 0))
	}
	k, err := auth.Find[namedKey](c, c.View, oidcKeys, name)
	switch {
	case err != nil:
		return nil, err
	case c.Op == secrets.Read && k == nil:
		return nil, auth.ErrNotFound
	case c.Op == secrets.Read:
		return auth.Data(map[string]any{"algorithm": k.Algorithm, "rotation_period": auth.Seconds(k.Rotation),
			"verification_ttl": auth.Seconds(k.Verification), "allowed_client_ids": auth.List(k.Clients)})
	case c.Op == secrets.Delete:
		return c.deleteKey(name)
	case !c.writes():
		return nil, auth.ErrUnsupported
	}
	return nil, c.writeKey(name, k)
}

func (c tokens) writeKey(name string, k *namedKey) error {
	fresh := k == nil
	if fresh {
		k = freshKey(name)
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
		if err := k.begin(c.now); err != nil {
			return err
		}
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
