package sensurest

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/sensuapi/eventstream"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor/runs"
)

// window is what part of a past is asked for.
type window struct {
	since, until int64 // Unix seconds
	status       int64 // alone; -1 is any
	limit        int   // of the newest spans; 0 is all
}

// instant reads a time: RFC 3339, Unix seconds, or how long ago.
func instant(name, text string, now time.Time) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.Unix(), nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago).Unix(), nil
	}
	return 0,
		invalid(fmt.Errorf("%s %q is neither a time (2006-01-02T15:04:05Z), nor Unix seconds, nor how long ago (36h)",
			name, text))
}

func (q events) window() (w window, err error) {
	w = window{until: math.MaxInt64, status: -1}
	query := httpx.Query(q.r.URL.RawQuery)
	for name, to := range map[string]*int64{"since": &w.since, "until": &w.until} {
		if text := query.Value(name); text != "" {
			if *to, err = instant(name, text, q.cfg.Now()); err != nil {
				return w, err
			}
		}
	}
	if w.until < w.since {
		return w, invalid(errors.New("until is before since"))
	}
	if text := query.Value("status"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return w, invalid(fmt.Errorf("status %q is not a status", text))
		}
		w.status = int64(n)
	}
	if text := query.Value("limit"); text != "" {
		if w.limit, err = strconv.Atoi(text); err != nil || w.limit < 0 {
			return w, invalid(fmt.Errorf("limit %q is not a number of spans", text))
		}
	}
	return w, nil
}

// of returns the spans that reach into the window.
func (w *window) of(all []runs.Span) []runs.Span {
	out := []runs.Span{}
	for _, s := range all {
		if s.Last >= w.since && s.First <= w.until && (w.status < 0 || int64(s.Status) == w.status) {
			out = append(out, s)
		}
	}
	if w.limit > 0 && len(out) > w.limit {
		out = out[len(out)-w.limit:]
	}
	return out
}

// past is the answer about one check.
func past(namespace, entity, check string, spans []runs.Span) map[string]any {
	return map[string]any{"namespace": namespace, "entity": entity, "check": check, "spans": spans}
}

// history answers with what is kept of a check's past, oldest first: times of one status each. Where it is not one
// check that is asked for, each that was something in the window is a line.
func (q events) history() error {
	w, err := q.window()
	if err != nil {
		return err
	}
	query := httpx.Query(q.r.URL.RawQuery)
	entity, check := query.Value("entity"), query.Value("check")
	if entity == "" || check == "" {
		return q.histories(&w, entity, check)
	}
	if q.namespace == "" {
		return invalid(errors.New("one check's past needs a namespace"))
	}
	list, err := q.cfg.Events.Events(q.r.Context(), q.namespace, entity)
	if err != nil {
		return err
	}
	for _, p := range list {
		if p.Check == check {
			return q.answer(http.StatusOK, past(p.Namespace, p.Entity, p.Check, w.of(p.Past())))
		}
	}
	return errkind.Errorf(errkind.NotFound, "no event of check %q on entity %q in namespace %q", check, entity,
		q.namespace)
}

// histories writes the past of many checks, one a line.
func (q events) histories(w *window, entity, check string) error {
	c, err := lists(q).chosen()
	if err != nil {
		return err
	}
	if entity != "" && q.namespace == "" {
		return invalid(errors.New("one entity's past needs a namespace"))
	}
	c.limit, c.after = 0, nil // limit is of spans here
	lists(q).last(&c)
	out := eventstream.New(q.w, q.r)
	for s, err := range q.walkStored(&c, entity, check) {
		if err != nil {
			out.End(err, codeInternal)
			return nil
		}
		spans := w.of(s.Past())
		if len(spans) > 0 && out.Put("", past(s.Namespace, s.Entity, s.Check, spans)) != nil {
			return nil
		}
		if out.W.Available() < out.W.Size()/4 && out.Flush() != nil {
			return nil
		}
	}
	_ = out.Flush()
	return nil
}
