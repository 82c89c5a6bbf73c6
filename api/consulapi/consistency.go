package consulapi

import (
	"context"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

// readParams reads the consistency mode and the blocking parameters.
func (q *request) readParams() error {
	q.mode = registry.Default
	discovery := q.discovery()
	if q.q == "" {
		if discovery && q.api.discoveryStale.Load() > 0 {
			q.mode, q.bound = registry.Stale, time.Duration(q.api.discoveryStale.Load())
		}
		return nil
	}
	stale, consistent := q.q.Has("stale"), q.q.Has("consistent")
	switch {
	case stale && consistent:
		return answer.Invalidf("Cannot specify ?stale with ?consistent, conflicting semantics.")
	case consistent && q.q.Has("cached"):
		return errCachedConsistent
	case consistent:
		q.mode = registry.Consistent
	case stale:
		q.mode = registry.Stale
	case q.q.Has("leader"):
	default:
		if err := q.maxStale(discovery); err != nil {
			return err
		}
	}
	q.staleWhenKept()
	var err error
	query := q.q
	if q.after != "" { // since blocks as index does
		query = httpx.Query("index=" + q.after + "&wait=" + q.q.Value("wait"))
	}
	q.block, err = httpx.ParseBlocking(query, q.api.cfg.Wait)
	return err
}

var errCachedConsistent = answer.Invalidf("Cannot specify ?cached with ?consistent, conflicting semantics.")

func (q *request) maxStale(discovery bool) error {
	if v, _ := q.q.Get("max_stale"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			return answer.Invalidf("Invalid max_stale value %q", v)
		}
		q.mode, q.bound = registry.Stale, d
		return nil
	}
	if discovery && q.api.discoveryStale.Load() > 0 {
		q.mode, q.bound = registry.Stale, time.Duration(q.api.discoveryStale.Load())
	}
	return nil
}

// discovery reports whether the row is one of catalog or health, which follow
// discovery_max_stale and name the consistency that they gave.
func (q *request) discovery() bool {
	return strings.HasPrefix(q.route.pattern, "/v1/catalog/") || strings.HasPrefix(q.route.pattern, "/v1/health/")
}

// contact asks the registry for a read in the request's mode, once more as
// default when a bounded read was too far behind.
func (q *request) contact() (registry.Contact, error) {
	c, mode, err := q.api.contact(q.r.Context(), q.mode, q.bound)
	q.mode = mode
	return c, err
}

// contact reads in a mode; a stale read that is further behind than bound becomes a
// default one. No bound is -1. It returns the mode that was given in the end.
func (a *API) contact(ctx context.Context, mode registry.Mode, bound time.Duration) (registry.Contact, registry.Mode, error) {
	c, err := a.cfg.Registry.Read(ctx, mode)
	if err == nil && bound >= 0 && mode == registry.Stale && c.LastContact > bound {
		mode = registry.Default
		c, err = a.cfg.Registry.Read(ctx, mode)
	}
	return c, mode, err
}

// now returns the State and a generation that is not newer than it.
func (a *API) now() (generation uint64, st *catalog.State) {
	generation = a.cfg.Registry.Generation()
	return generation, a.cfg.Registry.State()
}

// read settles consistency and blocking and sets the answer's headers. The State it returns is
// the one to answer from; index must be a pure function of a State.
func (q *request) read(s registry.Subject, index func(*catalog.State) uint64) (*catalog.State, error) {
	if err := q.readParams(); err != nil {
		return nil, err
	}
	contact, err := q.contact()
	if err != nil {
		if errkind.Is(err, errkind.NotLeader) {
			return nil, q.forward(true)
		}
		return nil, err
	}
	var st *catalog.State
	q.gen, st = q.api.now()
	at := index(st)
	if q.block.Index > 0 && at <= q.block.Index {
		if st, contact, err = q.park(s, index); err != nil {
			return nil, err
		}
		if err = q.authorizeAgain(); err != nil {
			return nil, err
		}
		at = index(st)
		q.wokenAt(s, at)
	}
	q.api.queries.Add(1)
	q.readHeaders(contact, at)
	return st, nil
}

// park holds the request until the subject's index passes what the client has
// seen. Nothing pooled is held meanwhile.
func (q *request) park(s registry.Subject, index func(*catalog.State) uint64) (*catalog.State, registry.Contact, error) {
	q.releaseBuffer()
	until := q.api.cfg.Clock.Now().Add(httpx.Jitter(q.block.Wait))
	for {
		ctx, release := q.untilLeaderLost()
		q.api.blocking.Add(1)
		q.api.cfg.Registry.Await(ctx, s, q.block.Index, until.Sub(q.api.cfg.Clock.Now()), index)
		q.api.blocking.Add(-1)
		changed := ctx.Err() != nil && q.r.Context().Err() == nil
		release()
		var st *catalog.State
		q.gen, st = q.api.now()
		contact, err := q.contact()
		if err != nil && q.mode == registry.Consistent {
			return nil, contact, answer.ErrNoLeader
		}
		if changed && index(st) <= q.block.Index && q.api.cfg.Clock.Now().Before(until) && q.api.leads(q.r.Context()) {
			continue // this server leads on: the change was another one
		}
		if err != nil { // a bounded staleness is what the default mode promises; the header tells
			contact = registry.Contact{LastContact: contact.LastContact}
		}
		return st, contact, nil
	}
}

// untilLeaderLost is the request's context, which for a consistent query also ends at the next
// change of who leads: whether this server still may answer is then asked anew. release must be called.
func (q *request) untilLeaderLost() (ctx context.Context, release func()) {
	if q.mode != registry.Consistent || q.api.cfg.LeaderChanges == nil {
		return q.r.Context(), func() {}
	}
	changed := q.api.cfg.LeaderChanges()
	ctx, cancel := context.WithCancel(q.r.Context())
	if !q.api.leads(ctx) { // lost since it was asked: the channel is for the change after that
		cancel()
		return ctx, func() {}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

var (
	effective = map[registry.Mode][]string{
		registry.Default: {"leader"}, registry.Consistent: {"consistent"}, registry.Stale: {"stale"},
	}
	backend = []string{"blocking-query"}
)

func (q *request) readHeaders(c registry.Contact, index uint64) {
	h := q.w.Header()
	h["X-Consul-Index"] = indexHeader(index)
	h["X-Consul-Knownleader"] = boolHeader(c.KnownLeader)
	h["X-Consul-Lastcontact"] = contactHeader(c)
	if q.cached != 0 {
		cacheHeaders(h, q.cached == cacheHit, time.Duration(contactMillis(c))*time.Millisecond)
	}
	if q.discovery() {
		h["X-Consul-Effective-Consistency"] = effective[q.mode]
		h["X-Consul-Query-Backend"] = backend
	}
}

func boolHeader(v bool) []string {
	if v {
		return valueTrue
	}
	return valueFalse
}

func contactHeader(c registry.Contact) []string {
	if ms := contactMillis(c); ms > 0 {
		return []string{strconv.FormatInt(ms, 10)}
	}
	return valueZero
}

// contactMillis rounds up: a state is never older than the header says. A leader's contact is not always 0.
func contactMillis(c registry.Contact) int64 {
	ms := c.LastContact.Milliseconds()
	if time.Duration(ms)*time.Millisecond < c.LastContact {
		ms++
	}
	return max(ms, 0)
}

// replyShared answers with a body that all who ask the same at the same
// version share. key names the question; what encode returns must depend on
// nothing but the key, the State and the class of the caller's rights.
func (q *request) replyShared(key string, index uint64, encode func([]byte) []byte) error {
	if q.pretty() {
		return q.replyScratch(encode(q.buffer()))
	}
	k := appendBodyKey(q.buffer(), q.grant.Class(), key, q.rest, q.q)
	*q.buf = k
	body := q.api.cache.GetMarked(k, httpx.Version{Generation: q.gen, Index: index}, func(b []byte) ([]byte, bool) {
		q.hidden = false
		b = q.api.indented(encode)(b)
		return b, q.hidden
	})
	q.hidden = body.Marked()
	q.tellFiltered()
	q.api.cache.WriteTo(q.w, q.r, body)
	return nil
}

// appendBodyKey appends the name of an encoded answer: who may see it, which
// question, and what of the query shapes the answer.
func appendBodyKey(k []byte, class, key, rest string, query httpx.Query) []byte {
	k = append(k, class...)
	k = append(k, 0)
	k = append(k, key...)
	k = append(k, 0)
	k = append(k, rest...)
	for name, value := range query.Pairs() {
		switch name {
		case "passing": // its value was found to be a bool, or nothing
			if on, err := strconv.ParseBool(value); err == nil && !on {
				value = "no" // the last one counts: it must not be left out
			} else {
				value = ""
			}
		case "tag", "filter", "node-meta", "separator", "seperator", "since":
		default: // does not shape an answer
			continue
		}
		k = append(k, 0)
		k = append(k, name...)
		k = append(k, '=')
		k = strconv.AppendInt(k, int64(len(value)), 10) // no value can pass for two pairs
		k = append(k, ':')
		k = append(k, value...)
	}
	return k
}
