package keeper

import (
	"context"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/barrier"
)

// SealText encrypts what another plane stores, under the barrier's key of now. name says what it is and opens it again;
// it begins with the plane's own name and a slash. The error is of kind Unavailable while there are no keys.
func (k *Keeper) SealText(name string, plain []byte) ([]byte, error) {
	return k.records.Barrier.SealText(name, plain)
}

// OpenText gives what SealText encrypted for the name, on any server of the cluster; else an error of kind Corrupt.
func (k *Keeper) OpenText(ctx context.Context, name string, text []byte) ([]byte, error) {
	b := k.records.Barrier
	before, err := b.Status()
	if err != nil {
		return nil, err
	}
	plain, err := b.OpenText(name, text)
	if !errkind.Is(err, errkind.Corrupt) || barrier.Term(text) <= before.Term {
		return plain, err
	}
	if err := k.Refresh(ctx); err != nil { // the active server has begun a term that a standby does not know
		return nil, err
	}
	return b.OpenText(name, text)
}
