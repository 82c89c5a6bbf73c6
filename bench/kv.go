package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// KvValueBytes is the size of written values: what the published runs used is
// not told; 64 bytes is a typical lock or flag value.
const KvValueBytes = 64

// KvKeys is how many distinct keys the load writes and reads.
const KvKeys = 1000

// RunKV measures KV PUT and GET at o.Connections, and with three servers stale GET at a follower.
func RunKV(ctx context.Context, o Options) (*Result, error) {
	if err := o.Complete(); err != nil {
		return nil, err
	}
	c, err := OpenTarget(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	r := NewResult("kv", &o)
	value := make([]byte, KvValueBytes)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	puts, gets, stale := make([][]byte, KvKeys), make([][]byte, KvKeys), make([][]byte, KvKeys)
	for i := range KvKeys {
		path := fmt.Sprintf("/v1/kv/bench/%d", i)
		puts[i] = Request("PUT", c.HTTP, path, o.Token, value)
		gets[i] = Request("GET", c.HTTP, path, o.Token, nil)
		stale[i] = Request("GET", c.HTTP, path+"?stale", o.Token, nil)
	}
	pick := func(list [][]byte) func(int, int64) []byte {
		return func(int, int64) []byte { return list[rand.IntN(KvKeys)] }
	}
	measure := func(what, addr string, list [][]byte, floor string) error {
		o.Say("%s at %d connections for %s ...", what, o.Connections, o.Duration)
		load, err := RunLoad(ctx, LoadSpec{Addr: addr, Connections: o.Connections, Duration: o.Duration,
			Warmup: o.Duration / 10, Next: pick(list)})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		row := load.Row(fmt.Sprintf("%s -c%d", what, o.Connections), floor)
		row.RSSBytes = c.rssBytes()
		r.Rows = append(r.Rows, row)
		return nil
	}
	// Every key is written once first, so that no GET misses.
	fill := 0
	if _, err := RunCount(ctx, c.HTTP, 8, KvKeys, func(int) []byte { fill++; return puts[fill-1] }); err != nil {
		return nil, fmt.Errorf("fill the keys: %w", err)
	}
	writeFloor := FloorHTTP
	if o.Connections == 1 {
		writeFloor = floorFsync
	}
	if err := measure("KV PUT", c.HTTP, puts, writeFloor); err != nil {
		return nil, err
	}
	if err := measure("KV GET", c.HTTP, gets, FloorHTTP); err != nil {
		return nil, err
	}
	if f := c.follower(); f != nil {
		if err := measure("KV GET ?stale at a follower", f.HTTP, stale, FloorHTTP); err != nil {
			return nil, err
		}
	}
	return r, r.AddFloors(ctx, &o)
}
