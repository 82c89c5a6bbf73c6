package nomadrows

import (
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/kit/errkind"
)

// Listing is how a list is shown.
type Listing[T any] struct {
	Items iter.Seq[T] // all that the caller may see and asked for by prefix and namespace
	// Created is the index at which an item was made, by which the list is ordered; nil where names decide.
	Created func(item T) uint64
	Name    func(item T) string // its id, or what it is called
	Show    func(item T) any
}

// place is where an item stands; tokens of pages are made of it.
type place[T any] struct {
	created uint64
	id      string // "" until it is needed
	item    T
}

func (l *Listing[T]) token(p *place[T]) string {
	if p.created == 0 {
		return l.id(p)
	}
	return strconv.FormatUint(p.created, 10) + "." + l.id(p)
}

func (l *Listing[T]) id(p *place[T]) string {
	if p.id == "" {
		p.id = l.Name(p.item)
	}
	return p.id
}

// before compares names only among those that one commit made: most lists need none.
func (l *Listing[T]) before(a, b *place[T]) int {
	if c := cmp.Compare(a.created, b.created); c != 0 {
		return c
	}
	return strings.Compare(l.id(a), l.id(b))
}

// List shows what the request asks for: filter, reverse, per_page and next_token. The order is by age where the list
// has one, else by name.
func List[T any](q *Request, l Listing[T]) (any, error) {
	page, err := q.Int("per_page", 0)
	if err != nil || page < 0 {
		return nil, BadRequest("Failed to parse value of \"per_page\" as a number of objects")
	}
	reverse, err := q.Flag("reverse")
	if err != nil {
		return nil, err
	}
	filter, err := q.filter()
	if err != nil {
		return nil, err
	}
	order := func(a, b place[T]) int { return l.before(&a, &b) }
	if reverse {
		order = func(a, b place[T]) int { return l.before(&b, &a) }
	}
	first := parseToken[T](q.Query.Value("next_token"))
	most := int(min(page, 1<<20)) + 1
	var kept []place[T]
	for item := range l.Items {
		p := place[T]{item: item}
		if l.Created != nil {
			p.created = l.Created(item)
		} else {
			p.id = l.Name(item)
		}
		if first.id != "" && order(p, first) < 0 || filter != nil && !filter.keeps(l.Show(item)) {
			continue
		}
		kept = append(kept, p)
		if page > 0 && len(kept) >= 2*most { // only the first can come into the page
			slices.SortFunc(kept, order)
			kept = kept[:most]
		}
	}
	slices.SortFunc(kept, order)
	if page > 0 && len(kept) >= most {
		q.nextPage = l.token(&kept[most-1])
		kept = kept[:most-1]
	}
	shown := make([]any, len(kept))
	for i := range kept {
		shown[i] = l.Show(kept[i].item)
	}
	return shown, nil
}

// parseToken reads a token. What is none begins where it would stand as a name.
func parseToken[T any](text string) (p place[T]) {
	if number, id, ok := strings.Cut(text, "."); ok {
		if created, err := strconv.ParseUint(number, 10, 64); err == nil && created > 0 {
			return place[T]{created: created, id: id}
		}
	}
	return place[T]{id: text}
}

// filter compiles the request's filter, nil when there is none.
func (q *Request) filter() (*Filter, error) {
	text := q.Query.Value("filter")
	if text == "" {
		return nil, nil
	}
	f, err := CompileFilter(text)
	if err != nil {
		return nil, BadRequest("failed to read filter expression: %s", errkind.Text(err))
	}
	return f, nil
}

// keeps reports whether v, as it would be sent, passes.
func (f *Filter) keeps(v any) bool {
	text, err := json.Marshal(v)
	if err != nil {
		return false
	}
	var object any
	return json.Unmarshal(text, &object) == nil && f.Match(object)
}
