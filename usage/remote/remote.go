// Package remote is the remote cache as counters use it: the seam Store, and Client, an engine that speaks to hosts of
// Corbel's own cache, or of anything that speaks the Redis protocol, without a proxy. The other engine, for a Redis or
// Valkey of somebody's own, is usage/remote/rediscache; usage/remote/remotetest is the kit that both pass.
//
// What always holds of Client:
//   - A call ends when its context does, and after Config.Timeout at the latest.
//   - Calls of many goroutines for one host travel together: up to BatchKeys commands, or those of BatchWait, in one
//     write, on few connections with ports of their own, so that a network card spreads them over its queues.
//   - What waits for a host is bounded; beyond it a call fails at once (kind Overloaded), and nothing piles up.
//   - Each key is written to its owner and its replicas; to its owner alone where that makes the copies. A read that
//     the owner has not answered after the 95th
//     percentile of its round trips also goes to the replica, and the first answer counts that has the value.
//   - A host that is not in the map for two of Config.Timeout loses its connections.
//   - A host that says it drains, by its maintenance key or by a push, is left out at once: what was sent to it is
//     answered, and the next call goes to who owns the key then.
//
// It is a cache: a key may be gone at any time, and a replica may be older than its owner. New starts nothing; Run owns
// all goroutines.
package remote

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Store is a remote cache. All methods are for any goroutine; many keys at a time are cheaper than one.
type Store interface {
	// Get returns the values of keys, nil for those that are not there.
	Get(ctx context.Context, keys ...string) ([][]byte, error)
	// Set writes values.
	Set(ctx context.Context, items ...Item) error
	// Delete removes keys.
	Delete(ctx context.Context, keys ...string) error
	// Add adds members to the set of a key, and says which were new. A life above zero is the key's from now on.
	Add(ctx context.Context, key string, life time.Duration, members ...string) (fresh int, err error)
	// Has says which are members of the set of a key.
	Has(ctx context.Context, key string, members ...string) ([]bool, error)
	// Count adds members to the sketch of a key, and returns about how many different ones it has seen.
	Count(ctx context.Context, key string, life time.Duration, members ...string) (about int64, err error)
}

// Item is a key with its value. A Life of zero has no end.
type Item struct {
	Key   string
	Value []byte
	Life  time.Duration
}

// The errors of stores, beside those of the network.
var (
	ErrFull  = errkind.New(errkind.Overloaded, "usage cache: too many commands wait for this host")
	ErrHosts = errkind.New(errkind.Unavailable, "usage cache: no host of the cache is known")
	ErrEnded = errkind.New(errkind.Unavailable, "usage cache: the client has ended")
)
