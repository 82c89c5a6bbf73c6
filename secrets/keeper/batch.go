package keeper

import (
	"context"
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/token"
)

var errCubbyhole = errkind.New(errkind.Invalid, "cubbyhole operations are only supported by \"service\" type tokens")

func (k *Keeper) openBatch(id string) (*token.Token, error) {
	return token.ReadBatch(id, func(record []byte) ([]byte, error) { return k.records.Barrier.OpenText(token.BatchName, record) })
}

// tokenByID finds a token, also one that is stored nowhere; nil for none. It may have expired.
func (k *Keeper) tokenByID(ctx context.Context, st *state, id string) (*token.Token, error) {
	if !token.IsBatch(id) {
		return st.book.Find(ctx, st.book.Hash(id))
	}
	tok, err := k.openBatch(id)
	if err != nil || tok == nil {
		return nil, err
	}
	tok.Hash = st.book.Hash(id)
	return tok, nil
}

// isBatch says of which kind a token becomes: what its mount says, else what was asked for, else
// what the mount says where nothing was.
func isBatch(asked, mount string) bool {
	switch {
	case mount == "service" || mount == "batch":
		return mount == "batch"
	case asked == "" || asked == "default":
		return mount == "default-batch"
	}
	return asked == "batch" || asked == "default-batch"
}

// checkTokenType refuses what is no word for it.
func checkTokenType(text string) error {
	if !slices.Contains([]string{"", "default", "service", "batch", "default-service", "default-batch"}, text) {
		return errkind.Errorf(errkind.Invalid, "field \"token_type\": %q is none of default-service, default-batch, service, batch", text)
	}
	return nil
}

// parentLives reports whether what a batch token was made below is there: nobody tells the token when that ends.
func (k *Keeper) parentLives(ctx context.Context, t *task, h *holder) (bool, error) {
	if !h.Batch || h.Parent == "" {
		return true, nil
	}
	parent, err := k.tokens.byHash(ctx, t.st, h.Parent, func() (*token.Token, error) { return t.st.book.Find(ctx, h.Parent) })
	return parent != nil && !parent.Expired(t.Now) && parent.Uses >= 0, err
}
