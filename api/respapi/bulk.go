package respapi

import (
	"strconv"

	"corbel.dev/corbel/usage/slots"
)

// A shard of a snapshot is four slots beside each other.
const (
	bulkShards    = 4096
	slotsOfShard  = slots.Count / bulkShards
	bulkBytes     = 1 << 20 // of a chunk where the client names no other size
	leastBulk     = 1 << 10
	wrongShard    = "ERR the shard is not 0 to 4095, or * for all"
	wrongBulkSize = "ERR the size of a chunk is not 1024 bytes to what a value may have"
)

// inShard returns what says whether a key belongs to a shard; nil where the word names none.
func inShard(word []byte) func(key string) bool {
	if string(word) == "*" {
		return func(string) bool { return true }
	}
	n, ok := integer(word)
	if !ok || n < 0 || n >= bulkShards {
		return nil
	}
	return func(key string) bool { return slots.Of([]byte(key))/slotsOfShard == int(n) }
}

func unsigned(b []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(b), 10, 63)
	return n, err == nil
}

// bulkSnapshot is USAGE.SNAPSHOT shard [cursor [bytes]]: the next cursor, which is 0 at the end, and a chunk of the
// shard's keys with their values, of about so many bytes.
func bulkSnapshot(c *conn, args [][]byte) {
	in := inShard(args[1])
	if in == nil {
		c.out.fail(wrongShard)
		return
	}
	cursor, size, ok := uint64(0), int64(bulkBytes), true
	if len(args) > 2 {
		cursor, ok = unsigned(args[2])
	}
	if len(args) > 3 && ok {
		if size, ok = integer(args[3]); !ok || size < leastBulk || size > int64(c.s.cfg.MaxBulkBytes) {
			c.out.fail(wrongBulkSize)
			return
		}
	}
	if !ok || len(args) > 4 {
		c.out.fail(wrongNumber)
		return
	}
	chunk, next := c.s.cfg.Cache.Dump(nil, cursor, int(size), in)
	c.out.array(2)
	c.out.text(strconv.FormatUint(next, 10))
	c.out.bulk(chunk)
}

// bulkRestore is USAGE.RESTORE shard offset chunk: it takes in a chunk of another host's, and answers with the offset
// behind it, which counts keys. What is here stays, for it is newer; so a chunk may be sent again.
func bulkRestore(c *conn, args [][]byte) {
	offset, ok := unsigned(args[2])
	switch {
	case inShard(args[1]) == nil:
		c.out.fail(wrongShard)
		return
	case !ok:
		c.out.fail(wrongNumber)
		return
	}
	may := func(string) bool { return true }
	if all := c.s.cfg.Copies; all != nil {
		may = func(key string) bool { return all.Mine(slots.Of([]byte(key))) }
	}
	keys, err := c.s.cfg.Cache.Take(args[3], may)
	if err != nil {
		c.out.fail("ERR " + err.Error())
		return
	}
	c.out.int(int64(offset) + int64(keys))
}
