package shardrouter

import (
	"sync"

	"corbel.dev/corbel/monitor/shards"
)

// A server whose event store is gone, though the table says that it shares a shard with another one, must not begin
// as if nothing had ever been there: it would be followed in that. It tells the leader of what it lacks, and takes
// nothing of these shards until the table says anew who has them.

// bitmap has a bit for each shard.
type bitmap [shards.Count / 8]byte

func (b *bitmap) set(n int)      { b[n/8] |= 1 << (n % 8) }
func (b *bitmap) has(n int) bool { return b[n/8]&(1<<(n%8)) != 0 }

// voids are the shards of which this server has nothing, though by the table it is to have them. founding says that
// this process was there before there was any table: then nobody can have anything.
type voids struct {
	founding bool // of the goroutine that follows the table
	mu       sync.Mutex
	all      bitmap
}

// begin notes what an empty store lacks of the first table that this process knows, and returns how many shards this
// server is known to have had everything of: none on one that is new.
func (v *voids) begin(t *shards.Table, self string) (had int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, one := range t {
		// whether that has everything the table may not tell yet
		if one.Replica != "" && (one.Owner == self || one.Replica == self || one.Next == self) {
			v.all.set(i)
			if one.Complete && one.Next != self {
				had++
			}
		}
	}
	return had
}

// settles reports whether a table that follows another says that nobody has more of a shard than this server, or
// gives it no part in it any more: then it is sent all of it when it gets one. That it is made the owner by who did
// not know what it lacks settles nothing: it tells the leader, and the former owner, which is its replica, goes on.
func settles(before, now shards.Shard, self string) bool {
	begunAnew := before.Owner == self && now.Epoch == before.Epoch+1
	return now.Owner == self && begunAnew || now.Owner != self && now.Replica != self && now.Next != self
}

// end says that it is settled who has a shard, or that this server has all of it again.
func (v *voids) end(shard uint16) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all[shard/8] &^= 1 << (shard % 8)
}

func (v *voids) has(shard uint16) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all.has(int(shard))
}

func (v *voids) list() bitmap {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all
}
