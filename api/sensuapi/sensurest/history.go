package sensurest

import (
	"errors"
	"net/http"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/sensuapi/eventstream"
	"corbel.dev/corbel/api/sensuapi/pastwindow"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor/fates"
	"corbel.dev/corbel/monitor/runs"
)

// past is the answer about one check.
func past(namespace, entity, check string, spans []runs.Span) map[string]any {
	return map[string]any{"namespace": namespace, "entity": entity, "check": check, "spans": spans}
}

// history answers with what is kept of a check's past, oldest first: times of one status each. Where it is not one
// check that is asked for, each that was something in the window is a line.
func (q events) history() error {
	w, err := pastwindow.Of(httpx.Query(q.r.URL.RawQuery).Value, q.cfg.Now())
	if err != nil {
		return invalid(err)
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
			return q.answer(http.StatusOK, past(p.Namespace, p.Entity, p.Check, w.Of(p.Past())))
		}
	}
	return errkind.Errorf(errkind.NotFound, "no event of check %q on entity %q in namespace %q", check, entity,
		q.namespace)
}

// histories writes the past of many checks, one a line.
func (q events) histories(w *pastwindow.Window, entity, check string) error {
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
		spans := w.Of(s.Past())
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

// fates answers with what became of the newest event of a check at its handlers.
func (q events) fates() error {
	query := httpx.Query(q.r.URL.RawQuery)
	k := fates.Key{Namespace: q.namespace, Entity: query.Value("entity"), Check: query.Value("check")}
	if k.Namespace == "" || k.Entity == "" || k.Check == "" {
		return invalid(errors.New("fates are those of one check: namespace, entity and check are needed"))
	}
	if q.cfg.Fates == nil {
		return errNotFound
	}
	list, err := q.cfg.Fates(q.r.Context(), k)
	if err != nil {
		return err
	}
	return q.answer(http.StatusOK, list)
}
