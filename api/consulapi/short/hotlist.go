package short

import (
	"bytes"
	"iter"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/catalogrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/hothttp"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
)

// hotLists are the lists of a service's instances that the hot path answers.
var hotLists = [...]struct {
	pattern string
	key     string // names the list in the body cache, as the row's handler does
	encode  func([]byte, *statestore.State, iter.Seq[*catalog.Service], catalogrows.Viewer) []byte
}{
	{"/v1/health/service/", "health", catalogrows.AppendEntries},
	{"/v1/catalog/service/", "service", catalogrows.AppendServiceNodes},
}

// question is what those who get the same bytes have in common.
type question struct {
	list    int // of hotLists
	passing bool
	stale   bool // asked for; otherwise the agent's default
	gzip    bool
	class   string // rightsClass of the caller's rights
	name    string
}

// ask is one caller's question.
type ask struct {
	question
	secret string
	grant  *acl.Grant
	block  httpx.Blocking
	begun  time.Time
}

// params reads the query; false for one that holds anything else.
func (k *ask) params(query httpx.Query, limits httpx.WaitLimits) bool {
	for name, value := range query.Pairs() {
		switch name {
		case "index", "wait":
		case "stale":
			k.stale = true
		case "passing":
			k.passing = true
			if value != "" {
				var err error
				if k.passing, err = strconv.ParseBool(value); err != nil {
					return false
				}
			}
		default:
			return false
		}
	}
	var err error
	k.block, err = httpx.ParseBlocking(query, limits)
	return err == nil
}

// key is the query of the question as appendBodyKey reads it.
func (k *question) key() httpx.Query {
	if k.passing {
		return "passing"
	}
	return ""
}

func (k *question) subject() registry.Subject {
	return registry.Subject{Topic: registry.TopicService, Key: strings.ToLower(k.name)}
}

var doubledSlash = []byte("//")

func (h *Path) serveList(c *hothttp.Call, r *hothttp.Request, list int) hothttp.Outcome {
	a := h.api
	k := ask{begun: a.Clock.Now()}
	k.list, k.gzip = list, r.Gzip
	if len(r.Query) > 0 && !k.params(httpx.Query(r.Query), a.Wait) {
		return hothttp.Decline
	}
	start := len(hotLists[list].pattern)
	if bytes.Contains(r.Path[start-1:], doubledSlash) {
		return hothttp.Decline // it is sent to the path with one
	}
	k.name = string(r.Path[start:])
	var err error
	k.secret = h.secret(r)
	if k.grant, err = h.grant(k.secret); err != nil {
		return h.fail(c, err, rows.ClassRead, h.lists[list], k.begun)
	}
	contact, mode, err := h.contact(&k.question)
	if err != nil {
		return h.fail(c, err, rows.ClassRead, h.lists[list], k.begun)
	}
	generation, st := a.Now()
	if k.block.Index > 0 && st.ServiceIndex(k.name) <= k.block.Index {
		k.class = rightsClass(k.grant)
		return h.park(c, &k)
	}
	hp := httpx.GetBuffer()
	head, body := h.compose(*hp, &k.question, k.grant, generation, st, contact, mode)
	h.count(1)
	_ = c.Reply(head, body) // a client that left is noticed by hothttp
	*hp = head
	httpx.PutBuffer(hp)
	h.read(h.lists[list], k.begun)
	return hothttp.Done
}

// contact reads in the mode that the question asks for.
func (h *Path) contact(k *question) (registry.Contact, registry.Mode, error) {
	mode, bound := h.api.DiscoveryMode()
	if k.stale {
		mode, bound = registry.Stale, -1
	}
	return h.api.Contact(h.base, mode, bound)
}

// count books answered reads.
func (h *Path) count(n int) { h.api.Queries.Add(uint64(n)) }

// compose makes the answer to a question. The head is appended to b; the body is
// shared with all who ask the same, on whichever path.
func (h *Path) compose(b []byte, k *question, g *acl.Grant, generation uint64, st *statestore.State,
	contact registry.Contact, mode registry.Mode) (head, body []byte) {
	index := st.ServiceIndex(k.name)
	kp := httpx.GetBuffer()
	key := rows.AppendBodyKey(*kp, g.Class(), hotLists[k.list].key, k.name, k.key())
	shared := h.api.Bodies.GetMarked(key, httpx.Version{Generation: generation, Index: index},
		func(b []byte) ([]byte, bool) {
			hidden := false
			encode := h.api.Indented(func(b []byte) []byte {
				return hotLists[k.list].encode(b, st, st.Instances(k.name), catalogrows.NewViewer(g, k.passing, &hidden))
			})
			return encode(b), hidden
		})
	*kp = key
	httpx.PutBuffer(kp)
	body, compressed := h.api.Bodies.Encoded(shared, k.gzip)
	head = appendReadHead(h.begin(b, statusOK), contact, index)
	head = append(head, "X-Consul-Effective-Consistency: "...)
	head = append(head, rows.Effective[mode][0]...)
	head = append(head, "\r\nX-Consul-Query-Backend: blocking-query\r\n"...)
	if shared.Marked() && g.Accessor != acl.AnonymousAccessor {
		head = append(head, headFiltered...)
	}
	if compressed {
		head = append(head, headGzip...)
	}
	return append(head, headJSON...), body
}
