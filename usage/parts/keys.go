package parts

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/misses"
	"corbel.dev/corbel/usage/window"
)

const (
	// maxKeys bounds the keys of a request, keysBytes the answer, but for the first of them.
	maxKeys   = 1024
	keysBytes = 8 << 20
)

// Keys is Fetch of package misses: it asks the server that has the copy of a part, which has all that was acknowledged,
// for what it has counted. Where logs are in brokers there are no copies, and nothing is at hand.
func (p *Parts) Keys(ctx context.Context, part string, keys []misses.Key) ([][]byte, error) {
	now := p.cfg.Definitions.View().Part(part)
	if now.Copy == "" {
		return make([][]byte, len(keys)), nil
	}
	req := pack.Uint(pack.String(nil, part), uint64(len(keys)))
	for _, k := range keys {
		req = pack.Uint(pack.String(pack.String(req, k.Tenant), k.Product), uint64(k.Generation))
		req = pack.Int(pack.Int(req, k.From.UnixNano()), k.To.UnixNano())
	}
	var reply []byte
	var err error
	if now.Copy == p.cfg.Self {
		reply, err = p.serveKeys(ctx, req)
	} else {
		reply, err = p.cfg.Call(ctx, now.Copy, MethodKeys, req)
	}
	if err != nil {
		return nil, err
	}
	r := pack.Read(reply)
	list := make([][]byte, 0, len(keys))
	for range r.Count() {
		if r.Bool() {
			list = append(list, r.Bytes())
		} else {
			list = append(list, nil)
		}
	}
	return list, r.Err()
}

// serveKeys answers MethodKeys, of a part that this server leads or has the copy of.
func (p *Parts) serveKeys(_ context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	name, n := r.String(), r.Count()
	if err := p.check(r.Err(), name); err != nil {
		return nil, err
	}
	if n > maxKeys {
		return nil, errkind.Errorf(errkind.TooLarge, "usage: %d keys at once; the most is %d", n, maxKeys)
	}
	keys := make([]misses.Key, n)
	for i := range keys {
		keys[i] = misses.Key{
			Series: aggregate.Series{Tenant: r.String(), Product: r.String(), Generation: uint32(r.Uint())},
			Range:  window.Range{From: time.Unix(0, r.Int()), To: time.Unix(0, r.Int())}}
	}
	if err := p.check(r.Err(), name); err != nil {
		return nil, err
	}
	now := p.cfg.Definitions.View().Part(name)
	t := p.find(name)
	if t == nil || now.Copy != p.cfg.Self && now.Lead != p.cfg.Self {
		return nil, errNoPart
	}
	reply := pack.Uint(nil, uint64(n))
	for _, k := range keys {
		data := []byte(nil)
		if len(reply) < keysBytes {
			data = t.Counter.Share().Key(k.Series, k.Range)
		}
		if reply = pack.Bool(reply, data != nil); data != nil {
			reply = pack.Bytes(reply, data)
		}
	}
	return reply, nil
}
