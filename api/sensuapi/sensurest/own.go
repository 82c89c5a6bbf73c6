package sensurest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/sensuapi/eventstream"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/standing"
	"corbel.dev/corbel/monitor/subscribers"
)

// routeOwn finds who answers below /api/corbel/v1.
func (q *request) routeOwn(words []string) func() error {
	if serve := (federation{q}).route(words); serve != nil {
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
	serve := map[string]func(*request) error{"watch": by(events.watch), "export": by(events.export),
		"history": by(events.history), "changes": by(events.changes), "fates": by(events.fates)}[words[1]]
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

// watch shows events as they are stored, until the reader leaves, is too slow, or may not see them any more.
func (q events) watch() error {
	c, err := lists(q).chosen()
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
	out := eventstream.New(q.w, q.r)
	if out.Beat() != nil {
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
			if time.Since(beaten) >= eventstream.BeatEvery {
				if beaten = time.Now(); out.Beat() != nil {
					return nil
				}
			}
			continue
		case err != nil:
			out.End(err, codeInternal)
			return nil
		}
		e, err := p.Event()
		if err != nil {
			q.cfg.Log.Error("an event cannot be shown", "namespace", p.Namespace, "entity", p.Entity, "check", p.Check,
				"error", err)
			continue
		}
		if (lists(q)).takes(&c, e) && out.Put("", e) != nil {
			return nil
		}
		if follower.Waiting() == 0 && out.W.Buffered() > 0 && out.Flush() != nil { // none may come after this one for long
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
func (q events) export() error {
	c, err := lists(q).chosen()
	if err != nil {
		return err
	}
	out, right := eventstream.New(q.w, q.r), q.standing()
	for e, err := range q.walk(&c, "") {
		if ended := right.Err(); ended != nil {
			out.End(ended, codeInternal)
			return nil
		}
		if errkind.Is(err, errkind.Unavailable) {
			out.End(err, codeInternal)
			return nil
		}
		if err != nil {
			q.cfg.Log.Error("an event is left out of an export", "at", strings.ReplaceAll(e.at, "\x00", "/"), "error", err)
			continue
		}
		if out.Put("", e.value) != nil {
			return nil
		}
		if out.W.Available() < out.W.Size()/4 && out.Flush() != nil {
			return nil
		}
	}
	_ = out.Flush()
	return nil
}
