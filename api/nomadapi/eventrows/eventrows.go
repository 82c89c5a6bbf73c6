// Package eventrows answers the event stream: what commits changed, as lines of JSON.
//
// A reader that falls behind what is kept goes on at the oldest event that is; its lines say by their index that some
// are missing. When a snapshot replaces the state its stream ends: what it was told of may be undone, and no event says
// so. Clients then read the state anew, and follow again from any index that they know: indexes only grow. A stream
// holds no queue: it reads from the plane's when its client has taken the last line.
package eventrows

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/kit/errkind"
)

type request = nomadrows.Request

// Rows is the row of the stream.
func Rows() []nomadrows.Row {
	return []nomadrows.Row{{Methods: "GET", Path: "/v1/event/stream", Right: nomadrows.Anyone, Stream: true,
		Handle: stream}}
}

// heartbeat is how often a line says that nothing happened.
const heartbeat = 30 * time.Second

const all = "*"

// topics are what a stream wants: keys by topic.
type topics map[string][]string

// parse reads the parameters topic, each as Topic or Topic:key.
func parse(list []string) (topics, error) {
	wanted := topics{}
	for _, text := range list {
		topic, key, found := strings.Cut(text, ":")
		if !found {
			key = all
		}
		if topic == "" || key == "" {
			return nil, nomadrows.BadRequest("Invalid key value pair for topic: %q, it is Topic:key", text)
		}
		wanted[topic] = append(wanted[topic], key)
	}
	if len(wanted) == 0 {
		wanted[all] = []string{all}
	}
	return wanted, nil
}

// wants reports whether an event is one of those.
func (t topics) wants(e *nomadrows.Event) bool {
	for _, name := range []string{e.Topic, all} {
		for _, key := range t[name] {
			if key == all || key == e.Key {
				return true
			}
			for _, other := range e.FilterKeys {
				if key == other {
					return true
				}
			}
		}
	}
	return false
}

// right is what a topic needs.
func right(topic string) nomadrows.Capability {
	switch topic {
	case "Node", "NodePool":
		return nomadrows.NodeRead
	}
	return nomadrows.ReadJob
}

// begins is the index before that of the first event.
func begins(q *request) (uint64, error) {
	text, given := q.Query.Get("index")
	if !given {
		return q.Views.Oldest(), nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, nomadrows.BadRequest("Unable to parse index: %v", err)
	}
	if n == 0 {
		return q.Views.Oldest(), nil
	}
	return n - 1, nil
}

func stream(q *request) error {
	wanted, err := parse(q.Query.All("topic"))
	if err != nil {
		return err
	}
	at, err := begins(q)
	if err != nil {
		return err
	}
	if wanted.may(q) != nil {
		return nomadrows.Failed("Permission denied")
	}
	at = max(at, q.Views.Oldest())
	ctx, release := q.Lasting(q.Ctx(), wanted.may)
	defer release()
	out := httpx.NewStream(q.W, q.R, httpx.JSONType)
	defer out.Close()
	if !line(out, []byte("{}")) {
		return nil
	}
	for ctx.Err() == nil {
		batches, err := next(ctx, q, at)
		switch {
		case errkind.Is(err, errkind.Conflict):
			return nil
		case errkind.Is(err, errkind.NotFound):
			at = q.Views.Oldest()
			continue
		case err != nil && ctx.Err() == nil && len(batches) == 0:
			if !line(out, []byte("{}")) {
				return nil
			}
			continue
		}
		for _, b := range batches {
			at = b.Index
			if text := chosen(q, wanted, b); text != nil && !line(out, text) {
				return nil
			}
		}
	}
	return nil
}

// may tells whether all of the topics may be followed in one namespace. Of all namespaces each event is judged.
func (t topics) may(q *request) error {
	if q.Namespace == nomadrows.AllNamespaces {
		return nil
	}
	for topic := range t {
		if err := q.May(q.Namespace, right(topic)); err != nil {
			return err
		}
	}
	return nil
}

func next(ctx context.Context, q *request, at uint64) ([]*nomadrows.Events, error) {
	wait, cancel := context.WithTimeout(ctx, heartbeat)
	defer cancel()
	batches, err := q.Views.Events(wait, at)
	if err == nil && len(batches) == 0 {
		<-wait.Done() // nothing, and too early
		err = wait.Err()
	}
	return batches, err
}

// chosen is the line of a commit, nil when nothing of it is wanted.
func chosen(q *request, wanted topics, b *nomadrows.Events) []byte {
	part := nomadrows.Events{Index: b.Index}
	for _, e := range b.Events {
		if (e.Namespace == "" || q.Sees(e.Namespace, right(e.Topic))) && wanted.wants(e) {
			part.Events = append(part.Events, e)
		}
	}
	if len(part.Events) == 0 {
		return nil
	}
	text, err := json.Marshal(&part)
	if err != nil {
		return nil // a payload that is no JSON: the others come
	}
	return text
}

// line reports whether the client is still there.
func line(out *httpx.Stream, text []byte) bool {
	_, err := out.Write(append(text, '\n'))
	out.Flush()
	return err == nil
}
