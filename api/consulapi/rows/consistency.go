package rows

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// What a request that asked for the cache gets.
const (
	CacheMiss = 1 + iota
	CacheHit
)

// CacheHeaders tell where an answer came from. Age is for hits only.
func CacheHeaders(h http.Header, hit bool, age time.Duration) {
	delete(h, "Age")
	if !hit {
		h["X-Cache"] = []string{"MISS"}
		return
	}
	h["X-Cache"] = []string{"HIT"}
	h["Age"] = []string{strconv.FormatInt(int64(max(age, 0)/time.Second), 10)}
}

// reading is how a request reads, and what it has read.
type reading struct {
	Mode  registry.Mode
	bound time.Duration // the staleness that is allowed; -1 for any
	Block httpx.Blocking
	After string // the index of a read of changes, "" for any other
	gen   uint64 // the registry's generation, read before the State that read returned
	// committed is when the change was committed that woke this blocking query; zero without one.
	committed time.Time
	notify    *NotifyTimings // of the endpoint that was woken
	// cached is cacheMiss or cacheHit on a server when the client asked for the cache.
	Cached int
}

// ReadParams reads the consistency mode and the blocking parameters.
func (q *Request) ReadParams() error {
	q.Mode = registry.Default
	discovery := q.Row.discovery()
	if q.Query == "" {
		if discovery {
			q.Mode, q.bound = q.DiscoveryMode()
		}
		return nil
	}
	stale, consistent := q.Query.Has("stale"), q.Query.Has("consistent")
	switch {
	case stale && consistent:
		return answer.Invalidf("Cannot specify ?stale with ?consistent, conflicting semantics.")
	case consistent && q.Query.Has("cached"):
		return ErrCachedConsistent
	case consistent:
		q.Mode = registry.Consistent
	case stale:
		q.Mode = registry.Stale
	case q.Query.Has("leader"):
	default:
		if err := maxStale(q, discovery); err != nil {
			return err
		}
	}
	if q.Cached == CacheHit && q.Mode == registry.Default {
		q.Mode = registry.Stale // a hit on a server is read without a leader
	}
	var err error
	query := q.Query
	if q.After != "" { // since blocks as index does
		query = httpx.Query("index=" + q.After + "&wait=" + q.Query.Value("wait"))
	}
	q.Block, err = httpx.ParseBlocking(query, q.Wait)
	return err
}

// ErrCachedConsistent refuses a read that asks for both.
var ErrCachedConsistent = answer.Invalidf("Cannot specify ?cached with ?consistent, conflicting semantics.")

func maxStale(q *Request, discovery bool) error {
	if v, _ := q.Query.Get("max_stale"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			return answer.Invalidf("Invalid max_stale value %q", v)
		}
		q.Mode, q.bound = registry.Stale, d
		return nil
	}
	if discovery {
		q.Mode, q.bound = q.DiscoveryMode()
	}
	return nil
}

// DiscoveryMode is how rows of catalog and health read that ask for nothing else, and the staleness that they allow.
func (c *Core) DiscoveryMode() (registry.Mode, time.Duration) {
	if d := c.discoveryStale.Load(); d > 0 {
		return registry.Stale, time.Duration(d)
	}
	return registry.Default, -1
}

// discovery reports whether the row is one of catalog or health, which follow
// discovery_max_stale and name the consistency that they gave.
func (r *Row) discovery() bool {
	return strings.HasPrefix(r.Pattern, "/v1/catalog/") || strings.HasPrefix(r.Pattern, "/v1/health/")
}

// Contact asks the registry for a read in the request's mode, once more as
// default when a bounded read was too far behind.
func (q *Request) Contact() (registry.Contact, error) {
	c, mode, err := q.Core.Contact(q.R.Context(), q.Mode, q.bound)
	q.Mode = mode
	return c, err
}

// Contact reads in a mode; a stale read that is further behind than bound becomes a
// default one. No bound is -1. It returns the mode that was given in the end.
func (a *Core) Contact(ctx context.Context, mode registry.Mode, bound time.Duration) (registry.Contact, registry.Mode,
	error) {
	c, err := a.Registry.Read(ctx, mode)
	if err == nil && bound >= 0 && mode == registry.Stale && c.LastContact > bound {
		mode = registry.Default
		c, err = a.Registry.Read(ctx, mode)
	}
	return c, mode, err
}

// Now returns the State and a generation that is not newer than it.
func (a *Core) Now() (generation uint64, st *statestore.State) {
	generation = a.Registry.Generation()
	return generation, a.Registry.State()
}

// Read settles consistency and blocking and sets the answer's headers. The State it returns is
// the one to answer from; index must be a pure function of a State.
func (q *Request) Read(s registry.Subject, index func(*statestore.State) uint64) (*statestore.State, error) {
	if err := q.ReadParams(); err != nil {
		return nil, err
	}
	contact, err := q.Contact()
	if err != nil {
		if errkind.Is(err, errkind.NotLeader) {
			return nil, q.PassOn(true)
		}
		return nil, err
	}
	var st *statestore.State
	q.gen, st = q.Now()
	at := index(st)
	if q.Block.Index > 0 && at <= q.Block.Index {
		if st, contact, err = q.park(s, index); err != nil {
			return nil, err
		}
		if err = q.AuthorizeAgain(); err != nil {
			return nil, err
		}
		at = index(st)
		q.wokenAt(s, at)
	}
	q.Queries.Add(1)
	q.ReadHeaders(contact, at)
	return st, nil
}

// park holds the request until the subject's index passes what the client has
// seen. Nothing pooled is held meanwhile.
func (q *Request) park(s registry.Subject, index func(*statestore.State) uint64) (*statestore.State, registry.Contact,
	error) {
	q.ReleaseBuffer()
	until := q.Clock.Now().Add(httpx.Jitter(q.Block.Wait))
	for {
		ctx, release := untilLeaderLost(q)
		q.Parked.Add(1)
		q.Registry.Await(ctx, s, q.Block.Index, until.Sub(q.Clock.Now()), index)
		q.Parked.Add(-1)
		changed := ctx.Err() != nil && q.R.Context().Err() == nil
		release()
		var st *statestore.State
		q.gen, st = q.Now()
		contact, err := q.Contact()
		if err != nil && q.Mode == registry.Consistent {
			return nil, contact, answer.ErrNoLeader
		}
		if changed && index(st) <= q.Block.Index && q.Clock.Now().Before(until) && q.Leads(q.R.Context()) {
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
func untilLeaderLost(q *Request) (ctx context.Context, release func()) {
	if q.Mode != registry.Consistent || q.LeaderChanges == nil {
		return q.R.Context(), func() {}
	}
	changed := q.LeaderChanges()
	ctx, cancel := context.WithCancel(q.R.Context())
	if !q.Leads(ctx) { // lost since it was asked: the channel is for the change after that
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
	Effective = map[registry.Mode][]string{
		registry.Default: {"leader"}, registry.Consistent: {"consistent"}, registry.Stale: {"stale"},
	}
	backend = []string{"blocking-query"}
)

// MetaFields are what the contract's query metadata adds to an object: all but the index, which stays 0 there.
func MetaFields(c registry.Contact) string {
	return fmt.Sprintf(`,"Index":0,"LastContact":%d,"KnownLeader":%t,"ConsistencyLevel":"","NotModified":false,"Backend":0`,
		ContactMillis(c)*int64(time.Millisecond), c.KnownLeader)
}

// ReadHeaders sets the headers of an answer that was read from a State.
func (q *Request) ReadHeaders(c registry.Contact, index uint64) {
	h := q.W.Header()
	h["X-Consul-Index"] = IndexHeader(index)
	h["X-Consul-Knownleader"] = BoolHeader(c.KnownLeader)
	h["X-Consul-Lastcontact"] = ContactHeader(c)
	if q.Cached != 0 {
		CacheHeaders(h, q.Cached == CacheHit, time.Duration(ContactMillis(c))*time.Millisecond)
	}
	if q.Row.discovery() {
		h["X-Consul-Effective-Consistency"] = Effective[q.Mode]
		h["X-Consul-Query-Backend"] = backend
	}
}

// BoolHeader is a header's value.
func BoolHeader(v bool) []string {
	if v {
		return ValueTrue
	}
	return valueFalse
}

// ContactHeader is the value of X-Consul-Lastcontact.
func ContactHeader(c registry.Contact) []string {
	if ms := ContactMillis(c); ms > 0 {
		return []string{strconv.FormatInt(ms, 10)}
	}
	return ValueZero
}

// ContactMillis rounds up: a state is never older than the header says. A leader's contact is not always 0.
func ContactMillis(c registry.Contact) int64 {
	ms := c.LastContact.Milliseconds()
	if time.Duration(ms)*time.Millisecond < c.LastContact {
		ms++
	}
	return max(ms, 0)
}

// ReplyShared answers with a body that all who ask the same at the same
// version share. key names the question; what encode returns must depend on
// nothing but the key, the State and the class of the caller's rights.
func (q *Request) ReplyShared(key string, index uint64, encode func([]byte) []byte) error {
	if pretty(q) {
		return q.ReplyScratch(encode(q.Buffer()))
	}
	k := AppendBodyKey(q.Buffer(), q.Grant.Class(), key, q.Rest, q.Query)
	*q.buf = k
	body := q.Bodies.GetMarked(k, httpx.Version{Generation: q.gen, Index: index}, func(b []byte) ([]byte, bool) {
		q.Hidden = false
		b = q.Indented(encode)(b)
		return b, q.Hidden
	})
	q.Hidden = body.Marked()
	q.TellFiltered()
	q.Bodies.WriteTo(q.W, q.R, body)
	return nil
}

// AppendBodyKey appends the name of an encoded answer: who may see it, which
// question, and what of the query shapes the answer.
func AppendBodyKey(k []byte, class, key, rest string, query httpx.Query) []byte {
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
		case "tag", "filter", "node-meta", "separator", "seperator", "since", "peer":
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
