package agentrows

import (
	"encoding/binary"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pattern"
)

// Event is a user event as this agent knows it.
type Event struct {
	ID, Name                             string
	Payload                              []byte
	NodeFilter, ServiceFilter, TagFilter string
	LTime                                uint64
}

// Events spreads user events over the pool and remembers those that reached this agent.
type Events interface {
	Fire(e Event) error
	// Recent returns the newest events, oldest first, and a channel that is closed at the next one.
	Recent() ([]Event, <-chan struct{})
}

type wireEvent struct {
	ID, Name                             string
	Payload                              []byte
	NodeFilter, ServiceFilter, TagFilter string
	Version                              int
	LTime                                uint64
}

func (e *Event) wire() wireEvent {
	return wireEvent{e.ID, e.Name, e.Payload, e.NodeFilter, e.ServiceFilter, e.TagFilter, 1, e.LTime}
}

func (ar *Rows) eventFire(q *rows.Request) error {
	if q.Rest == "" {
		return answer.Invalidf("Missing name")
	}
	e := Event{ID: uuid.NewString(), Name: q.Rest, NodeFilter: q.Query.Value("node"),
		ServiceFilter: q.Query.Value("service"), TagFilter: q.Query.Value("tag")}
	if err := q.Allow(acl.Event, e.Name, acl.Write); err != nil {
		return err
	}
	if ar.Events == nil {
		return answer.Fail(http.StatusNotFound, "this agent has no gossip pool to fire events in")
	}
	if e.TagFilter != "" && e.ServiceFilter == "" {
		return answer.Fail(http.StatusInternalServerError, "Cannot provide tag filter without service filter")
	}
	for name, expr := range map[string]string{"node": e.NodeFilter, "service": e.ServiceFilter, "tag": e.TagFilter} {
		if _, err := pattern.Compile(expr); err != nil {
			return answer.Invalidf("Invalid %s filter: %v", name, err)
		}
	}
	body, err := q.Body(q.Limits.BodyBytes)
	if err != nil {
		return err
	}
	if len(body) > 0 {
		e.Payload = slices.Clone(body)
	}
	if err := ar.Events.Fire(e); err != nil {
		return err
	}
	return q.ReplyValue(e.wire())
}

// eventIndex stands for an event in X-Consul-Index: the halves of its ID, one upon the other.
// It does not grow: clients only look whether it changed.
func eventIndex(id string) uint64 {
	u, err := uuid.Parse(id)
	if err != nil {
		return 1
	}
	return max(binary.BigEndian.Uint64(u[:8])^binary.BigEndian.Uint64(u[8:]), 1)
}

// eventsAsked are the events that the request asks for, and the index of the newest.
func eventsAsked(q *rows.Request, all []Event) ([]wireEvent, uint64) {
	list, index := []wireEvent{}, uint64(1)
	for i := range all {
		e := &all[i]
		if name := q.Query.Value("name"); name != "" && e.Name != name {
			continue
		}
		if !q.Sees(acl.Event, e.Name) {
			continue
		}
		list, index = append(list, e.wire()), eventIndex(e.ID)
	}
	return list, index
}

func (ar *Rows) eventList(q *rows.Request) error {
	if ar.Events == nil {
		return q.Reply([]byte("[]"))
	}
	if err := q.ReadParams(); err != nil {
		return err
	}
	all, changed := ar.Events.Recent()
	list, index := eventsAsked(q, all)
	if q.Block.Index > 0 && index == q.Block.Index {
		q.ReleaseBuffer()
		q.Parked.Add(1)
		defer q.Parked.Add(-1)
		timer := time.NewTimer(httpx.Jitter(q.Block.Wait))
		defer timer.Stop()
		for waiting := true; waiting && index == q.Block.Index; {
			select {
			case <-changed:
				if err := q.AuthorizeAgain(); err != nil {
					return err
				}
				all, changed = ar.Events.Recent()
				list, index = eventsAsked(q, all)
			case <-timer.C:
				waiting = false
			case <-q.R.Context().Done():
				return errkind.E(errkind.Unavailable, "wait for an event", q.R.Context().Err())
			}
		}
	}
	q.W.Header()["X-Consul-Index"] = []string{strconv.FormatUint(index, 10)}
	return q.ReplyValue(list)
}
