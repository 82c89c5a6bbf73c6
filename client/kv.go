package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
)

// KV is the key-value store as an agent serves it.
type KV struct{ c *Client }

// KV reads and writes keys through this client.
func (c *Client) KV() KV { return KV{c} }

// Get reads one key; nil when it does not exist, with the index to wait on.
func (k KV) Get(ctx context.Context, key string, q Query) (*KVPair, Meta, error) {
	pairs, meta, err := k.pairs(ctx, key, q, q.Values())
	if err != nil || len(pairs) == 0 {
		return nil, meta, err
	}
	return &pairs[0], meta, nil
}

// List reads all keys under a prefix in lexical order.
func (k KV) List(ctx context.Context, prefix string, q Query) ([]KVPair, Meta, error) {
	v := q.Values()
	v.Set("recurse", "")
	return k.pairs(ctx, prefix, q, v)
}

// pairs reads pairs.
func (k KV) pairs(ctx context.Context, key string, q Query, v url.Values) (out []KVPair, meta Meta, err error) {
	meta, err = k.read(ctx, key, q, v, &out)
	return out, meta, err
}

// Keys reads the names under a prefix, up to the next separator when one is given.
func (k KV) Keys(ctx context.Context, prefix, separator string, q Query) (out []string, meta Meta, err error) {
	v := q.Values()
	v.Set("keys", "")
	if separator != "" {
		v.Set("separator", separator)
	}
	meta, err = k.read(ctx, prefix, q, v, &out)
	return out, meta, err
}

// read takes the contract's 404 without a text as "nothing there", with its index.
func (k KV) read(ctx context.Context, key string, q Query, v url.Values, out any) (Meta, error) {
	meta, err := k.c.call(ctx, http.MethodGet, "/v1/kv/"+Escape(key), v, nil, out, q.blockFor())
	var e *Error
	if errors.As(err, &e) && e.Code == http.StatusNotFound && e.Body == "" {
		return e.Meta, nil
	}
	return meta, err
}

// KVWrite says how a key is written. At most one of CAS, Acquire and Release.
type KVWrite struct {
	Flags            uint64
	CAS              *uint64 // only if the key's ModifyIndex is this; 0: only if absent
	Acquire, Release string  // session
}

// Put writes a key; false when CAS, Acquire or Release did not hold.
func (k KV) Put(ctx context.Context, key string, value []byte, w KVWrite) (ok bool, err error) {
	v := url.Values{}
	if w.Flags != 0 {
		v.Set("flags", strconv.FormatUint(w.Flags, 10))
	}
	if w.CAS != nil {
		v.Set("cas", strconv.FormatUint(*w.CAS, 10))
	}
	if w.Acquire != "" {
		v.Set("acquire", w.Acquire)
	}
	if w.Release != "" {
		v.Set("release", w.Release)
	}
	if value == nil {
		value = []byte{}
	}
	err = k.c.Put(ctx, "/v1/kv/"+Escape(key), v, value, &ok)
	return ok, err
}

// Delete deletes a key, or all under it; false when cas did not hold.
func (k KV) Delete(ctx context.Context, key string, recurse bool, cas *uint64) (ok bool, err error) {
	v := url.Values{}
	if recurse {
		v.Set("recurse", "")
	}
	if cas != nil {
		v.Set("cas", strconv.FormatUint(*cas, 10))
	}
	_, err = k.c.call(ctx, http.MethodDelete, "/v1/kv/"+Escape(key), v, nil, &ok, 0)
	return ok, err
}
