package rows

import (
	"sync"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/kit/errkind"
)

var (
	ErrNoNode    = answer.Invalidf("Missing node name")
	ErrNoService = answer.Invalidf("Missing service name")
)

// filterCacheEntries bounds the compiled filters kept; when it is full, all are dropped.
const filterCacheEntries = 512

// filterCache keeps compiled filters by schema and text.
type filterCache struct {
	mu   sync.Mutex
	kept map[filterKey]*filter.Filter
}

type filterKey struct {
	schema *filter.Schema
	text   string
}

func (c *filterCache) get(s *filter.Schema, text string) (*filter.Filter, error) {
	key := filterKey{s, text}
	c.mu.Lock()
	f := c.kept[key]
	c.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f, err := filter.Compile(s, text)
	if err != nil {
		return nil,
			errkind.New(errkind.Invalid, "Failed to create filter: Failed to create boolean expression evaluator: "+err.Error())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil || len(c.kept) >= filterCacheEntries {
		c.kept = make(map[filterKey]*filter.Filter)
	}
	c.kept[key] = f
	return f, nil
}

// Filter compiles the request's filter; nil lets all pass.
func (q *Request) Filter(s *filter.Schema) (*filter.Filter, error) {
	if q.Query == "" {
		return nil, nil
	}
	text, _ := q.Query.Get("filter")
	if text == "" {
		return nil, nil
	}
	return q.filters.get(s, text)
}
