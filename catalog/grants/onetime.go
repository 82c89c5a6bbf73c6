package grants

import (
	"context"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// oneTimeLife is how long a one-time secret may be traded: the contract's.
const oneTimeLife = 10 * time.Minute

// maxOneTimes bounds those that wait to be traded: whoever has a token can ask for them.
const maxOneTimes = 4096

// OneTime makes a secret that Exchange trades for the token of that secret, once and within ten minutes. It is shown
// here alone: what is stored is its hash.
func (k *Keeper) OneTime(ctx context.Context, token string) (secret string, made acl.OneTime, err error) {
	secret = uuid.NewString()
	name := SecretName(secret)
	err = k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		t := find[acl.Token](st.RecordByName(catalog.RecordACLToken, SecretName(token)))
		if t == nil || t.Expired(k.now()) {
			return nil, errUnknown
		}
		waiting := 0
		for range st.Records(catalog.RecordOneTime, "") {
			waiting++
		}
		if waiting >= maxOneTimes {
			return nil, errkind.New(errkind.Overloaded, "too many one-time tokens wait to be exchanged")
		}
		made = acl.OneTime{AccessorID: t.AccessorID, ExpiresAt: k.now().Add(oneTimeLife)}
		return []catalog.RecordOp{put(catalog.RecordOneTime, name, "", 0, &made)}, nil
	})
	if err != nil {
		return "", acl.OneTime{}, err
	}
	if r := k.cfg.Store.State().Record(catalog.RecordOneTime, name); r != nil {
		made.CreateIndex, made.ModifyIndex = r.CreateIndex, r.ModifyIndex
	}
	return secret, made, nil
}

// Exchange trades a one-time secret for its token. Kind Denied: there is no such secret, its time is over, or it was
// traded before.
func (k *Keeper) Exchange(ctx context.Context, secret string) (t *acl.Token, err error) {
	err = k.change(ctx, func(st *statestore.State) ([]catalog.RecordOp, error) {
		r := st.Record(catalog.RecordOneTime, SecretName(secret))
		once := find[acl.OneTime](r)
		if once == nil || !k.now().Before(once.ExpiresAt) {
			return nil, errUnknown
		}
		if t = TokenByAccessor(st, once.AccessorID); t == nil || t.Expired(k.now()) {
			return nil, errUnknown
		}
		ShowToken(st, t)
		return []catalog.RecordOp{remove(catalog.RecordOneTime, r.Key, r.ModifyIndex)}, nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// staleOneTimes are the operations that remove one-time secrets whose time is over, and when the next one ends.
func staleOneTimes(st *statestore.State, now time.Time) (ops []catalog.RecordOp, next time.Time) {
	for r := range st.Records(catalog.RecordOneTime, "") {
		once := find[acl.OneTime](r)
		switch {
		case once == nil || !now.Before(once.ExpiresAt):
			ops = append(ops, remove(catalog.RecordOneTime, r.Key, r.ModifyIndex))
		case next.IsZero() || once.ExpiresAt.Before(next):
			next = once.ExpiresAt
		}
	}
	return ops, next
}
