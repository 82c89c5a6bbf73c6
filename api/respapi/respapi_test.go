package respapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/usage/cache"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// rig is a server under test.
type rig struct {
	*Server
	t    *testing.T
	addr string
	hand *clock.Fake
}

func start(t *testing.T, cfg Config) *rig {
	t.Helper()
	hand := clock.NewFake(time.Unix(1_700_000_000, 0))
	if cfg.Cache == nil {
		cfg.Cache = cache.New(cache.Config{Clock: hand, MaxBytes: 1 << 30})
	}
	cfg.Clock = hand
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Server: New(cfg), t: t, addr: ln.Addr().String(), hand: hand}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// peer is a client that sees the bytes.
type peer struct {
	net.Conn
	t  *testing.T
	in *bufio.Reader
}

func (r *rig) dial() *peer {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	return &peer{nc, r.t, bufio.NewReaderSize(nc, 1<<20)}
}

// send sends words as a command.
func (p *peer) send(words ...string) {
	p.t.Helper()
	p.raw(encode(words...))
}

func encode(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// hostile sends what may get the connection cut before all of it is sent.
func (p *peer) hostile(text string) { _, _ = io.WriteString(p, text) }

func (p *peer) raw(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		p.t.Fatal(err)
	}
}

// answer reads one answer and writes it down in one line: as it came, with spaces between its parts.
func (p *peer) answer() string {
	p.t.Helper()
	text, err := read(p.in)
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

func read(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	n, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '$':
		if n < 0 {
			return "nil", nil
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return "", err
		}
		return strconv.Quote(string(b[:n])), nil
	case '*', '~', '%', '>':
		if n < 0 {
			return "nil array", nil
		}
		parts := []string{}
		if line[0] == '%' {
			n *= 2
		}
		for range n {
			part, err := read(in)
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		return strings.Trim(line[:1], "*") + "[" + strings.Join(parts, " ") + "]", nil
	}
	return line, nil
}

// play does lines of "command => answer"; words have no spaces, and _ is an empty one.
func (r *rig) play(p *peer, script string) {
	r.t.Helper()
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if wait, ok := strings.CutPrefix(line, "wait "); ok {
			d, err := time.ParseDuration(wait)
			if err != nil {
				r.t.Fatal(err)
			}
			r.hand.Advance(d)
			continue
		}
		command, want, ok := strings.Cut(line, " => ")
		if !ok {
			continue
		}
		words := strings.Fields(command)
		for i, w := range words {
			words[i] = strings.TrimPrefix(w, "_")
		}
		p.send(words...)
		if got := strings.TrimRight(p.answer(), " "); got != want {
			r.t.Errorf("%s:\n got %s\nwant %s", command, got, want)
		}
	}
}

func TestTexts(t *testing.T) {
	r := start(t, Config{})
	r.play(r.dial(), `
		GET a => nil
		SET a 1 => +OK
		get a => "1"
		SET a 2 NX => nil
		SET b 2 XX => nil
		SET a 2 GET => "1"
		SET b 3 GET => nil
		SET b 4 NX GET => "3"
		GET b => "3"
		SET a x EX 10 => +OK
		TTL a => :10
		SET a y KEEPTTL => +OK
		PTTL a => :10000
		SET a z => +OK
		TTL a => :-1
		TTL none => :-2
		SET a z PX 1500 => +OK
		TTL a => :2
		wait 1499ms
		GET a => "z"
		wait 1ms
		GET a => nil
		SET a z EXAT 1700000100 => +OK
		SET a z PXAT 1 => +OK
		EXISTS a => :0
		SET a z EX 0 => -ERR invalid expire time in 'set' command
		SET a z EX -1 => -ERR invalid expire time in 'set' command
		SET a z EX 9223372036854775807 => -ERR invalid expire time in 'set' command
		SET a z PX 9223372036854775807 => -ERR invalid expire time in 'set' command
		SET a z EX 1.5 => -ERR value is not an integer or out of range
		SET a z EX => -ERR syntax error
		SET a z EX 1 PX 1 => -ERR syntax error
		SET a z NX XX => -ERR syntax error
		SET a z EX 1 KEEPTTL => -ERR syntax error
		SET a z WHAT => -ERR syntax error
		SET a => -ERR wrong number of arguments for 'set' command
		SETEX a 5 v => +OK
		TTL a => :5
		SETEX a 0 v => -ERR invalid expire time in 'setex' command
		SETNX a w => :0
		SETNX c w => :1
		GETEX c EX 7 => "w"
		TTL c => :7
		GETEX c PERSIST => "w"
		TTL c => :-1
		GETEX c NX => -ERR syntax error
		GETDEL c => "w"
		GETDEL c => nil
		MSET m1 a m2 b m1 c => +OK
		MGET m1 none m2 => ["c" nil "b"]
		MSET m1 a m2 => -ERR wrong number of arguments for 'mset' command
		INCR n => :1
		INCRBY n 41 => :42
		DECR n => :41
		INCRBY n x => -ERR value is not an integer or out of range
		SET n 9223372036854775807 => +OK
		INCR n => -ERR increment or decrement would overflow
		SET n 01 => +OK
		INCR n => -ERR value is not an integer or out of range
		SET n +1 => +OK
		INCR n => -ERR value is not an integer or out of range
		SET n -9223372036854775808 => +OK
		DECR n => -ERR increment or decrement would overflow
		SET _ _ => +OK
		GET _ => ""
	`)
}

func TestKeys(t *testing.T) {
	r := start(t, Config{})
	r.play(r.dial(), `
		MSET a 1 b 2 => +OK
		SADD s x => :1
		EXISTS a a b none => :3
		DBSIZE => :3
		DEL a none => :1
		UNLINK b b => :1
		TYPE s => +set
		TYPE none => +none
		HSET h f v => :1
		TYPE h => +hash
		PFADD p x => :1
		TYPE p => +string
		SET t v => +OK
		TYPE t => +string
		EXPIRE none 5 => :0
		EXPIRE t 5 => :1
		EXPIRE t 9 LT => :0
		EXPIRE t 9 GT => :1
		EXPIRE t 4 NX => :0
		PEXPIRE t 4000 XX => :1
		TTL t => :4
		EXPIRE t 4 NX GT => -ERR NX and XX, GT or LT options at the same time are not compatible
		EXPIRE t 4 GT LT => -ERR GT and LT options at the same time are not compatible
		EXPIRE t 4 WHAT => -ERR Unsupported option WHAT
		EXPIRE t x => -ERR value is not an integer or out of range
		EXPIRE t 9223372036854775807 => -ERR invalid expire time in 'expire' command
		PERSIST t => :1
		PERSIST t => :0
		EXPIRE t 9 GT => :0
		EXPIRE t 9 LT => :1
		EXPIREAT t 1700000050 => :1
		TTL t => :50
		EXPIRE t -1 => :1
		EXISTS t => :0
		SCAN x => -ERR invalid cursor
		SCAN 0 COUNT 0 => -ERR syntax error
		SCAN 0 MATCH => -ERR syntax error
		SCAN 0 COUNT 100 TYPE hash => ["0" ["h"]]
		SCAN 0 COUNT 100 MATCH [a-h] => ["0" ["h"]]
		FLUSHALL NOW => -ERR syntax error
		FLUSHALL ASYNC => +OK
		DBSIZE => :0
		SELECT 0 => +OK
		SELECT 1 => -ERR DB index is out of range
		WAIT 1 0 => :0
		NOSUCH a b => -ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' 
		WATCH a => -ERR unknown command 'WATCH', with args beginning with: 'a' 
		CLUSTER KEYSLOT 123456789 => :12739
		CLUSTER KEYSLOT {user}.x => :5474
		COMMAND COUNT => :59
		COMMAND INFO get none => [["get" :2 [+readonly +fast] :1 :1 :1] nil array]
		CONFIG GET data* => ["databases" "1"]
		CONFIG SET a b => -ERR unknown subcommand 'SET'. Try CONFIG HELP.
		ECHO hi => "hi"
		PING => +PONG
		PING hi => "hi"
	`)
}

func TestSetsHashesSketches(t *testing.T) {
	r := start(t, Config{})
	p := r.dial()
	r.play(p, `
		SADD s a b a => :2
		SADD s b c => :1
		SCARD s => :3
		SISMEMBER s a => :1
		SISMEMBER s z => :0
		SMISMEMBER s a z b => [:1 :0 :1]
		SMISMEMBER none a => [:0]
		SREM s a z => :1
		SMEMBERS none => []
		SSCAN s 0 COUNT 10 MATCH b => ["0" ["b"]]
		SSCAN s 0 TYPE set => -ERR syntax error
		SREM s b c => :2
		EXISTS s => :0
		SPOP s => nil
		SPOP s 3 => []
		SADD s one => :1
		SPOP s => "one"
		SADD s one => :1
		SPOP s -1 => -ERR value is out of range, must be positive
		SPOP s 5 => ["one"]
		TYPE s => +none
		HSET h f 1 g 2 f 3 => :2
		HGET h f => "3"
		HGET h none => nil
		HGET none f => nil
		HMGET h f none g => ["3" nil "2"]
		HLEN h => :2
		HDEL h f f => :1
		HGETALL h => ["g" "2"]
		HDEL h g => :1
		EXISTS h => :0
		HSET h f => -ERR wrong number of arguments for 'hset' command
		PFADD p a b c => :1
		PFADD p a => :0
		PFADD q => :1
		PFADD q => :0
		PFCOUNT p => :3
		PFADD q c d => :1
		PFCOUNT p q none => :4
		PFMERGE r p q => +OK
		PFCOUNT r => :4
		PFCOUNT none => :0
		SET text plain => +OK
		PFADD text a => -WRONGTYPE Key is not a valid HyperLogLog string value.
		SADD set a => :1
		GET set => -WRONGTYPE Operation against a key holding the wrong kind of value
		INCR set => -WRONGTYPE Operation against a key holding the wrong kind of value
		SADD text a => -WRONGTYPE Operation against a key holding the wrong kind of value
		HGET set a => -WRONGTYPE Operation against a key holding the wrong kind of value
		PFCOUNT set => -WRONGTYPE Operation against a key holding the wrong kind of value
		SET set x GET => -WRONGTYPE Operation against a key holding the wrong kind of value
		MGET set text => [nil "plain"]
		SET set x => +OK
	`)
	for i := range 100 {
		words := []string{"PFADD", "many"}
		for k := range 1000 {
			words = append(words, fmt.Sprint(i*1000+k))
		}
		p.send(words...)
		p.answer()
	}
	p.send("PFCOUNT", "many")
	if n, _ := strconv.Atoi(p.answer()[1:]); n < 97_000 || n > 103_000 {
		t.Errorf("100,000 counted as %d", n)
	}
}

func TestTransactions(t *testing.T) {
	r := start(t, Config{MaxCommandBytes: 4000})
	p := r.dial()
	r.play(p, `
		EXEC => -ERR EXEC without MULTI
		DISCARD => -ERR DISCARD without MULTI
		MULTI => +OK
		SET a 1 => +QUEUED
		INCR a => +QUEUED
		SADD a x => +QUEUED
		DBSIZE => +QUEUED
		MULTI => -ERR MULTI calls can not be nested
		EXEC => [+OK :2 -`+wrongKind+` -ERR Command not allowed inside a transaction]
		GET a => "2"
		MULTI => +OK
		SET a 9 => +QUEUED
		NOSUCH => -ERR unknown command 'NOSUCH', with args beginning with: 
		EXEC => -EXECABORT Transaction discarded because of previous errors.
		GET a => "2"
		MULTI => +OK
		SET a 9 => +QUEUED
		DISCARD => +OK
		GET a => "2"
		MULTI => +OK
		MSET x 1 y 2 => +QUEUED
		PFADD p 1 => +QUEUED
		PFMERGE q p => +QUEUED
		PFCOUNT q p => +QUEUED
		MGET x y => +QUEUED
		EXEC => [+OK :1 +OK :1 ["1" "2"]]
		MULTI => +OK
		EXEC => []
	`)
	p.send("MULTI")
	p.answer()
	large := strings.Repeat("x", 3000)
	p.send("SET", "a", large)
	p.answer()
	p.send("SET", "b", large)
	if got := p.answer(); !strings.Contains(got, "too large") {
		t.Error(got)
	}
	p.send("EXEC")
	if got := p.answer(); !strings.HasPrefix(got, "-EXECABORT") {
		t.Error(got)
	}
	p.send("SET", "a", large)
	p.answer()
	p.send("MULTI")
	p.answer()
	for range 10 {
		p.send("GET", "a")
		p.answer()
	}
	p.send("EXEC")
	if got := p.answer(); strings.Count(got, "xxx\"") > 3 || strings.Count(got, "too large") < 7 {
		t.Errorf("%d bytes", len(got))
	}
	r.play(p, `DBSIZE => :5`)
}

func TestThirdProtocol(t *testing.T) {
	r := start(t, Config{})
	p := r.dial()
	p.send("HELLO", "3", "SETNAME", "me")
	if got := p.answer(); !strings.HasPrefix(got, `%["server" "redis" "version" "7.2.0" "proto" :3 "id" :`) {
		t.Error(got)
	}
	r.play(p, `
		GET a => _
		CLIENT GETNAME => "me"
		SADD s x => :1
		SMEMBERS s => ~["x"]
		HSET h f v => :1
		HGETALL h => %["f" "v"]
		CONFIG GET databases => %["databases" "1"]
		HELLO 4 => -NOPROTO unsupported protocol version
		HELLO x => -ERR Protocol version is not an integer or out of range
		HELLO 3 WHAT => -ERR Syntax error in HELLO option 'WHAT'
	`)
	p.send("HELLO", "2")
	p.answer()
	r.play(p, `GET a => nil`)
}

func TestStrangers(t *testing.T) {
	right := func(user, password string) bool { return user == "default" && password == "right" }
	r := start(t, Config{Authenticate: right})
	p := r.dial()
	r.play(p, `
		GET a => -NOAUTH Authentication required.
		PING => -NOAUTH Authentication required.
		NOSUCH => -NOAUTH Authentication required.
		AUTH wrong => -WRONGPASS invalid username-password pair or user is disabled.
		AUTH other right => -WRONGPASS invalid username-password pair or user is disabled.
		AUTH a b c => -ERR syntax error
		MULTI => -NOAUTH Authentication required.
		AUTH right => +OK
		GET a => nil
	`)
	for _, hostile := range []string{"*11\r\n", "*2\r\n$20000\r\n"} {
		p := r.dial()
		p.hostile(hostile)
		if got := p.answer(); !strings.HasPrefix(got, "-ERR Protocol error: unauthenticated") {
			t.Error(got)
		}
	}
	open := start(t, Config{})
	open.play(open.dial(), `AUTH x => -ERR AUTH <password> called without any password configured for the default user. `+
		`Are you sure your configuration is correct?`)
}

// What a client sends cannot take memory that its bytes do not fill, nor end the process, and it is told what is wrong.
func TestHostile(t *testing.T) {
	r := start(t, Config{MaxBulkBytes: 1000, MaxCommandBytes: 3000})
	for _, test := range []struct{ sent, want string }{
		{"*1\r\n$9223372036854775807\r\nx", "-ERR Protocol error: invalid bulk length"},
		{"*1\r\n$9223372036854775808\r\nx", "-ERR Protocol error: invalid bulk length"},
		{"*1\r\n$18446744073709551617\r\nx", "-ERR Protocol error: invalid bulk length"},
		{"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length"},
		{"*1\r\n$1001\r\n", "-ERR Protocol error: invalid bulk length"},
		{"*1\r\n$\r\n", "-ERR Protocol error: invalid bulk length"},
		{"*1\r\n$1x\r\n", "-ERR Protocol error: invalid bulk length"},
		{"*2147483648\r\n", "-ERR Protocol error: invalid multibulk length"},
		{"*9223372036854775808\r\n", "-ERR Protocol error: invalid multibulk length"},
		{"*1048577\r\n", "-ERR Protocol error: invalid multibulk length"},
		{"*x\r\n", "-ERR Protocol error: invalid multibulk length"},
		{"*1\r\n*1\r\n$4\r\nPING\r\n", `-ERR Protocol error: expected '$', got "*"`},
		{"*1\r\n\r\n", `-ERR Protocol error: expected '$', got ""`},
		{"*1\r\n$4\r\nPINGxx\r\n", "-ERR Protocol error: a bulk does not end where it says"},
		{"*4\r\n" + strings.Repeat("$1000\r\n"+strings.Repeat("x", 1000)+"\r\n", 4),
			"-ERR Protocol error: the command is too large"},
		{strings.Repeat("x", maxLineBytes+1), "-ERR Protocol error: too big a line"},
		{"ECHO \"open\r\n", "-ERR Protocol error: unbalanced quotes in request"},
		{"ECHO \"a\"b\r\n", "-ERR Protocol error: unbalanced quotes in request"},
	} {
		p := r.dial()
		p.hostile(test.sent)
		if got := p.answer(); got != test.want {
			t.Errorf("%.40q: got %s, want %s", test.sent, got, test.want)
		}
		if _, err := p.in.ReadByte(); err == nil {
			t.Errorf("%.40q: the connection goes on", test.sent)
		}
	}
	for _, test := range []struct{ sent, want string }{
		{"\r\n*0\r\n*-1\r\nPING\r\n", "+PONG"}, // nothing, three times
		{"ECHO \"a b\"\r\n", `"a b"`},
		{"ECHO 'it is'\r\n", `"it is"`},
		{"ping\n", "+PONG"},
		{"*1\r\n$4\r\nP\r\nG\r\n", `-ERR unknown command 'P  G', with args beginning with: `},
		{"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", "nil"},
	} {
		p := r.dial()
		p.hostile(test.sent)
		if got := p.answer(); got != test.want {
			t.Errorf("%.40q: got %s, want %s", test.sent, got, test.want)
		}
	}
	// Byte by byte.
	p := r.dial()
	for _, b := range encode("SET", "slow", "value") {
		p.raw(string(b))
	}
	if got := p.answer(); got != "+OK" {
		t.Error(got)
	}
}

// All connections together hold no more than the budget, and what was held comes back.
func TestMemoryIsShared(t *testing.T) {
	memory := limit.NewBytes(8<<20, nil)
	r := start(t, Config{Memory: memory})
	p := r.dial()
	p.hostile("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8000000\r\n" + strings.Repeat("x", 3<<20))
	if got := p.answer(); !strings.HasPrefix(got, "-OOM ") {
		t.Error(got)
	}
	_ = p.Close()
	polltest.Until(t, func() bool { return memory.Stats().Used == 0 }, "memory to come back")
	readers := 0
	r.cfg.Cache.Do([]byte("large"), func(e *cache.Entry) {
		if err := e.SetText(make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
	})
	for range 4 { // who asks and does not read has it in the server's memory
		p := r.dial()
		p.raw(strings.Repeat(encode("GET", "large"), 20))
		if text, err := p.in.Peek(4); err == nil && string(text) != "-OOM" {
			readers++
		}
		defer p.Close()
	}
	if high := memory.Stats().High; readers == 0 || readers > 2 || high > 8<<20 {
		t.Errorf("%d readers, %d bytes at once", readers, high)
	}
}

func TestMemoryComesBack(t *testing.T) {
	memory := limit.NewBytes(8<<20, nil)
	r := start(t, Config{Memory: memory})
	p := r.dial()
	for range 5 {
		p.send("SET", "k", strings.Repeat("x", 500_000))
		if got := p.answer(); got != "+OK" {
			t.Fatal(got)
		}
	}
	if high := memory.Stats().High; high == 0 || high > 8<<20 {
		t.Error(high)
	}
}

// A client that does not read is cut, and holds up nobody.
func TestSlowReader(t *testing.T) {
	r := start(t, Config{WriteTimeout: 300 * time.Millisecond})
	p := r.dial()
	p.send("SET", "k", strings.Repeat("x", 1<<20))
	p.answer()
	go func() {
		for range 1000 {
			if _, err := io.WriteString(p, encode("GET", "k")); err != nil {
				return
			}
		}
	}()
	other := r.dial()
	polltest.Until(t, func() bool {
		other.send("PING")
		if got := other.answer(); got != "+PONG" {
			t.Fatal(got)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.conns) == 1
	}, "the slow reader to be cut")
	_ = p.Close()
}

// A client that stops in the middle of a command is cut; one that says nothing stays.
func TestHalfCommands(t *testing.T) {
	r := start(t, Config{ReadTimeout: 50 * time.Millisecond})
	quiet := r.dial()
	r.play(quiet, `PING => +PONG`)
	for _, half := range []string{"*2\r\n", "*2\r\n$3\r\nGET\r\n", "*2\r\n$3\r\nGET\r\n$100\r\nabc",
		"*2\r\n$3\r\nSET\r\n$9000000\r\n" + strings.Repeat("x", 200_000)} {
		p := r.dial()
		p.hostile(half)
		if _, err := p.in.ReadByte(); err == nil {
			t.Errorf("%.30q is answered", half)
		}
	}
	r.play(quiet, `PING => +PONG`)
}

// Pipelined commands are answered in order, by long answers too.
func TestPipeline(t *testing.T) {
	r := start(t, Config{})
	p := r.dial()
	const n = 2000
	value := strings.Repeat("v", 300)
	go func() {
		var b strings.Builder
		for i := range n {
			b.WriteString(encode("SET", fmt.Sprint("k", i), value+fmt.Sprint(i)))
			b.WriteString(encode("GET", fmt.Sprint("k", i)))
		}
		_, _ = io.WriteString(p, b.String())
	}()
	for i := range n {
		if got := p.answer(); got != "+OK" {
			t.Fatal(got)
		}
		if got := p.answer(); got != strconv.Quote(value+fmt.Sprint(i)) {
			t.Fatal(i, got)
		}
	}
	words := []string{"MGET"}
	for i := range n {
		words = append(words, fmt.Sprint("k", i))
	}
	p.send(words...)
	if got := p.answer(); strings.Count(got, value) != n {
		t.Fatal(len(got))
	}
	p.raw(encode("QUIT") + encode("PING"))
	if got := p.answer(); got != "+OK" {
		t.Fatal(got)
	}
	if _, err := p.in.ReadByte(); err != io.EOF {
		t.Fatal("after QUIT:", err)
	}
}

func TestDrain(t *testing.T) {
	r := start(t, Config{})
	second, third := r.dial(), r.dial()
	third.send("HELLO", "3")
	third.answer()
	r.play(second, `
		EXISTS MAINTENANCE_MODE => :0
		SET MAINTENANCE_MODE 1 => -ERR the key MAINTENANCE_MODE says that this host drains, and is not for writing
		DEL a MAINTENANCE_MODE => -ERR the key MAINTENANCE_MODE says that this host drains, and is not for writing
		SET a 1 => +OK
	`)
	r.Drain()
	if got := third.answer(); got != `>["maintenance" "draining"]` {
		t.Fatal(got)
	}
	r.play(second, `
		EXISTS MAINTENANCE_MODE a => :2
		SET a 2 => +OK
	`)
	if n := len(r.Waiting()); n != 2 {
		t.Fatalf("it waits for %d clients", n)
	}
	r.hand.Advance(3 * time.Second)
	r.play(second, `
		EXISTS MAINTENANCE_MODE => :1
		PING => +PONG
	`)
	if n := len(r.Waiting()); n != 0 {
		t.Fatalf("health checks are waited for: %d", n)
	}
	r.Undo()
	r.play(second, `EXISTS MAINTENANCE_MODE => :0`)
}

func TestConnectionsAreBounded(t *testing.T) {
	r := start(t, Config{Conns: limit.NewConns(2, 0, nil)})
	one, two := r.dial(), r.dial()
	r.play(one, `PING => +PONG`)
	r.play(two, `PING => +PONG`)
	if _, err := r.dial().in.ReadByte(); err == nil {
		t.Fatal("a third connection of one address")
	}
	_ = two.Close()
	polltest.Until(t, func() bool {
		p := r.dial()
		defer p.Close()
		_, _ = io.WriteString(p, encode("PING"))
		line, _ := p.in.ReadString('\n')
		return line == "+PONG\r\n"
	}, "a place to be free")
}

// A listener that fails ends all connections, and Serve waits for them.
func TestListenerFails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- New(Config{Cache: cache.New(cache.Config{})}).Serve(context.Background(), ln) }()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	p := &peer{nc, t, bufio.NewReader(nc)}
	p.send("PING")
	if got := p.answer(); got != "+PONG" {
		t.Fatal(got)
	}
	_ = ln.Close()
	if err := <-done; err == nil {
		t.Fatal("it says nothing")
	}
}

// What has expired goes without being asked for.
func TestSweep(t *testing.T) {
	r := start(t, Config{})
	p := r.dial()
	for i := range 500 {
		p.send("SET", fmt.Sprint(i), "x", "PX", "50")
		p.answer()
	}
	r.hand.Advance(51 * time.Millisecond)
	polltest.Until(t, func() bool {
		r.hand.Advance(cache.SweepEvery)
		return r.cfg.Cache.Keys() == 0
	}, "expired keys to go")
}

func TestManyClients(t *testing.T) {
	r := start(t, Config{})
	var wg sync.WaitGroup
	for w := range 8 {
		p := r.dial()
		wg.Go(func() {
			for i := range 200 {
				_, _ = io.WriteString(p, encode("INCR", "n")+encode("SADD", "s", fmt.Sprint(w, i))+
					encode("MSET", "a", fmt.Sprint(i), "b", fmt.Sprint(i))+encode("MULTI")+encode("MGET", "a", "b")+encode("EXEC"))
				for range 5 {
					if _, err := read(p.in); err != nil {
						t.Error(err)
						return
					}
				}
				text, err := read(p.in)
				both := strings.Fields(strings.Trim(text, "[]"))
				if err != nil || len(both) != 2 || both[0] != both[1] {
					t.Errorf("half of an MSET: %s %v", text, err)
					return
				}
			}
		})
	}
	wg.Wait()
	r.play(r.dial(), `
		GET n => "1600"
		SCARD s => :1600
	`)
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true}, {"*", "abc", true}, {"a*c", "abbc", true}, {"a*c", "abb", false}, {"?", "", false},
		{"a?c", "abc", true}, {"[a-c]x", "bx", true}, {"[^a-c]x", "bx", false}, {"[^a-c]x", "dx", true},
		{`\*`, "*", true}, {`\*`, "a", false}, {"[c-a]", "b", true}, {"[", "[", false}, {"[]", "x", false},
		{`[\]]`, "]", true}, {"**b**", "abc", true}, {"abc", "ab", false}, {"ab", "abc", false}, {`\`, `\`, true},
		{strings.Repeat("a*", 50) + "b", strings.Repeat("a", 5000), false}, // and at once
	} {
		if got := match(test.pattern, test.text); got != test.want {
			t.Errorf("%q of %q: %v", test.pattern, test.text, got)
		}
	}
}

// FuzzServe: whatever comes, the server answers or cuts, and lives.
func FuzzServe(f *testing.F) {
	for _, words := range [][]string{{"PING"}, {"SET", "a", "1", "EX", "10"}, {"MULTI"}, {"EXEC"}, {"HELLO", "3"},
		{"SADD", "s", "a", "b"}, {"SCAN", "0", "MATCH", "[a-"}, {"PFADD", "p", "x"}, {"PFMERGE", "a", "p"},
		{"COMMAND", "DOCS"}, {"CLUSTER", "SHARDS"}, {"SPOP", "s", "9"}, {"GETEX", "a", "PXAT", "1"},
		{"CLIENT", "LIST"}, {"INFO"}} {
		f.Add([]byte(encode(words...)))
	}
	f.Add([]byte("*1\r\n$9223372036854775807\r\nx"))
	f.Add([]byte("ECHO \"a b\" 'c'\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := New(Config{Cache: cache.New(cache.Config{MaxBytes: 1 << 20}), MaxBulkBytes: 10_000, MaxCommandBytes: 50_000})
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() { defer close(done); s.serve(context.Background(), there) }()
		go func() {
			_, _ = here.Write(data)
			_, _ = io.WriteString(here, "\r\nQUIT\r\n")
			_ = here.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // what was cut off waits for more
		}()
		_, _ = io.Copy(io.Discard, here)
		_ = here.Close()
		<-done
		if st := s.cfg.Cache.Stats(); st.Bytes > st.Most {
			t.Fatal(st)
		}
	})
}
