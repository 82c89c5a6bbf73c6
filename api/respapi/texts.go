package respapi

import (
	"strconv"
	"strings"

	"corbel.dev/corbel/usage/cache"
)

func get(c *conn, args [][]byte) {
	c.do(args[1], func(e *cache.Entry) { c.value(e) })
}

// value tells an entry as a text; false when there is none that was told.
func (c *conn) value(e *cache.Entry) (told bool) {
	switch text, ok, err := e.Text(); {
	case err != nil:
		c.refused(err)
	case !ok:
		c.out.null()
	case c.room(len(text)):
		c.out.bulk(text)
		return true
	}
	return false
}

func mget(c *conn, args [][]byte) {
	c.out.array(len(args) - 1)
	for _, key := range args[1:] {
		c.do(key, func(e *cache.Entry) {
			switch text, ok, err := e.Text(); {
			case !ok || err != nil:
				c.out.null()
			case c.room(len(text)):
				c.out.bulk(text)
			}
		})
		c.more()
	}
}

func mset(c *conn, args [][]byte) {
	if len(args)%2 == 0 {
		c.out.fail("ERR wrong number of arguments for 'mset' command")
		return
	}
	for i := 2; i < len(args); i += 2 {
		if len(args[i]) > c.s.cfg.Cache.MaxValueBytes() {
			c.refused(cache.ErrLarge)
			return
		}
	}
	c.together(func(do func([]byte, func(*cache.Entry))) {
		for i := 1; i < len(args); i += 2 {
			do(args[i], func(e *cache.Entry) {
				if e.SetText(args[i+1]) == nil { // it was looked at above
					e.ExpireAt(0)
				}
			})
		}
	})
	c.out.ok()
}

// terms are the options of SET and GETEX.
type terms struct {
	nx, xx, keep, get, persist bool
	at                         int64 // Unix milliseconds; 0 is none
}

// readTerms reads options, of which only some are known to a command; problem is what to answer.
func (c *conn) readTerms(name string, args [][]byte, known string) (t terms, problem string) {
	times := 0
	for i := 0; i < len(args); i++ {
		option := strings.ToUpper(string(args[i]))
		if !strings.Contains(known, " "+option+" ") {
			return t, wrongSyntax
		}
		switch option {
		case "NX":
			t.nx = true
		case "XX":
			t.xx = true
		case "GET":
			t.get = true
		case "KEEPTTL":
			t.keep = true
			times++
		case "PERSIST":
			t.persist = true
			times++
		default: // EX PX EXAT PXAT
			if times++; i+1 == len(args) {
				return t, wrongSyntax
			}
			i++
			unit := int64(1000)
			if option[0] == 'P' {
				unit = 1
			}
			if t.at, problem = c.when(name, args[i], unit, strings.HasSuffix(option, "AT"), false); problem != "" {
				return t, problem
			}
		}
	}
	if times > 1 || t.nx && t.xx {
		return t, wrongSyntax
	}
	return t, ""
}

// when reads a time to live, or the time of an end, in a unit of milliseconds. signed says that it may have passed.
func (c *conn) when(name string, arg []byte, unit int64, absolute, signed bool) (at int64, problem string) {
	n, ok := integer(arg)
	if !ok {
		return 0, wrongNumber
	}
	invalid := "ERR invalid expire time in '" + name + "' command"
	if n <= 0 && !signed {
		return 0, invalid
	}
	if at, ok = times(n, unit); !ok {
		return 0, invalid
	}
	if !absolute {
		if at, ok = plus(at, c.s.cfg.Cache.Now()); !ok {
			return 0, invalid
		}
	}
	if at == 0 {
		at = 1 // the beginning of 1970 is not never
	}
	return at, ""
}

func set(c *conn, args [][]byte) {
	t, problem := c.readTerms("set", args[3:], " NX XX GET KEEPTTL EX PX EXAT PXAT ")
	if problem != "" {
		c.out.fail(problem)
		return
	}
	c.put(args[1], args[2], t)
}

func (c *conn) put(key, value []byte, t terms) {
	c.do(key, func(e *cache.Entry) {
		exists := e.Kind() != cache.Missing
		old, had, err := e.Text()
		if t.get && err != nil {
			c.refused(err)
			return
		}
		refused := t.nx && exists || t.xx && !exists
		start := len(c.out.buf)
		switch { // before it is another one
		case t.get && had:
			if !c.room(len(old)) {
				return
			}
			c.out.bulk(old)
		case t.get || refused:
			c.out.null()
		default:
			c.out.ok()
		}
		if refused {
			return
		}
		if err := e.SetText(value); err != nil {
			c.out.buf = c.out.buf[:start]
			c.refused(err)
			return
		}
		if !t.keep {
			e.ExpireAt(t.at)
		}
	})
}

func setnx(c *conn, args [][]byte) {
	c.do(args[1], func(e *cache.Entry) {
		if e.Kind() != cache.Missing {
			c.out.int(0)
		} else if err := e.SetText(args[2]); err != nil {
			c.refused(err)
		} else {
			c.out.int(1)
		}
	})
}

func setex(c *conn, args [][]byte) {
	at, problem := c.when("setex", args[2], 1000, false, false)
	if problem != "" {
		c.out.fail(problem)
		return
	}
	c.put(args[1], args[3], terms{at: at})
}

func getdel(c *conn, args [][]byte) {
	c.do(args[1], func(e *cache.Entry) {
		if c.value(e) {
			e.Delete()
		}
	})
}

func getex(c *conn, args [][]byte) {
	t, problem := c.readTerms("getex", args[2:], " PERSIST EX PX EXAT PXAT ")
	if problem != "" {
		c.out.fail(problem)
		return
	}
	c.do(args[1], func(e *cache.Entry) {
		if c.value(e) && (t.at != 0 || t.persist) {
			e.ExpireAt(t.at)
		}
	})
}

func incrby(c *conn, args [][]byte) {
	by, ok := integer(args[2])
	if !ok {
		c.out.fail(wrongNumber)
		return
	}
	c.add(args[1], by)
}

func (c *conn) add(key []byte, by int64) {
	c.do(key, func(e *cache.Entry) {
		text, had, err := e.Text()
		if err != nil {
			c.refused(err)
			return
		}
		n, ok := int64(0), true
		if had {
			n, ok = integer(text)
		}
		if !ok {
			c.out.fail(wrongNumber)
			return
		}
		if n, ok = plus(n, by); !ok {
			c.out.fail("ERR increment or decrement would overflow")
			return
		}
		if err := e.SetText(strconv.AppendInt(nil, n, 10)); err != nil {
			c.refused(err)
			return
		}
		c.out.int(n)
	})
}
