package rows

import (
	"strconv"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
)

// Changes is a read that asks for what changed after an index (docs/extensions.md).
//
// The answer names the index that it leads to, which the client gives as since the
// next time: whoever takes over all answers holds the list that a full read at the
// last index gives. Where that cannot be told (no index yet, forgotten deletions, an
// index of another history) the answer is the whole list and says Reset; a client
// that missed something is told so and never left to guess.
type Changes struct {
	After uint64 // the index that the client has
	Reset bool   // everything is told
	State *statestore.State
	q     *Request
	index uint64
}

// ErrSinceAlone refuses a read of the changes of one key.
var ErrSinceAlone = answer.Invalidf("since goes with recurse: /v1/kv/prefix?recurse&since=0")

// AsksChanges tells whether the request is a read of changes.
func AsksChanges(q *Request) bool { return q.Query != "" && q.Query.Has("since") }

// ReadChanges waits until something changed after the index asked for, or the wait is over.
// index is the newest index of what the list shows; nil is returned with an error or
// when the request was answered elsewhere.
func ReadChanges(q *Request, subject registry.Subject, index func(*statestore.State) uint64) (*Changes, error) {
	text, _ := q.Query.Get("since")
	after, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, answer.Invalidf("Invalid since %q: give the Index of the answer before, or 0", text)
	}
	if q.Query.Has("index") {
		return nil, answer.Invalidf("since and index exclude each other: since blocks as index does")
	}
	if q.Query.Has("merge-central-config") {
		return nil,
			answer.Invalidf("since and merge-central-config exclude each other: what config entries change is no change of " +
				"an instance")
	}
	s := &Changes{q: q, After: after}
	q.After = strconv.FormatUint(after, 10)
	s.State, err = q.Read(subject, func(st *statestore.State) uint64 {
		if s.mustReset(st) {
			return after + 1 // told at once
		}
		return index(st)
	})
	if err != nil {
		return nil, err
	}
	s.Reset = s.mustReset(s.State)
	s.index = s.State.Index()
	if !s.Reset && s.index < after {
		s.index = after // a follower that is behind knows of nothing newer
	}
	q.W.Header()["X-Consul-Index"] = IndexHeader(s.index)
	return s, nil
}

// mustReset tells whether the changes cannot be told. An index that is ahead of the
// leader's is of another history; a follower may be behind, and then it waits.
func (c *Changes) mustReset(st *statestore.State) bool {
	return c.After == 0 || c.After < st.Horizon() || c.After > st.Index() && c.q.Mode != registry.Stale
}

// Reply answers with what the two functions append: the elements of Set (all of them
// when everything is told) and of Deleted. The body is shared by all who ask the same.
func (c *Changes) Reply(key string, set, gone func(b *answer.List)) error {
	return c.q.ReplyShared(key, c.index, func(b []byte) []byte {
		b = answer.UintField(b, `{"Index":`, c.index)
		b = answer.BoolField(b, `,"Reset":`, c.Reset)
		list := answer.List{Bytes: append(b, `,"Set":`...)}
		set(&list)
		list = answer.List{Bytes: append(list.End(), `,"Deleted":`...)}
		if !c.Reset {
			gone(&list)
		}
		return append(list.End(), '}')
	})
}
