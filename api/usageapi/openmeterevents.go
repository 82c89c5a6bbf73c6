package usageapi

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/router"
)

const (
	// maxListed bounds the events of an answer.
	maxListed = 100
	// listedSince is how far back a question looks that names no beginning.
	listedSince = 72 * time.Hour
)

// cloudEvent is an event as it came, as far as the log has it: of its data what meters count.
type cloudEvent struct {
	SpecVersion string         `json:"specversion"`
	ID          string         `json:"id"`
	Source      string         `json:"source"`
	Type        string         `json:"type"`
	Subject     string         `json:"subject"`
	Time        time.Time      `json:"time"`
	Data        map[string]any `json:"data,omitempty"`
}

// listed is an event that came, and what is wrong with it.
type listed struct {
	Event           cloudEvent `json:"event"`
	IngestedAt      time.Time  `json:"ingestedAt"`
	StoredAt        *time.Time `json:"storedAt,omitempty"` // nil was rejected
	ValidationError string     `json:"validationError,omitempty"`
}

// listEvents tells the newest events, those that were rejected too. Whoever may not read all tenants sees those that it
// may read.
func (a openMeter) listEvents(w http.ResponseWriter, r *http.Request) (int, any, error) {
	q, err := a.eventsAsked(r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	if !a.cfg.Allow(r, "", false) {
		if q.Tenants = a.readable(r, q.Tenant); len(q.Tenants) == 0 {
			return 0, nil, Denied(cmp.Or(q.Tenant, usage.DefaultTenant), false)
		}
	}
	products := a.cfg.Definitions.View().Products
	for _, p := range products.All() {
		if p.Meter != nil && p.Name != p.Meter.EventType {
			q.Marked = append(q.Marked, p.Name)
		}
	}
	stored, silent := a.cfg.Aggregator.Recent(r.Context(), q)
	rejected, more := a.cfg.Rejected(r.Context(), q)
	missing(w, unanswered(append(silent, more...)))
	return http.StatusOK, listedOf(products, stored, rejected, q.Most), nil
}

// readable are the tenants that a token may read, of those that have used anything, have a calendar, or are asked for.
func (a openMeter) readable(r *http.Request, asked string) (list []string) {
	tenants := map[string]bool{cmp.Or(asked, usage.DefaultTenant): true}
	series, _ := a.cfg.Aggregator.Series(r.Context())
	for _, s := range series {
		tenants[s.Tenant] = true
	}
	for name := range a.cfg.Definitions.View().Tenants {
		tenants[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		if a.cfg.Allow(r, name, false) {
			list = append(list, name)
		}
	}
	return list
}

// eventsAsked reads the question.
func (a openMeter) eventsAsked(v url.Values) (q counter.RecentQuery, err error) {
	q = counter.RecentQuery{Tenant: v.Get("subject"), ID: v.Get("id"), Most: maxListed}
	if text := v.Get("limit"); text != "" {
		if q.Most, err = strconv.Atoi(text); err != nil || q.Most < 1 || q.Most > maxListed {
			return q, errkind.Errorf(errkind.Invalid, "limit: %.40q is not from 1 to %d", text, maxListed)
		}
	}
	for name, to := range map[string]*time.Time{"from": &q.From, "to": &q.To, "ingestedAtFrom": &q.Stored,
		"ingestedAtTo": &q.Until} {
		if text := v.Get(name); text != "" {
			if *to, err = parseTime(name, text, time.UTC); err != nil {
				return q, err
			}
		}
	}
	if q.Stored.IsZero() {
		q.Stored = a.cfg.Now().Add(-listedSince)
		if !q.From.IsZero() && q.From.Before(q.Stored) {
			q.Stored = q.From.Add(-usage.MaxAhead) // what came earlier is of an earlier time, too
		}
	}
	return q, nil
}

// listedOf puts together what was stored and what was rejected: an event may have been rejected by one meter and be
// stored for another.
func listedOf(products usage.Products, stored []counter.Recent, rejected []router.Refused, most int) []listed {
	type key struct{ tenant, source, id string }
	out, places := []listed{}, map[key]int{}
	for i := range stored {
		e := &stored[i]
		at := e.Stored.UTC()
		one := listed{IngestedAt: at, StoredAt: &at, Event: cloudEvent{SpecVersion: "1.0", ID: e.ID,
			Source: e.Source, Subject: e.Tenant, Time: e.Time.UTC(), Data: map[string]any{}}}
		for j := range e.As {
			as := &e.As[j]
			one.Event.Type = typeOf(products, as.Product)
			restore(products, one.Event.Data, as)
			if as.Late {
				one.ValidationError = "it came too late to be counted"
			}
		}
		places[key{e.Tenant, e.Source, e.ID}] = len(out)
		out = append(out, one)
	}
	for i := range rejected {
		e := &rejected[i]
		at, is := places[key{e.Tenant, e.Source, e.ID}]
		if !is {
			at = len(out)
			places[key{e.Tenant, e.Source, e.ID}] = at
			out = append(out, listed{IngestedAt: e.At.UTC(), Event: cloudEvent{SpecVersion: "1.0", ID: e.ID, Source: e.Source,
				Subject: e.Tenant, Time: e.EventTime().UTC(), Type: typeOf(products, e.Product)}})
		}
		if !strings.Contains(out[at].ValidationError, e.Error) {
			out[at].ValidationError = strings.TrimPrefix(out[at].ValidationError+"; "+e.Error, "; ")
		}
	}
	slices.SortStableFunc(out, func(a, b listed) int { return b.IngestedAt.Compare(a.IngestedAt) })
	return out[:min(len(out), most)]
}

// typeOf is the type of the events that a product counts.
func typeOf(products usage.Products, name string) string {
	if p, ok := products.Get(name); ok && p.Meter != nil {
		return p.Meter.EventType
	}
	return name
}

// restore puts into data what a product has of an event. Amounts are numbers, all else are texts.
func restore(products usage.Products, data map[string]any, as *counter.RecentAs) {
	p, ok := products.Get(as.Product)
	if !ok || p.Meter == nil {
		for _, f := range slices.Concat(as.Identity, as.Tags) {
			data[f.Name] = f.Value
		}
		if as.Value != nil {
			data["value"] = json.Number(as.Value.String())
		}
		return
	}
	for _, f := range as.Tags {
		if path, ok := fieldPath(p.Meter.GroupBy[f.Name]); ok {
			setPath(data, path, f.Value)
		}
	}
	path, ok := fieldPath(p.Meter.ValueProperty)
	switch {
	case !ok:
	case as.Value != nil:
		setPath(data, path, json.Number(as.Value.String()))
	case len(as.Identity) > 0:
		setPath(data, path, as.Identity[0].Value)
	}
}

// setPath sets what stands at a path, with the objects on the way. A path that leads through a value is left out.
func setPath(data map[string]any, path string, value any) {
	for {
		name, rest, deeper := strings.Cut(path, ".")
		if !deeper {
			data[name] = value
			return
		}
		inner, is := data[name].(map[string]any)
		if !is {
			if _, taken := data[name]; taken {
				return
			}
			inner = map[string]any{}
			data[name] = inner
		}
		data, path = inner, rest
	}
}
