package sensurest

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/sensuapi/envelope"
	"corbel.dev/corbel/api/sensuapi/selectors"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/selector"
)

// entry is one object of a list.
type entry struct {
	at    string // its place, which a later page may begin behind
	value any
}

// choice is what a list is asked for.
type choice struct {
	limit          int // 0 is all
	after          []string
	labels, fields selector.Selector
}

// maxLimit bounds a page: it is gathered before it is written, since its header tells where the next one begins.
const maxLimit = 10_000

// lists answers with many objects, page by page.
type lists struct{ *request }

// chosen reads the query of a list.
func (q lists) chosen() (c choice, err error) {
	query := httpx.Query(q.r.URL.RawQuery)
	if text := query.Value("limit"); text != "" {
		if c.limit, err = strconv.Atoi(text); err != nil || c.limit < 0 {
			return c, invalid(fmt.Errorf("limit %q is not a number of objects", text))
		}
		c.limit = min(c.limit, maxLimit)
	}
	if text := query.Value("continue"); text != "" {
		raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
		if err != nil {
			return c, invalid(errors.New("continue is not a token of this API"))
		}
		c.after = strings.Split(string(raw), "\x00")
	}
	if c.labels, err = selector.Parse(query.Value("labelSelector")); err != nil {
		return c, invalid(fmt.Errorf("labelSelector: %w", err))
	}
	if c.fields, err = selector.Parse(query.Value("fieldSelector")); err != nil {
		return c, invalid(fmt.Errorf("fieldSelector: %w", err))
	}
	for _, name := range c.fields.Names() {
		if q.kind.fields[name] == nil {
			return c, invalid(fmt.Errorf("fieldSelector: %q is no field of %s: there are %s", name, q.kind.path,
				strings.Join(slices.Sorted(maps.Keys(q.kind.fields)), ", ")))
		}
	}
	return c, nil
}

// last lets a whole list take its time: each question to a server and each write to the reader has a deadline of its
// own.
func (q lists) last(c *choice) {
	if c.limit == 0 {
		q.r = q.r.WithContext(q.lasting)
	}
}

// begin returns the parts of the place that the list begins behind.
func (c *choice) begin() (first, second, third string) {
	parts := append(slices.Clone(c.after), "", "", "")
	return parts[0], parts[1], parts[2]
}

// takes reports whether an object matches the selectors.
func (q lists) takes(c *choice, o monitor.Object) bool {
	if !c.labels.Empty() && !c.labels.Matches(selectors.Labels(o)) {
		return false
	}
	return c.fields.Matches(func(name string) (string, bool) { return q.kind.fields[name](o), true })
}

// all answers with the objects of the request's kind.
func (q lists) all() error { return q.where(func(*objects.Item) bool { return true }) }

func (q lists) where(where func(*objects.Item) bool) error {
	c, err := q.chosen()
	if err != nil {
		return err
	}
	q.last(&c)
	namespace, name, _ := c.begin()
	return q.write(c, func(yield func(entry, error) bool) {
		if q.kind.showAll != nil {
			q.walkTogether(&c, where, yield)
			return
		}
		q.cfg.Resources.View().List(q.kind.Name, q.namespace, namespace, name, func(i *objects.Item) bool {
			if !where(i) || !q.takes(&c, i.Object()) {
				return true
			}
			v, err := q.view(i.Object())
			return yield(entry{placeOf(i), v}, err)
		})
	})
}

func placeOf(i *objects.Item) string { return i.Namespace + "\x00" + i.Name }

// together is how many objects are shown with one question to each server.
const together = 512

// walkTogether goes through objects of which other servers know a part, many at a time.
func (q lists) walkTogether(c *choice, where func(*objects.Item) bool, yield func(entry, error) bool) {
	most := together
	if c.limit > 0 {
		most = min(most, c.limit+1)
	}
	items := make([]*objects.Item, 0, most)
	give := func() (more bool) {
		values, err := q.kind.showAll(q.request, items)
		if err != nil {
			yield(entry{}, err)
			return false
		}
		for i, v := range values {
			if v == nil {
				continue
			}
			if q.kind.wrapped() {
				v, err = envelope.Wrap(&q.kind.Type, v)
			}
			if !yield(entry{placeOf(items[i]), v}, err) {
				return false
			}
		}
		items = items[:0]
		return true
	}
	more := true
	namespace, name, _ := c.begin()
	q.cfg.Resources.View().List(q.kind.Name, q.namespace, namespace, name, func(i *objects.Item) bool {
		if where(i) && q.takes(c, i.Object()) {
			if items = append(items, i); len(items) == most {
				more = give()
			}
		}
		return more
	})
	if more && len(items) > 0 {
		give()
	}
}

// lineTime bounds how long a reader of a list may take for a part of it.
const lineTime = 30 * time.Second

// write writes a list: a page with the token of the next one, or all of it as it is walked.
func (q lists) write(c choice, all iter.Seq2[entry, error]) error {
	if c.limit > 0 {
		return q.page(c, all)
	}
	q.w.Header()["Content-Type"] = httpx.JSONType
	out := bufio.NewWriterSize(q.w, 32<<10)
	control := http.NewResponseController(q.w)
	_ = out.WriteByte('[')
	first := true
	for e, err := range all {
		var b []byte
		if err == nil {
			b, err = json.Marshal(e.value)
		}
		// the rest is on a server that does not answer: no list is short without saying so
		if errkind.Is(err, errkind.Unavailable) {
			if first {
				q.w.Header().Del("Content-Type")
				return err
			}
			_ = out.Flush()
			return nil // it is no JSON without its end
		}
		if err != nil {
			q.cfg.Log.Error("an object is left out of a list", "path", q.r.URL.Path, "error", err)
			continue
		}
		if !first {
			_ = out.WriteByte(',')
		}
		first = false
		if len(b) >= out.Available() {
			_ = control.SetWriteDeadline(time.Now().Add(lineTime)) // a connection that has none is one of a test
		}
		if _, err := out.Write(b); err != nil {
			return nil // the reader left
		}
	}
	_ = control.SetWriteDeadline(time.Now().Add(lineTime))
	_, _ = out.WriteString("]\n")
	_ = out.Flush()
	_ = control.SetWriteDeadline(time.Time{})
	return nil
}

func (q lists) page(c choice, all iter.Seq2[entry, error]) error {
	values := make([]any, 0, min(c.limit, 256))
	last, more := "", false
	for e, err := range all {
		if errkind.Is(err, errkind.Unavailable) {
			return err
		}
		if err != nil {
			q.cfg.Log.Error("an object is left out of a list", "path", q.r.URL.Path, "error", err)
			continue
		}
		if len(values) == c.limit {
			more = true
			break
		}
		values, last = append(values, e.value), e.at
	}
	if more {
		q.w.Header().Set("Sensu-Continue", base64.RawURLEncoding.EncodeToString([]byte(last)))
	}
	return q.answer(http.StatusOK, values)
}
