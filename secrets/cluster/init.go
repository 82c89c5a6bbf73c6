package cluster

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/sealing"
)

// initWithin bounds the first start: the group elects itself, and writes.
const initWithin = 30 * time.Second

// Init initializes the storage that several servers share: with a term of its own, so that of two servers that try at
// once one finds it done. With Raft this server becomes the first member.
func (c *Cluster) Init(ctx context.Context, cfg *sealing.InitConfig) (*sealing.Initialized, error) {
	ctx, cancel := context.WithTimeout(ctx, initWithin)
	defer cancel()
	if st, err := c.keeper.SealStatus(ctx); err != nil || st.Initialized {
		if err == nil {
			err = errkind.New(errkind.Invalid, "Vault is already initialized")
		}
		return nil, err
	}
	if c.cfg.Raft != nil {
		if err := c.cfg.Raft.Found(ctx); err != nil {
			return nil, err
		}
	}
	r, err := c.cfg.Lock.Acquire(ctx)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "another server may be about to initialize the storage", err)
	}
	defer func() {
		release, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer done()
		r.Release(release)
	}()
	if err := c.cfg.Storage.Fence(ctx, r.Epoch()); err != nil {
		return nil, err
	}
	cfg.Epoch = r.Epoch()
	return c.keeper.InitWith(ctx, cfg)
}
