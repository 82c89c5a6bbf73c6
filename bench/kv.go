package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// kvValueBytes is the size of written values: what the published runs used is
// not told; 64 bytes is a typical lock or flag value.
const kvValueBytes = 64

// kvKeys is how many distinct keys the load writes and reads.
const kvKeys = 1000

// RunKV measures KV PUT and GET at o.Connections, and with three servers stale GET at a follower.
func RunKV(ctx context.Context, o Options) (*Result, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	c, err := openTarget(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	r := newResult("kv", &o)
	value := make([]byte, kvValueBytes)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	puts, gets, stale := make([][]byte, kvKeys), make([][]byte, kvKeys), make([][]byte, kvKeys)
	for i := range kvKeys {
		path := fmt.Sprintf("/v1/kv/bench/%d", i)
		puts[i] = request("PUT", c.http, path, o.Token, value)
		gets[i] = request("GET", c.http, path, o.Token, nil)
		stale[i] = request("GET", c.http, path+"?stale", o.Token, nil)
	}
	pick := func(list [][]byte) func(int, int64) []byte {
		return func(int, int64) []byte { return list[rand.IntN(kvKeys)] }
	}
	measure := func(what, addr string, list [][]byte, floor string) error {
		o.say("%s at %d connections for %s ...", what, o.Connections, o.Duration)
		load, err := runLoad(ctx, loadSpec{addr: addr, connections: o.Connections, duration: o.Duration,
			warmup: o.Duration / 10, next: pick(list)})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		row := load.row(fmt.Sprintf("%s -c%d", what, o.Connections), floor)
		row.RSSBytes = c.rssBytes()
		r.Rows = append(r.Rows, row)
		return nil
	}
	// Every key is written once first, so that no GET misses.
	fill := 0
	if _, err := runCount(ctx, c.http, 8, kvKeys, func(int) []byte { fill++; return puts[fill-1] }); err != nil {
		return nil, fmt.Errorf("fill the keys: %w", err)
	}
	writeFloor := floorHTTP
	if o.Connections == 1 {
		writeFloor = floorFsync
	}
	if err := measure("KV PUT", c.http, puts, writeFloor); err != nil {
		return nil, err
	}
	if err := measure("KV GET", c.http, gets, floorHTTP); err != nil {
		return nil, err
	}
	if f := c.follower(); f != nil {
		if err := measure("KV GET ?stale at a follower", f.HTTP, stale, floorHTTP); err != nil {
			return nil, err
		}
	}
	return r, r.addFloors(ctx, &o)
}
