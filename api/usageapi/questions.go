package usageapi

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/estimate"
	"corbel.dev/corbel/usage/limits"
	"corbel.dev/corbel/usage/window"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func location(name string) (*time.Location, error) {
	l, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, errkind.Errorf(errkind.Invalid, "tz: %.60q is no time zone: use a name like Europe/Berlin", name)
	}
	return l, nil
}

func questionOf(l *limits.Limit) aggregator.Question {
	return aggregator.Question{Tenant: l.Tenant, Product: l.Product, Window: l.Window}
}

// question reads what is asked.
func (a *API) question(v url.Values) (q aggregator.Question, err error) {
	q = aggregator.Question{Tenant: cmp.Or(v.Get("tenant"), usage.DefaultTenant), Product: v.Get("product"),
		Window: v.Get("window"), By: v.Get("by"), Step: v.Get("step")}
	zone := a.cfg.Zone(q.Tenant)
	if tz := v.Get("tz"); tz != "" {
		l, err := location(tz)
		if err != nil {
			return q, err
		}
		zone = window.In(l)
	}
	q.Zone = &zone
	if q.Product == "" {
		return q, errkind.New(errkind.Invalid, "product: is missing")
	}
	if !v.Has("from") && !v.Has("to") {
		q.Window = cmp.Or(q.Window, window.Sliding1h)
		return q, nil
	}
	if q.Window != "" {
		return q, errkind.New(errkind.Invalid, "window: stands beside from and to: give one of them")
	}
	if q.From, err = parseTime("from", v.Get("from"), zone.Location()); err != nil {
		return q, err
	}
	if !v.Has("to") {
		q.To = a.cfg.Now().Truncate(time.Minute).Add(time.Minute)
		return q, nil
	}
	q.To, err = parseTime("to", v.Get("to"), zone.Location())
	return q, err
}

// parseTime reads RFC 3339, a local time, or Unix nanoseconds.
func parseTime(field, text string, zone *time.Location) (time.Time, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Unix(0, n), nil
	}
	text = strings.Replace(text, " ", "+", 1) // a plus that was not escaped
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05.999999999", "2006-01-02T15:04", "2006-01-02+15:04:05",
		"2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errkind.Errorf(errkind.Invalid, "%s: %.40q is no time: use RFC 3339 or Unix nanoseconds", field,
		text)
}

// answer is an estimate with what it is about.
type answer struct {
	Tenant  string    `json:"tenant"`
	Product string    `json:"product"`
	Window  string    `json:"window,omitempty"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	estimate.Estimate
	// Revisions are what corrections made of a closed period.
	Closed    *usage.Quantity     `json:"closed,omitempty"`
	Revisions []estimate.Revision `json:"revisions,omitempty"`
}

func (a *API) estimates(w http.ResponseWriter, r *http.Request) (int, any, error) {
	v := r.URL.Query()
	q, err := a.question(v)
	if err != nil {
		return 0, nil, err
	}
	if err := a.may(r, q.Tenant, false); err != nil {
		return 0, nil, err
	}
	if err := a.wait(r, v); err != nil {
		return 0, nil, err
	}
	index := a.cfg.Aggregator.Version(r.Context())
	span, err := a.cfg.Aggregator.Range(&q)
	if err != nil {
		return 0, nil, err
	}
	e, err := a.cfg.Aggregator.Estimate(r.Context(), q)
	if err != nil {
		return 0, nil, err
	}
	out := answer{Tenant: q.Tenant, Product: q.Product, Window: q.Window, From: span.From.UTC(), To: span.To.UTC(),
		Estimate: e}
	for _, p := range a.cfg.Definitions.View().Periods {
		if p.Series.Tenant == q.Tenant && p.Series.Product == q.Product && p.From.Equal(span.From) && p.To.Equal(span.To) {
			out.Closed, out.Revisions = &p.Closed, p.Revisions
		}
	}
	w.Header().Set("X-Consul-Index", strconv.FormatUint(index, 10))
	return http.StatusOK, out, nil
}

// Bounds of a wait: what changes without pause is told four times a second.
const (
	defaultWait = 5 * time.Minute
	maxWait     = 10 * time.Minute
	minWait     = 250 * time.Millisecond
	// lookElsewhere is how often it is looked whether another server has counted something.
	lookElsewhere = time.Second
)

// wait holds a request that has seen an index until there is a newer one.
func (a *API) wait(r *http.Request, v url.Values) error {
	text := v.Get("index")
	if text == "" {
		return nil
	}
	index, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return errkind.Errorf(errkind.Invalid, "index: %.40q is no number", text)
	}
	wait := defaultWait
	if text := v.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 {
			return errkind.Errorf(errkind.Invalid, "wait: %.40q is no duration", text)
		}
	}
	if index == 0 {
		return nil
	}
	end := time.NewTimer(min(wait, maxWait))
	defer end.Stop()
	pause := time.NewTimer(min(wait, minWait))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-r.Context().Done():
		return r.Context().Err()
	}
	look := time.NewTicker(lookElsewhere)
	defer look.Stop()
	for {
		changed := a.cfg.Counts.Changed()
		if a.cfg.Aggregator.Version(r.Context()) != index {
			return nil
		}
		select {
		case <-changed:
		case <-look.C:
		case <-end.C:
			return nil
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}

// tenant is a row of the list.
type tenant struct {
	Name     string   `json:"name"`
	Zone     string   `json:"tz"`
	Products []string `json:"products"`
}

// maxMissing bounds the header of missing.
const maxMissing = 2000

// missing names in a header what a list may lack.
func missing(w http.ResponseWriter, list []string) {
	if text := strings.Join(list, ", "); text != "" {
		w.Header().Add("Usage-Missing", strconv.QuoteToASCII(text[:min(len(text), maxMissing)]))
	}
}

// unanswered are parts that did not answer, as missing has them.
func unanswered(silent []string) (list []string) {
	if len(silent) > 0 {
		list = append(list, "no answer from "+strings.Join(silent, ", "))
	}
	return list
}

func (a *API) tenants(w http.ResponseWriter, r *http.Request) (int, any, error) {
	series, silent := a.cfg.Aggregator.Series(r.Context())
	missing(w, unanswered(silent))
	products := map[string][]string{}
	for name := range a.cfg.Definitions.View().Tenants {
		products[name] = []string{}
	}
	for _, s := range series {
		if list := products[s.Tenant]; !slices.Contains(list, s.Product) {
			products[s.Tenant] = append(list, s.Product)
		}
	}
	out := []tenant{}
	for _, name := range sorted(products) {
		if a.cfg.Allow(r, name, false) {
			out = append(out, tenant{name, a.cfg.Zone(name).Location().String(), products[name]})
		}
	}
	return http.StatusOK, out, nil
}

func (a *API) top(w http.ResponseWriter, r *http.Request) (int, any, error) {
	v := r.URL.Query()
	limit := 10
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > usage.MaxTopK {
			return 0, nil, errkind.Errorf(errkind.Invalid, "limit: must be from 1 to %d", usage.MaxTopK)
		}
		limit = n
	}
	if v.Get("product") == "" {
		return a.topProducts(w, r, limit)
	}
	q, err := a.question(v)
	if err != nil {
		return 0, nil, err
	}
	if _, ok := a.cfg.Definitions.View().Products.Get(q.Product); !ok {
		return 0, nil, errkind.Errorf(errkind.NotFound, "product: %.100q is not defined", q.Product)
	}
	if q.By != "" && q.By != "tenant" {
		if err := a.may(r, q.Tenant, false); err != nil {
			return 0, nil, err
		}
	}
	list, lacks, err := a.cfg.Aggregator.Top(r.Context(), q, limit, a.readableBy(r))
	missing(w, lacks)
	return http.StatusOK, list, err
}

// readableBy says which tenants the token of a request may read.
func (a *API) readableBy(r *http.Request) func(tenant string) bool {
	return func(tenant string) bool { return a.cfg.Allow(r, tenant, false) }
}

// productTop is what one product comes to.
type productTop struct {
	Product string           `json:"product"`
	Unit    string           `json:"unit,omitempty"`
	Top     []aggregator.Top `json:"top"`
}

// topProducts lists the top tenants of all products.
func (a *API) topProducts(w http.ResponseWriter, r *http.Request, limit int) (int, any, error) {
	v := r.URL.Query()
	out := []productTop{}
	var lacks []string
	for _, p := range a.cfg.Definitions.View().Products.All() {
		v.Set("product", p.Name)
		q, err := a.question(v)
		if err != nil {
			return 0, nil, err
		}
		list, some, err := a.cfg.Aggregator.Top(r.Context(), q, limit, a.readableBy(r))
		if err != nil {
			return 0, nil, err
		}
		if len(list) > 0 {
			out = append(out, productTop{p.Name, p.Unit, list})
		}
		if len(lacks) == 0 {
			lacks = some
		}
	}
	missing(w, lacks)
	return http.StatusOK, out, nil
}

func (a *API) explain(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	v := r.URL.Query()
	t, source, id := cmp.Or(v.Get("tenant"), usage.DefaultTenant), v.Get("source"), v.Get("id")
	if id == "" {
		return 0, nil, errkind.New(errkind.Invalid, "id: is missing")
	}
	if err := a.may(r, t, false); err != nil {
		return 0, nil, err
	}
	out, err := a.cfg.Explain(r.Context(), t, source, id)
	if err != nil { // it is not there, or where it may be nobody answers
		if why, ok := a.cfg.Refused(r.Context(), t, source, id); ok {
			return http.StatusOK, map[string]any{"received": why.At.UTC(), "counted": false,
				"why": "it was rejected: " + why.Error}, nil
		}
	}
	return http.StatusOK, out, err
}
