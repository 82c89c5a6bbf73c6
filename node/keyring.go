package node

import (
	"context"
	"errors"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/core/member"
)

// keyrings changes the gossip keys of the local pool and, on servers, of the one that joins datacenters.
type keyrings struct{ lan, wan *member.Pool }

// over runs op in each pool; what one pool did stays done when the other fails, as with members of one pool.
func (k keyrings) over(op func(*member.Pool) (member.KeyAnswer, error)) ([]operatorrows.KeyAnswer, error) {
	var list []operatorrows.KeyAnswer
	var errs []error
	for i, pool := range []*member.Pool{k.wan, k.lan} {
		if pool == nil || pool == k.wan && pool.Stopped() { // its port was another server's
			continue
		}
		a, err := op(pool)
		errs = append(errs, err)
		list = append(list, operatorrows.KeyAnswer{WAN: i == 0, NumNodes: a.NumNodes, Keys: a.Keys,
			PrimaryKeys: a.PrimaryKeys, Messages: a.Messages})
	}
	return list, errors.Join(errs...)
}

// ListKeys implements operatorrows.Keyring.
func (k keyrings) ListKeys(ctx context.Context, localOnly bool) ([]operatorrows.KeyAnswer, error) {
	return k.over(func(p *member.Pool) (member.KeyAnswer, error) {
		if localOnly {
			return p.LocalKeys()
		}
		return p.ListKeys(ctx)
	})
}

// InstallKey implements operatorrows.Keyring.
func (k keyrings) InstallKey(ctx context.Context, key string) error {
	_, err := k.over(func(p *member.Pool) (member.KeyAnswer, error) { return p.InstallKey(ctx, key) })
	return err
}

// UseKey implements operatorrows.Keyring.
func (k keyrings) UseKey(ctx context.Context, key string) error {
	_, err := k.over(func(p *member.Pool) (member.KeyAnswer, error) { return p.UseKey(ctx, key) })
	return err
}

// RemoveKey implements operatorrows.Keyring.
func (k keyrings) RemoveKey(ctx context.Context, key string) error {
	_, err := k.over(func(p *member.Pool) (member.KeyAnswer, error) { return p.RemoveKey(ctx, key) })
	return err
}
