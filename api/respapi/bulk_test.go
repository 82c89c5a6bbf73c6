package respapi

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/usage/cache"
	"corbel.dev/corbel/usage/remote"
	"corbel.dev/corbel/usage/slots"
)

// TestBulk: shards are those of their slots, what is no shard, size or chunk is refused, and a chunk goes over.
func TestBulk(t *testing.T) {
	r := start(t, Config{})
	p := r.dial()
	shard := slots.Of([]byte("k")) / slotsOfShard
	r.play(p, strings.NewReplacer("SHARD", fmt.Sprint(shard), "OTHER", fmt.Sprint((shard+1)%bulkShards)).Replace(`
		SET k v => +OK
		USAGE.SNAPSHOT OTHER => ["0" ""]
		USAGE.SNAPSHOT 4096 => -`+wrongShard+`
		USAGE.SNAPSHOT SHARD 0 5 => -`+wrongBulkSize+`
		USAGE.SNAPSHOT SHARD -1 => -`+wrongNumber+`
		USAGE.RESTORE * 0 nonsense => -ERR these bytes are no part of a snapshot
	`))
	other := start(t, Config{})
	nc, err := net.Dial("tcp", other.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	cursor := uint64(0)
	keys, err := remote.Give(context.Background(), nc, "default", "", remote.Pace{BytesPerSecond: 1 << 30,
		Timeout: 30 * time.Second}, func() (chunk []byte, more bool) {
		chunk, cursor = r.cfg.Cache.Dump(nil, cursor, 1<<20, inShard(fmt.Append(nil, shard)))
		return chunk, cursor != 0
	})
	if keys != 1 || err != nil {
		t.Fatalf("%d keys went over: %v", keys, err)
	}
	other.cfg.Cache.Do([]byte("k"), func(e *cache.Entry) {
		if text, _, _ := e.Text(); string(text) != "v" {
			t.Errorf("it has %q", text)
		}
	})
}
