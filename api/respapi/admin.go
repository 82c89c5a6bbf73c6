package respapi

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

func nodeID() string {
	return fmt.Sprintf("%016x%016x%08x", rand.Uint64(), rand.Uint64(), rand.Uint32())
}

func ping(c *conn, args [][]byte) {
	switch len(args) {
	case 1:
		c.out.simple("PONG")
	case 2:
		c.out.bulk(args[1])
	default:
		c.out.fail("ERR wrong number of arguments for 'ping' command")
	}
}

const wrongPassword = "WRONGPASS invalid username-password pair or user is disabled."

func auth(c *conn, args [][]byte) {
	switch {
	case len(args) > 3:
		c.out.fail(wrongSyntax)
	case c.s.cfg.Authenticate == nil && len(args) == 2:
		c.out.fail("ERR AUTH <password> called without any password configured for the default user. " +
			"Are you sure your configuration is correct?")
	case !c.login(args[1:]):
		c.out.fail(wrongPassword)
	default:
		c.out.ok()
	}
}

func hello(c *conn, args [][]byte) {
	third := c.out.third
	if len(args) > 1 {
		version, ok := integer(args[1])
		if !ok {
			c.out.fail("ERR Protocol version is not an integer or out of range")
			return
		}
		if version != 2 && version != 3 {
			c.out.fail("NOPROTO unsupported protocol version")
			return
		}
		third = version == 3
	}
	name := c.name
	for rest := args[min(2, len(args)):]; len(rest) > 0; {
		switch option := strings.ToUpper(string(rest[0])); {
		case option == "AUTH" && len(rest) >= 3:
			if !c.login(rest[1:3]) {
				c.out.fail(wrongPassword)
				return
			}
			rest = rest[3:]
		case option == "SETNAME" && len(rest) >= 2:
			if name = string(rest[1]); !validName(name) {
				c.out.fail(wrongName)
				return
			}
			rest = rest[2:]
		default:
			c.out.fail("ERR Syntax error in HELLO option '" + string(rest[0]) + "'")
			return
		}
	}
	if !c.known() {
		c.out.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH " +
			"<user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	c.rename(name)
	c.out.third = third
	c.out.table(7)
	for _, pair := range [][2]string{{"server", "redis"}, {"version", redisVersion}} {
		c.out.text(pair[0])
		c.out.text(pair[1])
	}
	c.out.text("proto")
	c.out.int(map[bool]int64{false: 2, true: 3}[third])
	c.out.text("id")
	c.out.int(c.id)
	mode := c.s.mode()
	for _, pair := range [][2]string{{"mode", mode}, {"role", "master"}} {
		c.out.text(pair[0])
		c.out.text(pair[1])
	}
	c.out.text("modules")
	c.out.array(0)
}

// redisVersion is whose behaviour the commands have. Clients choose by it.
const redisVersion = "7.2.0"

func selectDatabase(c *conn, args [][]byte) {
	switch n, ok := integer(args[1]); {
	case !ok:
		c.out.fail(wrongNumber)
	case n != 0:
		c.out.fail("ERR DB index is out of range")
	default:
		c.out.ok()
	}
}

const wrongName = "ERR Client names cannot contain spaces, newlines or special characters."

func validName(name string) bool {
	return len(name) <= 256 && !strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' })
}

func client(c *conn, args [][]byte) {
	switch what := strings.ToLower(string(args[1])); {
	case what == "id" && len(args) == 2:
		c.out.int(c.id)
	case what == "getname" && len(args) == 2:
		if c.name == "" {
			c.out.null()
			return
		}
		c.out.text(c.name)
	case what == "setname" && len(args) == 3:
		if !validName(string(args[2])) {
			c.out.fail(wrongName)
			return
		}
		c.rename(string(args[2]))
		c.out.ok()
	case what == "setinfo" && len(args) == 4:
		c.setInfo(string(args[2]), string(args[3]))
	case what == "info" && len(args) == 2:
		c.out.text(c.line() + "\n")
	case what == "list" && len(args) == 2:
		c.s.mu.Lock()
		lines := make([]string, 0, len(c.s.conns))
		for other := range c.s.conns {
			lines = append(lines, other.line())
		}
		c.s.mu.Unlock()
		slices.Sort(lines)
		c.out.text(strings.Join(lines, "\n") + "\n")
	default:
		c.subcommand(args)
	}
}

// setInfo takes what a client's library says of itself, which nobody needs.
func (c *conn) setInfo(what, value string) {
	switch what = strings.ToLower(what); {
	case what != "lib-name" && what != "lib-ver":
		c.out.fail("ERR Unrecognized option '" + what[:min(len(what), 128)] + "'")
	case !validName(value):
		c.out.fail("ERR " + what + " cannot contain spaces, newlines or special characters.")
	default:
		c.out.ok()
	}
}

func (c *conn) rename(name string) {
	c.name = name
	c.told.Store(&name)
}

// line describes a connection; any goroutine may ask.
func (c *conn) line() string {
	name := ""
	if told := c.told.Load(); told != nil {
		name = *told
	}
	age := int64(c.s.cfg.Clock.Since(c.since).Seconds())
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s age=%d db=0", c.id, c.net.RemoteAddr(), c.net.LocalAddr(), name,
		age)
}

// subcommands are those that there are.
var subcommands = map[string][]string{
	"client": {"id", "getname", "setname", "setinfo", "info", "list"}, "config": {"get"},
	"command": {"count", "docs", "info"}, "cluster": {"slots", "shards", "info", "myid", "nodes", "keyslot"},
}

// subcommand refuses what is none, or has the wrong number of arguments.
func (c *conn) subcommand(args [][]byte) {
	name, what := strings.ToLower(string(args[0])), string(args[1][:min(len(args[1]), 128)])
	if slices.Contains(subcommands[name], strings.ToLower(what)) { // so what was wrong is how much came with it
		c.out.fail(fmt.Sprintf("ERR wrong number of arguments for '%s|%s' command", name, strings.ToLower(what)))
		return
	}
	c.out.fail(fmt.Sprintf("ERR unknown subcommand '%s'. Try %s HELP.", what, strings.ToUpper(name)))
}

func info(c *conn, _ [][]byte) {
	st := c.s.cfg.Cache.Stats()
	c.s.mu.Lock()
	clients := len(c.s.conns)
	c.s.mu.Unlock()
	flag := map[bool]int{true: 1}
	text := fmt.Sprintf("# Server\r\nredis_version:%s\r\nserver_name:corbel\r\ncorbel_version:%s\r\n"+
		"redis_mode:%s\r\nuptime_in_seconds:%d\r\n", redisVersion, c.s.cfg.Version, c.s.mode(),
		int64(c.s.cfg.Clock.Since(c.s.started).Seconds()))
	text += fmt.Sprintf("\r\n# Clients\r\nconnected_clients:%d\r\n", clients)
	text += fmt.Sprintf("\r\n# Memory\r\nused_memory:%d\r\nmaxmemory:%d\r\n"+
		"maxmemory_policy:allkeys-lru\r\n", st.Bytes, st.Most)
	text += fmt.Sprintf("\r\n# Stats\r\ntotal_commands_processed:%d\r\nexpired_keys:%d\r\nevicted_keys:%d\r\n"+
		"keyspace_hits:%d\r\nkeyspace_misses:%d\r\n", c.s.commands.Load(), st.Expired, st.Evicted, st.Hits, st.Misses)
	text += c.s.slaves()
	text += fmt.Sprintf("\r\n# Cluster\r\ncluster_enabled:%d\r\n", flag[c.s.shares()])
	text += fmt.Sprintf("\r\n# Usage\r\ntenants:%d\r\nlargest_tenant_bytes:%d\r\ndraining:%d\r\n", st.Tenants,
		st.LargestTenantBytes, flag[c.s.draining.Load()])
	if st.Keys > 0 {
		text += fmt.Sprintf("\r\n# Keyspace\r\ndb0:keys=%d,expires=%d\r\n", st.Keys, st.Expiring)
	}
	c.out.text(text)
}

// configure is CONFIG GET: what tools ask for.
func configure(c *conn, args [][]byte) {
	if !strings.EqualFold(string(args[1]), "get") || len(args) < 3 {
		c.subcommand(args)
		return
	}
	known := [][2]string{{"appendonly", "no"}, {"databases", "1"}, {"maxmemory-policy", "allkeys-lru"}, {"save", ""},
		{"maxmemory", strconv.FormatInt(c.s.cfg.Cache.MaxBytes(), 10)},
		{"proto-max-bulk-len", strconv.Itoa(c.s.cfg.MaxBulkBytes)}}
	known = slices.DeleteFunc(known, func(pair [2]string) bool {
		return !slices.ContainsFunc(args[2:], func(a []byte) bool { return match(strings.ToLower(string(a)), pair[0]) })
	})
	c.out.table(len(known))
	for _, pair := range known {
		c.out.text(pair[0])
		c.out.text(pair[1])
	}
}
