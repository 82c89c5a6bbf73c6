package kvstore

import (
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

func refuse(format string, args ...any) error {
	return errkind.Errorf(errkind.Internal, format, args...)
}

// Refused says, in the contract's words, why a verb of a transaction that writes lost.
func Refused(verb catalog.KVVerb, key string) error {
	switch verb {
	case catalog.KVCAS:
		return refuse("failed to set key %q, index is stale", key)
	case catalog.KVDeleteCAS:
		return refuse("failed to delete key %q, index is stale", key)
	case catalog.KVLock:
		return refuse("failed to lock key %q, lock is already held", key)
	}
	return refuse("failed to unlock key %q, lock isn't held, or is held by another session", key)
}

// Read carries out one of the verbs of a transaction that read, and appends what it gives.
func (e *Edit) Read(out []catalog.TxnResult, c *catalog.KV) ([]catalog.TxnResult, error) {
	key := c.Pair.Key
	if c.Verb == catalog.KVGetTree {
		for p := range under(e.pairs.Table, key) {
			out = append(out, catalog.TxnResult{KV: p})
		}
		return out, nil
	}
	p := e.Pair(key)
	switch {
	case c.Verb == catalog.KVCheckNotExists:
		if p != nil {
			return out, refuse("key %q exists", key)
		}
		return out, nil
	case p == nil && c.Verb == catalog.KVGetOrEmpty:
		return append(out, catalog.TxnResult{KV: &catalog.KVPair{Key: key}}), nil
	case p == nil:
		return out, refuse("key %q doesn't exist", key)
	case c.Verb == catalog.KVCheckIndex && p.ModifyIndex != c.Pair.ModifyIndex:
		return out, refuse("failed index check for key %q, current modify index %d != %d", key, p.ModifyIndex,
			c.Pair.ModifyIndex)
	case c.Verb == catalog.KVCheckSession && p.Session != c.Pair.Session:
		return out, refuse("failed session check for key %q, current session %q != %q", key, p.Session, c.Pair.Session)
	case c.Verb == catalog.KVGet, c.Verb == catalog.KVGetOrEmpty:
		return append(out, catalog.TxnResult{KV: p}), nil
	case c.Verb == catalog.KVCheckIndex, c.Verb == catalog.KVCheckSession:
		return append(out, catalog.TxnResult{KV: WithoutValue(p)}), nil
	}
	return out, refuse("unknown KV operation %d", c.Verb)
}

// WithoutValue is p as the contract shows it where it leaves the value out.
func WithoutValue(p *catalog.KVPair) *catalog.KVPair {
	bare := *p
	bare.Value = nil
	return &bare
}
