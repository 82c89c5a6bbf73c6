package respapi

import (
	"strconv"
	"strings"

	"corbel.dev/corbel/usage/cache"
)

func exists(c *conn, args [][]byte) {
	n := int64(0)
	for _, key := range args[1:] {
		if c.s.maintenance(key) {
			c.seen.checks.Store(true)
			if c.s.draining.Load() {
				c.seen.knows.Store(true)
				n++
			}
			continue
		}
		c.do(key, func(e *cache.Entry) {
			if e.Kind() != cache.Missing {
				n++
			}
		})
	}
	c.out.int(n)
}

func remove(c *conn, args [][]byte) {
	n := int64(0)
	for _, key := range args[1:] {
		c.do(key, func(e *cache.Entry) {
			if e.Delete() {
				n++
			}
		})
	}
	c.out.int(n)
}

var typeNames = [...]string{cache.Missing: "none", cache.Text: "string", cache.SetKind: "set", cache.HashKind: "hash",
	cache.SketchKind: "string"}

func typeOf(c *conn, args [][]byte) {
	c.do(args[1], func(e *cache.Entry) { c.out.simple(typeNames[e.Kind()]) })
}

// expire sets when a key goes: args are the command, the key, the time, and NX, XX, GT or LT.
func (c *conn) expire(args [][]byte, name string, unit int64, absolute bool) {
	at, problem := c.when(name, args[2], unit, absolute, true)
	if problem != "" {
		c.out.fail(problem)
		return
	}
	var nx, xx, gt, lt bool
	for _, arg := range args[3:] {
		switch strings.ToUpper(string(arg)) {
		case "NX":
			nx = true
		case "XX":
			xx = true
		case "GT":
			gt = true
		case "LT":
			lt = true
		default:
			c.out.fail("ERR Unsupported option " + string(arg))
			return
		}
	}
	if nx && (xx || gt || lt) {
		c.out.fail("ERR NX and XX, GT or LT options at the same time are not compatible")
		return
	}
	if gt && lt {
		c.out.fail("ERR GT and LT options at the same time are not compatible")
		return
	}
	c.do(args[1], func(e *cache.Entry) {
		old := e.Expires() // never is later than all
		if e.Kind() == cache.Missing || nx && old != 0 || xx && old == 0 || gt && (old == 0 || at <= old) ||
			lt && old != 0 && at >= old {
			c.out.int(0)
			return
		}
		e.ExpireAt(at)
		c.out.int(1)
	})
}

// left tells for how long a key lives, in a unit of milliseconds.
func (c *conn) left(key []byte, unit int64) {
	c.do(key, func(e *cache.Entry) {
		switch at := e.Expires(); {
		case e.Kind() == cache.Missing:
			c.out.int(-2)
		case at == 0:
			c.out.int(-1)
		default:
			c.out.int((max(at-c.s.cfg.Cache.Now(), 0) + unit/2) / unit)
		}
	})
}

func persist(c *conn, args [][]byte) {
	c.do(args[1], func(e *cache.Entry) {
		if e.Expires() == 0 {
			c.out.int(0)
			return
		}
		e.ExpireAt(0)
		c.out.int(1)
	})
}

func flushall(c *conn, args [][]byte) {
	if len(args) > 2 || len(args) == 2 && !strings.EqualFold(string(args[1]), "async") &&
		!strings.EqualFold(string(args[1]), "sync") {
		c.out.fail(wrongSyntax)
		return
	}
	c.s.cfg.Cache.Clear()
	c.out.ok()
}

// scanTerms are the options of SCAN and SSCAN.
type scanTerms struct {
	cursor uint64
	count  int
	match  string // "*" is all
	kind   string
}

// mostScanned bounds COUNT: a lock is held that long.
const mostScanned = 10_000

func readScan(cursor []byte, args [][]byte) (t scanTerms, problem string) {
	var err error
	if t.cursor, err = strconv.ParseUint(string(cursor), 10, 64); err != nil {
		return t, "ERR invalid cursor"
	}
	t.count, t.match = 10, "*"
	for ; len(args) > 0; args = args[2:] {
		if len(args) == 1 {
			return t, wrongSyntax
		}
		switch strings.ToLower(string(args[0])) {
		case "count":
			n, ok := integer(args[1])
			if !ok {
				return t, wrongNumber
			}
			if n < 1 {
				return t, wrongSyntax
			}
			t.count = int(min(n, mostScanned))
		case "match":
			t.match = string(args[1])
		case "type":
			t.kind = strings.ToLower(string(args[1]))
		default:
			return t, wrongSyntax
		}
	}
	return t, ""
}

func scan(c *conn, args [][]byte) {
	t, problem := readScan(args[1], args[2:])
	if problem != "" {
		c.out.fail(problem)
		return
	}
	var found []string
	next := c.s.cfg.Cache.Scan(t.cursor, t.count, func(key string, kind cache.Kind) {
		if (t.kind == "" || t.kind == typeNames[kind]) && match(t.match, key) {
			found = append(found, key)
		}
	})
	c.page(next, found)
}

func (c *conn) page(next uint64, found []string) {
	c.out.array(2)
	c.out.text(strconv.FormatUint(next, 10))
	c.out.array(len(found))
	for _, s := range found {
		c.out.text(s)
	}
}

// match reports whether a text fits a pattern with *, ?, [a-z], [^a] and \x. It takes at most the product of both
// lengths: after a star, only the last one is tried again.
func match(pattern, text string) bool {
	p, s, star, from := 0, 0, -1, 0
	for s < len(text) {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p, s
			p++
			continue
		}
		if p < len(pattern) {
			if width, ok := matchOne(pattern[p:], text[s]); ok {
				p, s = p+width, s+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		p, s = star+1, from
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// matchOne compares a byte with the first element of a pattern, which has width bytes.
func matchOne(pattern string, b byte) (width int, ok bool) {
	switch pattern[0] {
	case '?':
		return 1, true
	case '\\':
		if len(pattern) > 1 {
			return 2, pattern[1] == b
		}
	case '[':
		return matchClass(pattern, b)
	}
	return 1, pattern[0] == b
}

func matchClass(pattern string, b byte) (width int, ok bool) {
	i := 1
	not := i < len(pattern) && pattern[i] == '^'
	if not {
		i++
	}
	for ; i < len(pattern) && pattern[i] != ']'; i++ {
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
		}
		low, high := pattern[i], pattern[i]
		if i+2 < len(pattern) && pattern[i+1] == '-' && pattern[i+2] != ']' {
			high = pattern[i+2]
			i += 2
		}
		ok = ok || min(low, high) <= b && b <= max(low, high)
	}
	return min(i+1, len(pattern)), ok != not
}
