package respapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage/cache"
)

// row is one of the table. arity counts the name too; below zero it is the least. first, last and step say
// which arguments are keys.
type row struct {
	name              string
	arity             int
	flags             string
	first, last, step int
	run               func(c *conn, args [][]byte)
}

// command is a row, with what its flags say found out once.
type command struct {
	row
	writes, noauth, now, checks bool
}

// commands are all that there are. It is a function, for a variable would refer to itself by COMMAND.
func commands() []row {
	return []row{
		{"ping", -1, "fast", 0, 0, 0, ping},
		{"echo", 2, "fast", 0, 0, 0, func(c *conn, a [][]byte) { c.out.bulk(a[1]) }},
		{"quit", -1, "fast noauth", 0, 0, 0, func(c *conn, _ [][]byte) { c.leaving = true; c.out.ok() }},
		{"auth", -2, "fast noauth", 0, 0, 0, auth},
		{"hello", -1, "fast noauth", 0, 0, 0, hello},
		{"select", 2, "fast", 0, 0, 0, selectDatabase},
		{"client", -2, "", 0, 0, 0, client},
		{"command", -1, "", 0, 0, 0, describe},
		{"info", -1, "alone", 0, 0, 0, info},
		{"config", -2, "", 0, 0, 0, configure},
		{"cluster", -2, "", 0, 0, 0, cluster},
		{"wait", 3, "", 0, 0, 0, wait},
		{"usage.replica", 1, "fast", 0, 0, 0, replica},

		{"usage.snapshot", -2, "readonly alone", 0, 0, 0, bulkSnapshot},
		{"usage.restore", 4, "write alone", 0, 0, 0, bulkRestore},

		{"get", 2, "readonly fast", 1, 1, 1, get},
		{"set", -3, "write", 1, 1, 1, set},
		{"mget", -2, "readonly fast", 1, -1, 1, mget},
		{"mset", -3, "write", 1, -1, 2, mset},
		{"setnx", 3, "write fast", 1, 1, 1, setnx},
		{"setex", 4, "write", 1, 1, 1, setex},
		{"getdel", 2, "write fast", 1, 1, 1, getdel},
		{"getex", -2, "write fast", 1, 1, 1, getex},
		{"incr", 2, "write fast", 1, 1, 1, func(c *conn, a [][]byte) { c.add(a[1], 1) }},
		{"decr", 2, "write fast", 1, 1, 1, func(c *conn, a [][]byte) { c.add(a[1], -1) }},
		{"incrby", 3, "write fast", 1, 1, 1, incrby},

		{"exists", -2, "readonly fast", 1, -1, 1, exists},
		{"del", -2, "write", 1, -1, 1, remove},
		{"unlink", -2, "write fast", 1, -1, 1, remove},
		{"type", 2, "readonly fast", 1, 1, 1, typeOf},
		{"expire", -3, "write fast", 1, 1, 1, func(c *conn, a [][]byte) { c.expire(a, "expire", 1000, false) }},
		{"pexpire", -3, "write fast", 1, 1, 1, func(c *conn, a [][]byte) { c.expire(a, "pexpire", 1, false) }},
		{"expireat", -3, "write fast", 1, 1, 1, func(c *conn, a [][]byte) { c.expire(a, "expireat", 1000, true) }},
		{"ttl", 2, "readonly fast", 1, 1, 1, func(c *conn, a [][]byte) { c.left(a[1], 1000) }},
		{"pttl", 2, "readonly fast", 1, 1, 1, func(c *conn, a [][]byte) { c.left(a[1], 1) }},
		{"persist", 2, "write fast", 1, 1, 1, persist},
		{"scan", -2, "readonly alone", 0, 0, 0, scan},
		{"dbsize", 1, "readonly fast alone", 0, 0, 0, func(c *conn, _ [][]byte) { c.out.int(int64(c.s.cfg.Cache.Keys())) }},
		{"flushall", -1, "write alone", 0, 0, 0, flushall},

		{"sadd", -3, "write fast", 1, 1, 1, sadd},
		{"srem", -3, "write fast", 1, 1, 1, srem},
		{"sismember", 3, "readonly fast", 1, 1, 1, sismember},
		{"smismember", -3, "readonly fast", 1, 1, 1, smismember},
		{"scard", 2, "readonly fast", 1, 1, 1, scard},
		{"smembers", 2, "readonly", 1, 1, 1, smembers},
		{"sscan", -3, "readonly", 1, 1, 1, sscan},
		{"spop", -2, "write fast", 1, 1, 1, spop},

		{"hset", -4, "write fast", 1, 1, 1, hset},
		{"hget", 3, "readonly fast", 1, 1, 1, hget},
		{"hmget", -3, "readonly fast", 1, 1, 1, hmget},
		{"hdel", -3, "write fast", 1, 1, 1, hdel},
		{"hlen", 2, "readonly fast", 1, 1, 1, hlen},
		{"hgetall", 2, "readonly", 1, 1, 1, hgetall},

		{"pfadd", -2, "write fast", 1, 1, 1, pfadd},
		{"pfcount", -2, "readonly", 1, -1, 1, pfcount},
		{"pfmerge", -2, "write", 1, -1, 1, pfmerge},

		{"multi", 1, "fast now", 0, 0, 0, multi},
		{"exec", 1, "now", 0, 0, 0, exec},
		{"discard", 1, "fast now", 0, 0, 0, discard},
	}
}

// tableOf is the table by name.
func tableOf() map[string]*command {
	table := map[string]*command{}
	for _, r := range commands() {
		cmd := &command{row: r}
		cmd.writes, cmd.noauth, cmd.now = cmd.is("write"), cmd.is("noauth"), cmd.is("now")
		cmd.checks = cmd.name == "ping" || cmd.name == "exists"
		table[cmd.name] = cmd
	}
	return table
}

func (cmd *row) is(flag string) bool { return strings.Contains(cmd.flags, flag) }

// keys are the arguments that are keys.
func (cmd *row) keys(args [][]byte) (keys [][]byte) {
	if cmd.first == 0 {
		return nil
	}
	last := cmd.last
	if last < 0 {
		last += len(args)
	}
	for i := cmd.first; i <= last && i < len(args); i += cmd.step {
		keys = append(keys, args[i])
	}
	return keys
}

// The errors that several commands have.
const (
	wrongKind   = "WRONGTYPE Operation against a key holding the wrong kind of value"
	wrongNumber = "ERR value is not an integer or out of range"
	wrongSyntax = "ERR syntax error"
)

// transaction is what was queued between MULTI and EXEC.
type transaction struct {
	list   [][][]byte
	bytes  int
	broken bool
}

// run does a command, or queues it.
func (c *conn) run(args [][]byte) {
	cmd, problem := c.find(args)
	if problem != "" {
		if c.queue != nil {
			c.queue.broken = true
		}
		c.out.fail(problem)
		return
	}
	if !c.quiet(cmd, args) {
		c.seen.busy.Store(c.s.cfg.Clock.Now().UnixNano())
	}
	if c.queue != nil && !cmd.now && cmd.name != "quit" {
		c.enqueue(args)
		return
	}
	cmd.run(c, args)
}

// find returns the command that is meant, or why it may not be done.
func (c *conn) find(args [][]byte) (*command, string) {
	cmd := c.s.lookup(args[0])
	switch {
	case cmd == nil && !c.known(), cmd != nil && !c.known() && !cmd.noauth:
		return nil, "NOAUTH Authentication required."
	case cmd == nil:
		return nil, unknown(args)
	case cmd.arity >= 0 && len(args) != cmd.arity || len(args) < -cmd.arity:
		return nil, "ERR wrong number of arguments for '" + cmd.name + "' command"
	case cmd.writes && cmd.first > 0 && cmd.last == cmd.first:
		if c.s.maintenance(args[cmd.first]) {
			return nil, c.s.notForWriting()
		}
	case cmd.writes && slices.ContainsFunc(cmd.keys(args), c.s.maintenance):
		return nil, c.s.notForWriting()
	}
	if !c.s.shares() {
		return cmd, ""
	}
	keys := cmd.keys(args)
	if problem := c.elsewhere(keys, cmd.writes); problem != "" {
		return cmd, problem
	}
	if cmd.writes || cmd.name == "exec" {
		c.copying.mark(c.s.cfg.Copies, keys)
	}
	return cmd, ""
}

func (s *Server) notForWriting() string {
	return "ERR the key " + s.cfg.MaintenanceKey + " says that this host drains, and is not for writing"
}

// lookup finds a command by its name in any case, without memory of its own.
func (s *Server) lookup(name []byte) *command {
	var lower [32]byte
	if len(name) > len(lower) {
		return nil // no name is as long
	}
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	return s.table[string(lower[:len(name)])]
}

func unknown(args [][]byte) string {
	text := fmt.Sprintf("ERR unknown command '%s', with args beginning with: ", args[0][:min(len(args[0]), 128)])
	for _, arg := range args[1:] {
		if len(text) > 256 {
			break
		}
		text += fmt.Sprintf("'%s' ", arg[:min(len(arg), 128)])
	}
	return text
}

// quiet reports whether a command says nothing about its client being at work: it is a health check.
func (c *conn) quiet(cmd *command, args [][]byte) bool {
	return cmd.checks && (cmd.name == "ping" || len(args) == 2 && c.s.maintenance(args[1]))
}

func (s *Server) maintenance(key []byte) bool { return string(key) == s.cfg.MaintenanceKey }

func (c *conn) enqueue(args [][]byte) {
	q := c.queue
	for _, arg := range args {
		q.bytes += len(arg) + 32
	}
	if q.bytes > c.s.cfg.MaxCommandBytes {
		q.broken, q.list = true, nil
		c.out.fail("ERR the transaction is too large")
		return
	}
	if err := c.hold.Gather(q.bytes); err != nil {
		q.broken, q.list = true, nil
		c.out.fail("OOM " + errkind.Text(err))
		return
	}
	kept := make([][]byte, len(args))
	for i, arg := range args {
		kept[i] = slices.Clone(arg)
	}
	q.list = append(q.list, kept)
	c.out.queued()
}

func multi(c *conn, _ [][]byte) {
	if c.queue != nil {
		c.out.fail("ERR MULTI calls can not be nested")
		return
	}
	c.queue = &transaction{}
	c.out.ok()
}

func discard(c *conn, _ [][]byte) {
	if c.queue == nil {
		c.out.fail("ERR DISCARD without MULTI")
		return
	}
	c.queue = nil
	c.out.ok()
}

func exec(c *conn, _ [][]byte) {
	q := c.queue
	switch {
	case q == nil:
		c.out.fail("ERR EXEC without MULTI")
		return
	case q.broken:
		c.queue = nil
		c.out.fail("EXECABORT Transaction discarded because of previous errors.")
		return
	}
	c.out.array(len(q.list))
	start := len(c.out.buf)
	c.s.cfg.Cache.Together(func(do func(key []byte, fn func(e *cache.Entry))) {
		c.do = do
		for _, args := range q.list {
			cmd := c.s.table[strings.ToLower(string(args[0]))]
			switch {
			case cmd.is("alone"):
				c.out.fail("ERR Command not allowed inside a transaction")
			case len(c.out.buf)-start > c.s.cfg.MaxCommandBytes:
				c.out.fail("ERR the answers of the transaction are too large")
			default:
				cmd.run(c, args) // c.queue is still there: no part of the answer is sent while all keys wait
			}
		}
	})
	c.queue, c.do = nil, c.s.cfg.Cache.Do
}

// together does what must be seen as one; within a transaction it is anyway.
func (c *conn) together(fn func(do func(key []byte, fn func(e *cache.Entry)))) {
	if c.queue != nil {
		fn(c.do)
		return
	}
	c.s.cfg.Cache.Together(fn)
}

// refused tells an error of the cache.
func (c *conn) refused(err error) {
	switch err {
	case cache.ErrKind:
		c.out.fail(wrongKind)
	case cache.ErrPlain:
		c.out.fail("WRONGTYPE Key is not a valid HyperLogLog string value.")
	default:
		c.out.fail("ERR " + errkind.Text(err))
	}
}

// describe is COMMAND.
func describe(c *conn, args [][]byte) {
	names := slices.Sorted(maps.Keys(c.s.table))
	what := ""
	if len(args) > 1 {
		what = strings.ToLower(string(args[1]))
	}
	switch {
	case what == "count" && len(args) == 2:
		c.out.int(int64(len(names)))
		return
	case what == "docs" || what == "info":
		if len(args) > 2 {
			names = names[:0:0]
			for _, arg := range args[2:] {
				names = append(names, strings.ToLower(string(arg)))
			}
		}
	case what != "":
		c.subcommand(args)
		return
	}
	if what == "docs" {
		names = slices.DeleteFunc(names, func(n string) bool { return c.s.table[n] == nil })
		c.out.table(len(names))
		for _, name := range names {
			c.out.text(name)
			c.out.table(1)
			c.out.text("arity")
			c.out.int(int64(c.s.table[name].arity))
		}
		return
	}
	c.out.array(len(names))
	for _, name := range names {
		c.describe(c.s.table[name])
	}
}

func (c *conn) describe(cmd *command) {
	if cmd == nil {
		c.out.nullArray()
		return
	}
	c.out.array(6)
	c.out.text(cmd.name)
	c.out.int(int64(cmd.arity))
	flags := slices.DeleteFunc(strings.Fields(cmd.flags), func(f string) bool {
		return !slices.Contains([]string{"readonly", "write", "fast"}, f)
	})
	c.out.set(len(flags))
	for _, flag := range flags {
		c.out.simple(flag)
	}
	c.out.int(int64(cmd.first))
	c.out.int(int64(cmd.last))
	c.out.int(int64(cmd.step))
}
