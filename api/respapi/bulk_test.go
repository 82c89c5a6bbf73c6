package respapi

import (
	"bufio"
	"fmt"
	"strings"
	"testing"

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
	chunk, next := r.cfg.Cache.Dump(nil, 0, 1<<20, inShard(fmt.Append(nil, shard)))
	q := other.dial()
	if _, err := q.Write(remote.AppendCommand(nil, "USAGE.RESTORE", "*", "0", string(chunk))); err != nil {
		t.Fatal(err)
	}
	if got, err := remote.ReadReply(bufio.NewReader(q)); got.Int != 1 || err != nil || next != 0 {
		t.Fatalf("%v: %v", got, err)
	}
	other.cfg.Cache.Do([]byte("k"), func(e *cache.Entry) {
		if text, _, _ := e.Text(); string(text) != "v" {
			t.Errorf("it has %q", text)
		}
	})
}
