package dnsapi

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// The bounds of what an agent keeps; past them everything is forgotten, which costs one question each.
const (
	agedLimit      = 4096
	agedLimitBytes = 8 << 20
)

// agedCache is an agent's memory of its servers' answers, for dns_config.use_cache. Unlike
// the cache of a server it cannot know whether an answer still holds: it gives it until it is too old.
type agedCache struct {
	mu    sync.Mutex // guards all; a leaf
	all   map[string]aged
	bytes int
}

type aged struct {
	reply    []byte // never changed
	settings *settled
	at       time.Time
}

func newAgedCache() *agedCache { return &agedCache{all: map[string]aged{}} }

func (c *agedCache) get(key string, settings *settled) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.all[key]
	if !ok || e.settings != settings || time.Since(e.at) > settings.CacheMaxAge {
		return nil
	}
	return e.reply
}

// put keeps a reply under a key; "" is kept nowhere, and neither is a failure.
func (c *agedCache) put(key string, settings *settled, reply []byte) {
	if key == "" || reply[3]&0x0F == dns.RcodeServerFailure || len(reply) > agedLimitBytes/64 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= agedLimit || c.bytes > agedLimitBytes {
		clear(c.all)
		c.bytes = 0
	}
	if old, ok := c.all[key]; ok {
		c.bytes -= len(key) + len(old.reply)
	}
	c.bytes += len(key) + len(reply)
	c.all[key] = aged{append([]byte(nil), reply...), settings, time.Now()}
}

// asAgent answers a plain question on a process without a catalog: from what it keeps, if it may.
func (w *responder) asAgent(query []byte, q question, key []byte, from origin) (reply []byte, later *deferred) {
	c := w.s.settings.Load()
	if !c.UseCache || c.CacheMaxAge <= 0 {
		return w.slowly(query, key, true, from)
	}
	transport := byte(0)
	if from.tcp {
		transport |= 1
	}
	if q.hasOPT {
		transport |= 2
	}
	name := string(append(binary.BigEndian.AppendUint16(key, q.size), transport)) + from.token
	if kept := w.s.aged.get(name, c); kept != nil {
		if reply := w.again(query, kept); reply != nil {
			w.s.metrics.fast.Add(1)
			return reply, nil
		}
	}
	reply, later = w.slowly(query, key, true, from)
	if later != nil && later.todo == forward {
		later.key = name
	}
	return reply, later
}

// again makes the answer to query of one that was given before, in a new order.
func (w *responder) again(query, kept []byte) []byte {
	m, req := new(dns.Msg), new(dns.Msg)
	if m.Unpack(kept) != nil || req.Unpack(query) != nil {
		return nil
	}
	m.Id, m.RecursionDesired, m.CheckingDisabled = req.Id, req.RecursionDesired, req.CheckingDisabled
	m.Compress = !w.s.settings.Load().DisableCompression
	asked, given := req.Question[0].Name, m.Question[0].Name
	m.Question = req.Question
	plain := true // a CNAME is followed by what it leads to
	for _, rr := range m.Answer {
		plain = plain && rr.Header().Rrtype != dns.TypeCNAME
		if rr.Header().Name == given {
			rr.Header().Name = asked
		}
	}
	if plain {
		w.random.Shuffle(len(m.Answer), func(i, j int) { m.Answer[i], m.Answer[j] = m.Answer[j], m.Answer[i] })
	}
	return w.s.pack(m, true)
}
