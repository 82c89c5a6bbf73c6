package respapi

import (
	"corbel.dev/corbel/usage/cache"
	"corbel.dev/corbel/usage/sketch"
)

// change gives fn a key's set, made when it is missing, after it was seen that the members fit.
func (c *conn) change(key []byte, members [][]byte, fn func(s *cache.Set)) {
	c.do(key, func(e *cache.Entry) {
		s, err := e.Set(true)
		if err == nil {
			err = e.Room(size(members))
		}
		if err != nil {
			c.refused(err)
			return
		}
		fn(s)
	})
}

func size(list [][]byte) (n int) {
	for _, b := range list {
		n += len(b) + 100
	}
	return n
}

// look gives fn a key's set; an empty one where there is none.
func (c *conn) look(key []byte, fn func(s *cache.Set)) {
	c.do(key, func(e *cache.Entry) {
		s, err := e.Set(false)
		if err != nil {
			c.refused(err)
			return
		}
		if s == nil {
			s = &cache.Set{}
		}
		fn(s)
	})
}

func sadd(c *conn, args [][]byte) {
	c.change(args[1], args[2:], func(s *cache.Set) {
		n := int64(0)
		for _, m := range args[2:] {
			if s.Add(m) {
				n++
			}
		}
		c.out.int(n)
	})
}

func srem(c *conn, args [][]byte) {
	c.look(args[1], func(s *cache.Set) {
		n := int64(0)
		for _, m := range args[2:] {
			if s.Remove(m) {
				n++
			}
		}
		c.out.int(n)
	})
}

// yes tells 1 or 0.
func (c *conn) yes(b bool) {
	if b {
		c.out.int(1)
	} else {
		c.out.int(0)
	}
}

func sismember(c *conn, args [][]byte) {
	c.look(args[1], func(s *cache.Set) { c.yes(s.Has(args[2])) })
}

func smismember(c *conn, args [][]byte) {
	c.look(args[1], func(s *cache.Set) {
		c.out.array(len(args) - 2)
		for _, m := range args[2:] {
			c.yes(s.Has(m))
		}
	})
}

func scard(c *conn, args [][]byte) {
	c.look(args[1], func(s *cache.Set) { c.out.int(int64(s.Len())) })
}

func smembers(c *conn, args [][]byte) {
	c.look(args[1], func(s *cache.Set) {
		if !c.room(s.Bytes()) {
			return
		}
		c.out.set(s.Len())
		for _, m := range s.Members() {
			c.out.text(m)
		}
	})
}

func sscan(c *conn, args [][]byte) {
	t, problem := readScan(args[2], args[3:])
	if problem == "" && t.kind != "" {
		problem = wrongSyntax
	}
	if problem != "" {
		c.out.fail(problem)
		return
	}
	c.look(args[1], func(s *cache.Set) {
		var found []string
		next := s.Scan(t.cursor, t.count, func(member string) {
			if match(t.match, member) {
				found = append(found, member)
			}
		})
		c.page(next, found)
	})
}

func spop(c *conn, args [][]byte) {
	if len(args) > 3 {
		c.out.fail(wrongSyntax)
		return
	}
	n := int64(-1)
	if len(args) == 3 {
		var ok bool
		if n, ok = integer(args[2]); !ok || n < 0 {
			c.out.fail("ERR value is out of range, must be positive")
			return
		}
	}
	c.look(args[1], func(s *cache.Set) {
		switch {
		case n < 0 && s.Len() == 0:
			c.out.null()
		case n < 0:
			c.out.text(s.Pop())
		default:
			if !c.room(s.Bytes()) {
				return
			}
			n = min(n, int64(s.Len()))
			c.out.set(int(n))
			for range n {
				c.out.text(s.Pop())
			}
		}
	})
}

func hset(c *conn, args [][]byte) {
	if len(args)%2 != 0 {
		c.out.fail("ERR wrong number of arguments for 'hset' command")
		return
	}
	c.do(args[1], func(e *cache.Entry) {
		h, err := e.Hash(true)
		if err == nil {
			err = e.Room(size(args[2:]))
		}
		if err != nil {
			c.refused(err)
			return
		}
		n := int64(0)
		for i := 2; i < len(args); i += 2 {
			if h.Put(args[i], args[i+1]) {
				n++
			}
		}
		c.out.int(n)
	})
}

// fields gives fn a key's hash; an empty one where there is none.
func (c *conn) fields(key []byte, fn func(h *cache.Hash)) {
	c.do(key, func(e *cache.Entry) {
		h, err := e.Hash(false)
		if err != nil {
			c.refused(err)
			return
		}
		if h == nil {
			h = &cache.Hash{}
		}
		fn(h)
	})
}

// field tells a field's value.
func (c *conn) field(h *cache.Hash, name []byte) {
	if v, ok := h.Get(name); ok {
		c.out.bulk(v)
	} else {
		c.out.null()
	}
}

func hget(c *conn, args [][]byte) {
	c.fields(args[1], func(h *cache.Hash) {
		if v, _ := h.Get(args[2]); c.room(len(v)) {
			c.field(h, args[2])
		}
	})
}

func hmget(c *conn, args [][]byte) {
	c.fields(args[1], func(h *cache.Hash) {
		bytes := 0
		for _, name := range args[2:] { // one field may be asked for a million times
			v, _ := h.Get(name)
			bytes += len(v) + 20
		}
		switch {
		case bytes > c.s.cfg.MaxCommandBytes:
			c.out.fail("ERR the answer is too large")
			return
		case !c.room(bytes):
			return
		}
		c.out.array(len(args) - 2)
		for _, name := range args[2:] {
			c.field(h, name)
		}
	})
}

func hdel(c *conn, args [][]byte) {
	c.fields(args[1], func(h *cache.Hash) {
		n := int64(0)
		for _, name := range args[2:] {
			if h.Remove(name) {
				n++
			}
		}
		c.out.int(n)
	})
}

func hlen(c *conn, args [][]byte) {
	c.fields(args[1], func(h *cache.Hash) { c.out.int(int64(h.Len())) })
}

func hgetall(c *conn, args [][]byte) {
	c.fields(args[1], func(h *cache.Hash) {
		if !c.room(h.Bytes()) {
			return
		}
		c.out.table(h.Len())
		h.All(func(field string, value []byte) {
			c.out.text(field)
			c.out.bulk(value)
		})
	})
}

func pfadd(c *conn, args [][]byte) {
	c.do(args[1], func(e *cache.Entry) {
		made := e.Kind() == cache.Missing
		var err error
		if made || len(args) == 2 {
			_, err = e.Sketch(made)
		}
		changed := made
		for i := 2; i < len(args) && err == nil; i++ {
			var fresh bool
			fresh, err = e.Count(c.s.cfg.Cache.Hash(args[i]))
			changed = changed || fresh
		}
		if err != nil {
			c.refused(err)
			return
		}
		c.yes(changed)
	})
}

func pfcount(c *conn, args [][]byte) {
	sum := cache.NewSketch()
	for _, key := range args[1:] {
		if !c.mergeFrom(key, sum) {
			return
		}
	}
	c.out.int(int64(sum.Count(1).Value))
}

func (c *conn) mergeFrom(key []byte, sum *sketch.Distinct) (ok bool) {
	c.do(key, func(e *cache.Entry) {
		d, err := e.Sketch(false)
		if ok = err == nil; !ok {
			c.refused(err)
		} else if d != nil {
			sum.Merge(d, 1, 0)
		}
	})
	return ok
}

func pfmerge(c *conn, args [][]byte) {
	c.together(func(do func([]byte, func(*cache.Entry))) {
		former := c.do
		c.do = do
		defer func() { c.do = former }()
		sum := cache.NewSketch()
		for _, key := range args[1:] {
			if !c.mergeFrom(key, sum) {
				return
			}
		}
		do(args[1], func(e *cache.Entry) {
			d, err := e.Sketch(true)
			if err != nil {
				c.refused(err)
				return
			}
			d.Merge(sum, 1, 0)
			c.out.ok()
		})
	})
}
