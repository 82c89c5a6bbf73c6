package consulapi

import (
	"encoding/binary"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/api/consulapi/answer"
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

var eventRoutes = []route{
	{"PUT", "/v1/event/fire/", own, acl.Event, eventFire},
	{"GET", "/v1/event/list", own, acl.Event, eventList},
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

func eventFire(q *request) error {
	if q.rest == "" {
		return answer.Invalidf("Missing name")
	}
	e := Event{ID: uuid.NewString(), Name: q.rest, NodeFilter: q.q.Value("node"), ServiceFilter: q.q.Value("service"), TagFilter: q.q.Value("tag")}
	if err := q.allow(acl.Event, e.Name, acl.Write); err != nil {
		return err
	}
	if q.api.cfg.Events == nil {
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
	body, err := q.body(q.api.cfg.Limits.BodyBytes)
	if err != nil {
		return err
	}
	if len(body) > 0 {
		e.Payload = slices.Clone(body)
	}
	if err := q.api.cfg.Events.Fire(e); err != nil {
		return err
	}
	return q.replyValue(e.wire())
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
func (q *request) eventsAsked(all []Event) ([]wireEvent, uint64) {
	list, index := []wireEvent{}, uint64(1)
	for i := range all {
		e := &all[i]
		if name := q.q.Value("name"); name != "" && e.Name != name {
			continue
		}
		if !q.sees(acl.Event, e.Name) {
			continue
		}
		list, index = append(list, e.wire()), eventIndex(e.ID)
	}
	return list, index
}

func eventList(q *request) error {
	if q.api.cfg.Events == nil {
		return q.reply([]byte("[]"))
	}
	if err := q.readParams(); err != nil {
		return err
	}
	all, changed := q.api.cfg.Events.Recent()
	list, index := q.eventsAsked(all)
	if q.block.Index > 0 && index == q.block.Index {
		q.releaseBuffer()
		q.api.blocking.Add(1)
		defer q.api.blocking.Add(-1)
		timer := time.NewTimer(httpx.Jitter(q.block.Wait))
		defer timer.Stop()
		for waiting := true; waiting && index == q.block.Index; {
			select {
			case <-changed:
				if err := q.authorizeAgain(); err != nil {
					return err
				}
				all, changed = q.api.cfg.Events.Recent()
				list, index = q.eventsAsked(all)
			case <-timer.C:
				waiting = false
			case <-q.r.Context().Done():
				return errkind.E(errkind.Unavailable, "wait for an event", q.r.Context().Err())
			}
		}
	}
	q.w.Header()["X-Consul-Index"] = []string{strconv.FormatUint(index, 10)}
	return q.replyValue(list)
}
