package sensurest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/standing"
	"corbel.dev/corbel/monitor/subscribers"
)

// routeOwn finds who answers below /api/corbel/v1.
func (q *request) routeOwn(words []string) func() error {
	if serve := q.routeFederation(words); serve != nil {
		return serve
	}
	if len(words) >= 3 && words[0] == "namespaces" {
		q.namespace, words = words[1], words[2:]
	}
	if len(words) != 2 || words[0] != "events" {
		return nil
	}
	q.kind = eventKind
	if namespace := httpx.Query(q.r.URL.RawQuery).Value("namespace"); q.namespace == "" {
		q.namespace = namespace
	}
	serve := map[string]func(*request) error{"watch": (*request).watch, "export": (*request).export,
		"history": (*request).history, "changes": (*request).changes}[words[1]]
	if serve == nil {
		return nil
	}
	return func() error {
		if q.r.Method != http.MethodGet {
			return q.notAllowed("GET")
		}
		if err := q.may("list", "events", q.namespace, ""); err != nil {
			return err
		}
		return serve(q)
	}
}

const (
	beatEvery = 15 * time.Second
	// beatTime is how long a follower may take for what it is sent.
	beatTime = 15 * time.Second
)

// feed writes one thing after the other to a reader who stays: as lines of JSON, or as server-sent events.
type feed struct {
	w       *bufio.Writer
	control *http.ResponseController
	events  bool // server-sent
}

func (q *request) feed() *feed {
	f := &feed{w: bufio.NewWriterSize(q.w, 16<<10), control: http.NewResponseController(q.w)}
	f.events = strings.Contains(q.r.Header.Get("Accept"), "text/event-stream")
	h := q.w.Header()
	h["Content-Type"] = []string{"application/x-ndjson"}
	if f.events {
		h["Content-Type"] = []string{"text/event-stream"}
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	q.w.WriteHeader(http.StatusOK)
	return f
}

// put writes one thing of a kind ("" is an event). It is sent with the next flush.
func (f *feed) put(kind string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if f.events {
		if kind != "" {
			_, _ = f.w.WriteString("event: " + kind + "\n")
		}
		_, _ = f.w.WriteString("data: ")
	}
	_, _ = f.w.Write(b)
	if f.events {
		_ = f.w.WriteByte('\n')
	}
	return f.w.WriteByte('\n') // the first error stays
}

// beat says that the stream is alive: an empty line, or a comment.
func (f *feed) beat() error {
	if f.events {
		_ = f.w.WriteByte(':')
	}
	_ = f.w.WriteByte('\n')
	return f.flush()
}

func (f *feed) flush() error {
	_ = f.control.SetWriteDeadline(time.Now().Add(beatTime)) // a reader that takes nothing is cut
	if err := f.w.Flush(); err != nil {
		return err
	}
	return f.control.Flush()
}

// end tells why there is no more.
func (f *feed) end(err error) {
	_ = f.put("error", map[string]any{"error": map[string]any{"message": err.Error(), "code": codeInternal}})
	_ = f.flush()
}

// watch shows events as they are stored, until the reader leaves, is too slow, or may not see them any more.
func (q *request) watch() error {
	c, err := q.chosen()
	if err != nil {
		return err
	}
	query := httpx.Query(q.r.URL.RawQuery)
	filter := subscribers.Filter{Namespace: q.namespace, Entity: query.Value("entity"), Check: query.Value("check")}
	if text := query.Value("changes"); text != "" {
		if filter.Changes, err = strconv.ParseBool(text); err != nil {
			return invalid(errors.New("changes must be true or false"))
		}
	}
	follower, err := q.cfg.Follow(filter)
	if err != nil {
		return err
	}
	defer follower.Close()
	out := q.feed()
	if out.beat() != nil {
		return nil
	}
	right, beaten := q.standing(), time.Now()
	for {
		ctx, cancel := context.WithTimeout(q.r.Context(), standing.Every)
		p, err := follower.Next(ctx)
		cancel()
		if ended := right.Err(); ended != nil {
			err = ended
		}
		switch {
		case q.r.Context().Err() != nil:
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			if time.Since(beaten) >= beatEvery {
				if beaten = time.Now(); out.beat() != nil {
					return nil
				}
			}
			continue
		case err != nil:
			out.end(err)
			return nil
		}
		e, err := p.Event()
		if err != nil {
			q.cfg.Log.Error("an event cannot be shown", "namespace", p.Namespace, "entity", p.Entity, "check", p.Check,
				"error", err)
			continue
		}
		if q.takes(&c, e) && out.put("", e) != nil {
			return nil
		}
		if follower.Waiting() == 0 && out.w.Buffered() > 0 && out.flush() != nil { // none may come after this one for long
			return nil
		}
	}
}

// standing is the right of somebody who stays: it finds out again who that is, and whether it may see events.
func (q *request) standing() *standing.Standing {
	return standing.New(nil, func() error {
		who, err := q.caller(q.r, q.cfg.Logins.Holds)
		if err != nil {
			return errkind.New(errkind.Denied, "the user, or what it logged in with, is not there any more")
		}
		q.who = who // its groups may be others
		return q.may("list", "events", q.namespace, "")
	})
}

// export writes all events, one a line.
func (q *request) export() error {
	c, err := q.chosen()
	if err != nil {
		return err
	}
	out, right := q.feed(), q.standing()
	for e, err := range q.walk(&c, "") {
		if ended := right.Err(); ended != nil {
			out.end(ended)
			return nil
		}
		if errkind.Is(err, errkind.Unavailable) {
			out.end(err)
			return nil
		}
		if err != nil {
			q.cfg.Log.Error("an event is left out of an export", "at", strings.ReplaceAll(e.at, "\x00", "/"), "error", err)
			continue
		}
		if out.put("", e.value) != nil {
			return nil
		}
		if out.w.Available() < out.w.Size()/4 && out.flush() != nil {
			return nil
		}
	}
	_ = out.flush()
	return nil
}
