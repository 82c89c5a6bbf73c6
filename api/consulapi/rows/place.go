package rows

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/vivaldi"
)

// Coordinate reads a node's coordinate from a State; false when none is known.
func Coordinate(st *statestore.State, node string) (vivaldi.Coord, bool) {
	r := st.Record(catalog.RecordCoordinate, strings.ToLower(node))
	if r == nil {
		return vivaldi.Coord{}, false
	}
	c, err := vivaldi.Decode(r.Value)
	return c, err == nil
}

// NearAgent is ?near= for the agent that was asked, which writes its own name in before it passes the request on.
const NearAgent = "_agent"

// near is the node that a list is to be sorted by; "" for none.
func near(q *Request) string {
	if q.Query == "" {
		return ""
	}
	if v, _ := q.Query.Get("near"); v != NearAgent {
		return v
	}
	return q.Identity.NodeName
}

// nameNear writes this agent's name for _agent into a request that another process will answer.
func nameNear(q *Request) {
	if v, _ := q.Query.Get("near"); v == NearAgent {
		query := q.R.URL.Query()
		query.Set("near", q.Identity.NodeName)
		q.R.URL.RawQuery = query.Encode()
	}
	if strings.HasSuffix(q.Rest, "/execute") && !q.Query.Has(AskedParam) { // the prepared query itself may say _agent
		query := q.R.URL.Query()
		query.Set(AskedParam, q.Identity.NodeName)
		q.R.URL.RawQuery = query.Encode()
	}
}

// Sorted orders a list by distance from the node that ?near= names; objects of nodes whose
// place is unknown come last, and equals stay as they were. Without it, or when nobody knows where that
// node lies, the list is as it was.
func Sorted[T any](q *Request, st *statestore.State, list iter.Seq[T], node func(T) string) iter.Seq[T] {
	from := near(q)
	if from == "" {
		return list
	}
	distance := Distances(st, from)
	if distance == nil {
		return list
	}
	type row struct {
		value T
		at    time.Duration
	}
	var rows []row
	for v := range list {
		rows = append(rows, row{v, distance(node(v))})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.at, b.at) })
	return func(yield func(T) bool) {
		for _, r := range rows {
			if !yield(r.value) {
				return
			}
		}
	}
}

// Distances estimates the round trips from one node to others; nil when nobody knows where it lies. To a node
// whose place is unknown it is the longest there is.
func Distances(st *statestore.State, from string) func(node string) time.Duration {
	origin, ok := Coordinate(st, from)
	if !ok {
		return nil
	}
	known := map[string]time.Duration{}
	return func(node string) time.Duration {
		d, ok := known[node]
		if !ok {
			d = math.MaxInt64
			if at, ok := Coordinate(st, node); ok {
				d = origin.Distance(&at)
			}
			known[node] = d
		}
		return d
	}
}

// NodeOfNode, NodeOfService and NodeOfCheck are where objects lie, for Sorted.
func NodeOfNode(n *catalog.Node) string { return n.Name }

func NodeOfService(s *catalog.Service) string { return s.Node }

func NodeOfCheck(c *catalog.Check) string { return c.Node }

// ReplyList is replyShared, but for lists in the order of one node, which are encoded for this request alone:
// coordinates change without the list's index.
func (q *Request) ReplyList(key string, index uint64, encode func([]byte) []byte) error {
	if near(q) != "" {
		return q.ReplyScratch(encode(q.Buffer()))
	}
	return q.ReplyShared(key, index, encode)
}

// AskedParam names, to a server, the agent that a request was made to.
const AskedParam = "asked-agent"
