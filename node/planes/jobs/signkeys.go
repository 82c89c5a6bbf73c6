package jobsplane

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
)

// signKeys are the keys of workload identities, in the plane's state. The newest signs. A former one is there, without
// its private half, until each token that it signed has ended.
//
// A private half is sealed by the secrets plane, for the key's place, and is in the clear only while a token is signed.
// Where servers have no secrets plane it stands in the state as it is, and who reads their disks or snapshots can make
// tokens. Once they have one, the next token is signed by a new key, that was never stored in the clear.
type signKeys struct {
	p     *Plane
	seals seals
	told  *sync.Once // that keys are not sealed
}

const (
	ringName     = "ring"
	formerRing   = "active" // of releases that sealed nothing: one key
	rotateEvery  = 30 * 24 * time.Hour
	longestToken = 7 * 24 * time.Hour
	signedLate   = time.Hour // how long a server that lags may sign with a former key
)

// signKey is a key as it is stored. It has one of Sealed and Private, or neither when it only verifies.
type signKey struct {
	ID              string
	Public          []byte // PKIX
	Sealed, Private []byte // PKCS 8
	Made            int64  // nanoseconds
	Until           int64  // when the last token of a former key has ended
}

// signRing is the document of all keys, the newest first.
type signRing struct{ Keys []*signKey }

func (k *signKey) place() string { return "jobs/identity/" + k.ID }

// ring is what is stored, with the index to change it by; empty where there is nothing.
func (s signKeys) ring() (ring signRing, index uint64) {
	v := s.p.store.View()
	if d := v.Document(jobstore.Keyring, "", ringName); d != nil {
		decode(d.Body, &ring)
		return ring, d.ModifyIndex
	}
	if d := v.Document(jobstore.Keyring, "", formerRing); d != nil { // it goes on verifying, and signs no more
		var former struct{ ID, Private string }
		decode(d.Body, &former)
		private, err := base64.StdEncoding.DecodeString(former.Private)
		public, wrong := jwks.PublicOf(private)
		if err == nil && wrong == nil {
			ring.Keys = []*signKey{{ID: former.ID, Public: public}}
		}
	}
	return ring, 0
}

// current is the newest key with its private half. A key that is too old, or does not suit what the servers have now,
// is followed by a new one.
func (s signKeys) current(ctx context.Context) (*signKey, []byte, error) {
	for range 3 {
		ring, index := s.ring()
		if len(ring.Keys) > 0 && s.suits(ring.Keys[0]) {
			private, err := s.private(ctx, ring.Keys[0])
			if !errkind.Is(err, errkind.Corrupt) {
				return ring.Keys[0], private, err
			}
			s.p.d.Log.Warn("the key of workload identities cannot be opened: a new one follows it", "error", err)
		}
		if err := s.follow(ctx, ring, index); err != nil && !errkind.Is(err, errkind.Conflict) {
			return nil, nil, err
		}
	}
	return nil, nil, errkind.New(errkind.Unavailable, "the key of workload identities is not here yet: try again")
}

// StoredKeys is the document of the keys of workload identities, for tests: what is secret in it is sealed.
func (p *Plane) StoredKeys() string {
	if d := p.store.View().Document(jobstore.Keyring, "", ringName); d != nil {
		return d.Body
	}
	return ""
}

func (s signKeys) suits(k *signKey) bool {
	age := int64(s.p.now()) - k.Made
	sealed := s.seals.by != nil
	return age < int64(rotateEvery) && (sealed && len(k.Sealed) > 0 || !sealed && len(k.Private) > 0)
}

func (s signKeys) private(ctx context.Context, k *signKey) ([]byte, error) {
	if len(k.Private) > 0 {
		return k.Private, nil
	}
	return s.seals.open(ctx, "the key of workload identities", k.place(), k.Sealed)
}

// follow makes a new key that signs from now on, and forgets those whose tokens have ended.
func (s signKeys) follow(ctx context.Context, ring signRing, index uint64) error {
	private, err := jwks.NewKey(identityAlgorithm)
	if err != nil {
		return err
	}
	public, err := jwks.PublicOf(private)
	if err != nil {
		return err
	}
	now := int64(s.p.now())
	fresh := &signKey{ID: newID().String(), Public: public, Made: now}
	if s.seals.by == nil {
		s.told.Do(func() {
			s.p.d.Log.Warn("the key of workload identities is stored as it is: servers without a `secrets` block seal nothing")
		})
		fresh.Private = private
	} else if fresh.Sealed, err = s.seals.seal("the key of workload identities", fresh.place(), private); err != nil {
		return err
	}
	next := signRing{Keys: []*signKey{fresh}}
	for _, k := range ring.Keys {
		old := *k
		if old.Sealed, old.Private = nil, nil; old.Until == 0 {
			old.Until = now + int64(longestToken+signedLate)
		}
		if old.Until > now {
			next.Keys = append(next.Keys, &old)
		}
	}
	return s.store(ctx, next, index)
}

// store replaces what is stored if its index is still that one.
func (s signKeys) store(ctx context.Context, ring signRing, index uint64) error {
	body, err := json.Marshal(ring)
	if err != nil {
		return err
	}
	c := &jobstore.Command{Head: s.p.head(""), Names: jobstore.NameWrites{Docs: []jobstore.DocWrite{{Check: &index,
		Document: jobstore.Document{Table: jobstore.Keyring, Name: ringName, Body: string(body)}}, {Delete: true,
		Document: jobstore.Document{Table: jobstore.Keyring, Name: formerRing}}}}}
	_, err = s.p.group.propose(ctx, c)
	return err
}

// JWKS implements nomadrows.Keys. The keys are there also while nothing can be opened.
func (i identities) JWKS(ctx context.Context) (json.RawMessage, error) {
	ring, _ := i.keys.ring()
	if len(ring.Keys) == 0 {
		if _, _, err := i.keys.current(ctx); err != nil {
			return nil, err
		}
		ring, _ = i.keys.ring()
	}
	var list []jwks.Verifier
	for _, k := range ring.Keys {
		if k.Until == 0 || k.Until > int64(i.p.now()) {
			list = append(list, jwks.Verifier{ID: k.ID, Alg: identityAlgorithm, Public: k.Public})
		}
	}
	return jwks.Set(list)
}

// Rotate implements nomadrows.Keys.
func (i identities) Rotate(ctx context.Context) (nomadrows.SigningKey, error) {
	ring, index := i.keys.ring()
	if err := i.keys.follow(ctx, ring, index); err != nil {
		return nomadrows.SigningKey{}, err
	}
	list := i.Signing()
	if len(list) == 0 {
		return nomadrows.SigningKey{}, errkind.New(errkind.Unavailable, "the new key is not here yet: try again")
	}
	return list[0], nil
}

// Remove implements nomadrows.Keys.
func (i identities) Remove(ctx context.Context, id string) error {
	ring, index := i.keys.ring()
	at := slices.IndexFunc(ring.Keys, func(k *signKey) bool { return k.ID == id })
	switch {
	case at < 0:
		return errkind.Errorf(errkind.NotFound, "there is no key %q", id)
	case at == 0:
		return errkind.New(errkind.Invalid, "active root key cannot be deleted - call rotate first")
	}
	ring.Keys = slices.Delete(slices.Clone(ring.Keys), at, at+1)
	return i.keys.store(ctx, ring, index)
}

// Signing implements nomadrows.Keys.
func (i identities) Signing() (list []nomadrows.SigningKey) {
	ring, _ := i.keys.ring()
	for n, k := range ring.Keys {
		one := nomadrows.SigningKey{KeyID: k.ID, Algorithm: string(identityAlgorithm), CreateTime: k.Made, State: "inactive"}
		if n == 0 {
			one.State = "active"
		}
		list = append(list, one)
	}
	return list
}
