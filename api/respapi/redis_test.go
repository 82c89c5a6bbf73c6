package respapi

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/redistest"
	"corbel.dev/corbel/usage/cache"
)

// TestAsRedis gives the same commands to a real redis-server and to the cache: every answer must be the same, to the
// byte, in both versions of the protocol. Where Redis promises no order, members are compared as a set.
func TestAsRedis(t *testing.T) {
	addr := redistest.Start(t, "--databases", "1")
	for _, version := range []string{"2", "3"} {
		t.Run("RESP"+version, func(t *testing.T) {
			c := cache.New(cache.Config{MaxBytes: 1 << 30, Clock: clock.Real{}})
			r := start(t, Config{Cache: c})
			ours := r.dial()
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = nc.Close() }()
			_ = nc.SetDeadline(time.Now().Add(time.Minute))
			theirs := &peer{nc, t, bufio.NewReaderSize(nc, 1<<20)}
			for _, p := range []*peer{ours, theirs} {
				p.send("HELLO", version)
				p.answer()
				p.send("FLUSHALL")
				p.answer()
			}
			n := 0
			for line := range strings.Lines(sameAnswers) {
				words := strings.Fields(line)
				if len(words) == 0 {
					continue
				}
				n++
				for i, w := range words {
					words[i] = strings.NewReplacer("<empty>", "", "<space>", " ").Replace(w)
				}
				ours.send(words...)
				theirs.send(words...)
				got, want := ours.answer(), theirs.answer()
				if strings.EqualFold(words[0], "SMEMBERS") || strings.EqualFold(words[0], "HGETALL") {
					got, want = sorted(got), sorted(want)
				}
				if got != want {
					t.Errorf("%s:\n  here %s\n redis %s", strings.TrimSpace(line), got, want)
				}
			}
			t.Logf("%d commands", n)
		})
	}
}

func sorted(answer string) string {
	words := strings.Fields(strings.Trim(answer, "~%[]"))
	slices.Sort(words)
	return strings.Join(words, " ")
}

// sameAnswers are commands, a line each, that go one after the other through both.
const sameAnswers = `
PING
PING hello
PING a b
ECHO hi
ECHO
SELECT 0
SELECT 1
SELECT x
CLIENT GETNAME
CLIENT SETNAME a<space>b
CLIENT SETNAME me
CLIENT GETNAME
CLIENT SETNAME <empty>
GET none
GET
GET a b
SET a
SET a 1
SET a 2 NX
SET a 2 XX
SET a 3 GET
SET a 4 NX GET
SET a 5 XX GET
SET a 6 EX 0
SET a 6 EX -1
SET a 6 EX x
SET a 6 EX
SET a 6 EX 10 PX 10
SET a 6 KEEPTTL EX 10
SET a 6 NX XX
SET a 6 FOO
SET a 6 EX 9223372036854775807
SET a 6 PX 9223372036854775807
SET a 6 EX 100
TTL a
SET a 7 KEEPTTL
TTL a
SET a 8
TTL a
SET a 8 EXAT 1
GET a
SET a 8 PXAT 99999999999999
EXISTS a a none
PERSIST a
PERSIST a
PERSIST none
TTL none
PTTL none
MSET a 1 b
MSET a 1 b 2 a 3
MGET a b none
MGET
SETNX a 9
SETNX new 9
SETEX a 0 v
SETEX a x v
SETEX a 10 v
TTL a
GETDEL a
GETDEL a
GETEX new EX 10
TTL new
GETEX new PERSIST
TTL new
GETEX new PERSIST EX 1
GETEX new EX 0
GETEX new FOO
GETEX none EX 10
INCR n
INCRBY n 41
INCRBY n x
INCRBY n 9223372036854775807
DECR n
INCRBY n -9223372036854775807
INCRBY n -9223372036854775807
SET n <space>1
INCR n
SET n 01
INCR n
SET n +1
INCR n
SET n -0
INCR n
SET n <empty>
INCR n
GET n
DEL n none
DEL n
UNLINK new b
TYPE none
TYPE a
SET t x
TYPE t
EXPIRE t 100 NX
EXPIRE t 100 NX
EXPIRE t 50 GT
EXPIRE t 200 GT
EXPIRE t 300 LT
EXPIRE t 100 LT
EXPIRE t 100 XX
EXPIRE t 100 NX XX
EXPIRE t 100 GT LT
EXPIRE t 100 NX GT
EXPIRE t 100 FOO
EXPIRE t x
EXPIRE t
EXPIRE none 10
EXPIRE t 9223372036854775807
EXPIRE t -9223372036854775808
PEXPIRE t 9223372036854775807
PEXPIRE t 100000
EXPIREAT t 99999999999
TTL none
EXPIRE t -1
EXISTS t
SET t x
EXPIRE t 100 GT
PERSIST t
EXPIRE t 100 LT
EXPIREAT t 1
EXISTS t
SADD s a b c a
SADD s
SADD s a
SISMEMBER s a
SISMEMBER s z
SISMEMBER none a
SMISMEMBER s a z
SMISMEMBER none a z
SMISMEMBER s
SCARD s
SCARD none
SMEMBERS s
SMEMBERS none
SREM s a z
SREM none a
SPOP none
SPOP none 2
SPOP s -1
SPOP s x
SPOP s 0
SPOP s 1 2
SSCAN none 0
SSCAN s x
SSCAN s 0 COUNT 0
SSCAN s 0 COUNT x
SSCAN s 0 FOO 1
SSCAN s 0 COUNT
SSCAN s 0 MATCH q*
TYPE s
GET s
INCR s
SET s x GET
SADD t2 1
SREM t2 1
EXISTS t2
HSET h f v
HSET h f v2 g w
HSET h f
HSET h f v g
HGET h f
HGET h none
HGET none f
HMGET h f none g
HMGET none f
HMGET h
HLEN h
HLEN none
HGETALL h
HGETALL none
HDEL h none
HDEL h f f
HDEL h g
EXISTS h
HSET h f v
SADD h x
HGET s f
TYPE h
PFADD p
PFADD p
PFADD p a b c
PFADD p a
PFCOUNT p
PFCOUNT none
PFCOUNT p none
PFADD s a
PFCOUNT s
PFMERGE s p
SET text hello
PFADD text a
PFCOUNT text
PFMERGE merged p none
PFCOUNT merged
PFMERGE empty
PFCOUNT empty
TYPE p
DEL p merged empty
SCAN x
SCAN 0 COUNT 0
SCAN 0 COUNT
SCAN 0 FOO bar
SCAN 0 MATCH zz* COUNT 1000
DBSIZE
WAIT 0 0
WAIT x 0
WAIT 0 x
WAIT 0 -1
MULTI
MULTI
SET a 1
INCR a
GET s
EXEC
EXEC
DISCARD
MULTI
GET
EXEC
MULTI
NOSUCH x
EXEC
MULTI
SET a 5
DISCARD
GET a
MULTI
EXEC
MULTI
PING
ECHO x
SELECT 0
SMEMBERS none
EXEC
CONFIG GET databases
CONFIG GET none
CONFIG
CONFIG GET
COMMAND COUNT x
COMMAND FOO
CONFIG FOO
CLIENT FOO
CLIENT ID x
CLIENT SETNAME
CLIENT
SET k v GET EX 5 NX
SET k v EX 5 GET XX
GETEX k EX
SMISMEMBER k a
DECR k
DEL k
GETDEL k x
PTTL
NOSUCH
NOSUCH a b c
FLUSHALL x
FLUSHALL ASYNC
DBSIZE
AUTH x
AUTH default x
AUTH a b c
HELLO 4
HELLO x
HELLO 3 FOO
`
