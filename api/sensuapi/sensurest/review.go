package sensurest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/review"
)

// maxWarnings bounds the warnings of an answer.
const maxWarnings = 20

// dry says that a write is to be tried without being done: ?dry_run=true.
func (q *request) dry() bool { return q.r.URL.Query().Get("dry_run") == "true" }

// strict says that an unknown key is to be an error: ?strict=true.
func (q *request) strict() bool { return q.r.URL.Query().Get("strict") == "true" }

// warn adds a header Warning (RFC 7234, 5.5) to the answer.
func (q *request) warn(text string) {
	if h := q.w.Header(); len(h.Values("Warning")) < maxWarnings {
		h.Add("Warning", "299 corbel "+strconv.QuoteToASCII(text))
	}
}

// known warns of keys of a body that the object's type does not have: the contract takes them and drops them, so a
// mistake in writing would go unnoticed.
func (q *request) known(body []byte, o monitor.Object) error {
	keys := review.Unknown(body, o)
	if len(keys) > 0 && q.strict() {
		var all []error
		for _, k := range keys[:min(len(keys), maxWarnings)] {
			all = append(all, errors.New(k.String()))
		}
		return errors.Join(all...)
	}
	for _, k := range keys {
		q.warn(k.String())
	}
	return nil
}

// review refuses an object with a program that cannot be read, and warns of names of what is not there.
func (q *request) review(o monitor.Object) error {
	if q.cfg.Compiles != nil {
		for _, p := range review.Programs(o) {
			err := q.cfg.Compiles(q.r.Context(), p.Source, p.Body)
			switch {
			case errkind.Is(err, errkind.Invalid), errkind.Is(err, errkind.TooLarge):
				return invalid(fmt.Errorf("%s: %w", p.Field, err))
			case err != nil: // nobody could read it now: who wrote it is not to blame
				q.warn(fmt.Sprintf("%s was not read: %v", p.Field, err))
			}
		}
	}
	if q.cfg.Documents != nil {
		warnings, err := q.cfg.Documents.Review(q.r.Context(), q.kind.Name, o)
		if err != nil {
			return err
		}
		for _, text := range warnings {
			q.warn(text)
		}
	}
	for _, text := range review.Missing(o, existing{q.cfg.Resources.View().State}) {
		q.warn(text)
	}
	return nil
}

// existing are the names of the objects that there are.
type existing struct{ objects.State }

// Has implements review.Names.
func (n existing) Has(typ, namespace, name string) bool { return n.Get(typ, namespace, name) != nil }

// HasPrefix implements review.Names.
func (n existing) HasPrefix(typ, namespace, prefix string) (found bool) {
	if n.Has(typ, namespace, prefix) {
		return true
	}
	n.List(typ, namespace, namespace, prefix, func(i *objects.Item) bool { // the first one behind it in order
		found = strings.HasPrefix(i.Name, prefix)
		return false
	})
	return found
}
