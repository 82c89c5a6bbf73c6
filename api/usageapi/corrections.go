package usageapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/cloudevents"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/estimate"
)

// correctionIn is what is asked for.
type correctionIn struct {
	Kind    string          `json:"kind"`
	Tenant  string          `json:"tenant"`
	Product string          `json:"product"`
	IDs     []string        `json:"ids"`
	From    json.RawMessage `json:"from"`
	To      json.RawMessage `json:"to"`
	Source  string          `json:"source"`
	Reason  string          `json:"reason"`
	Events  json.RawMessage `json:"events"`
}

func (a *API) correct(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	raw, err := httpx.ReadBody(r, nil, MaxJSONBytes)
	if err != nil {
		return 0, nil, err
	}
	var in correctionIn
	if err := json.Unmarshal(raw, &in); err != nil {
		return 0, nil, errkind.E(errkind.Invalid, "the body", err)
	}
	c := usage.Correction{Kind: in.Kind, Tenant: cmp.Or(in.Tenant, usage.DefaultTenant), Product: in.Product, IDs: in.IDs,
		Source: in.Source, Reason: in.Reason}
	if err := a.may(r, c.Tenant, true); err != nil {
		return 0, nil, err
	}
	for _, bound := range []struct {
		field string
		raw   json.RawMessage
		to    *time.Time
	}{{"from", in.From, &c.From}, {"to", in.To, &c.To}} {
		if text := string(bound.raw); text != "" && text != "null" {
			if unquoted, err := strconv.Unquote(text); err == nil {
				text = unquoted
			}
			if *bound.to, err = parseTime(bound.field, text, a.cfg.Zone(c.Tenant).Location()); err != nil {
				return 0, nil, err
			}
		}
	}
	if len(in.Events) > 0 && string(in.Events) != "null" {
		items, err := cloudevents.Decode("application/json", in.Events, a.intake.valueField)
		if err != nil {
			return 0, nil, errkind.E(errkind.Invalid, "events", err)
		}
		for i := range items {
			if items[i].Err != nil {
				return 0, nil, errkind.Errorf(errkind.Invalid, "events[%d].%v", i, items[i].Err)
			}
			c.Events = append(c.Events, items[i].Event)
		}
	}
	id, err := a.cfg.Aggregator.Correct(r.Context(), c)
	return http.StatusAccepted, map[string]string{"id": id}, err
}

// correctionOut is what became of a correction.
type correctionOut struct {
	ID      string                         `json:"id"`
	Kind    string                         `json:"kind"`
	Tenant  string                         `json:"tenant"`
	Product string                         `json:"product"`
	IDs     []string                       `json:"ids,omitempty"`
	Source  string                         `json:"source,omitempty"`
	From    *time.Time                     `json:"from,omitempty"`
	To      *time.Time                     `json:"to,omitempty"`
	Reason  string                         `json:"reason"`
	At      time.Time                      `json:"at"`
	Done    bool                           `json:"done"`
	Status  string                         `json:"status"`
	Error   string                         `json:"error,omitempty"`
	Servers map[string]definitions.Outcome `json:"servers"`
}

func shownCorrection(c *definitions.Correction) correctionOut {
	out := correctionOut{ID: c.ID, Kind: c.Kind, Tenant: c.Tenant, Product: c.Product, IDs: c.IDs, Source: c.Source,
		Reason: c.Reason, At: c.At.UTC(), Servers: c.Servers, Status: "pending"}
	if !c.From.IsZero() {
		from, to := c.From.UTC(), c.To.UTC()
		out.From, out.To = &from, &to
	}
	done, err := c.Finished()
	switch {
	case err != nil:
		out.Status, out.Error = "failed", err.Error()
	case done:
		out.Status = "done"
	}
	out.Done = done
	return out
}

func (a *API) corrections(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	out := struct {
		Corrections []correctionOut `json:"corrections"`
		Late        any             `json:"late"`
		Missing     []string        `json:"missing,omitempty"` // parts whose late events are not known
	}{Corrections: []correctionOut{}}
	view := a.cfg.Definitions.View()
	for i := range view.Corrections {
		if c := &view.Corrections[i]; a.cfg.Allow(r, c.Tenant, false) {
			out.Corrections = append(out.Corrections, shownCorrection(c))
		}
	}
	late, silent := a.cfg.Aggregator.Late(r.Context())
	kept := []counter.LateEvent{}
	for _, e := range late {
		if a.cfg.Allow(r, e.Tenant, false) {
			kept = append(kept, e)
		}
	}
	out.Late, out.Missing = kept, silent
	return http.StatusOK, out, nil
}

func (a *API) correction(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	c, err := a.cfg.Definitions.View().Correction(r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	if err := a.may(r, c.Tenant, false); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, shownCorrection(&c), nil
}

func (a *API) periods(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	v := r.URL.Query()
	t := cmp.Or(v.Get("tenant"), usage.DefaultTenant)
	if err := a.may(r, t, false); err != nil {
		return 0, nil, err
	}
	out := []estimate.Period{}
	for _, p := range a.cfg.Definitions.View().Periods {
		if p.Series.Tenant == t && (v.Get("product") == "" || v.Get("product") == p.Series.Product) {
			out = append(out, p)
		}
	}
	return http.StatusOK, out, nil
}

func (a *API) accuracy(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := a.may(r, "", false); err != nil {
		return 0, nil, err
	}
	v := r.URL.Query()
	one := 1
	if text := v.Get("sample"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return 0, nil, errkind.Errorf(errkind.Invalid, "sample: %.40q is no number above 0", text)
		}
		one = n
	}
	out, err := a.cfg.Aggregator.Accuracy(r.Context(), one, v.Get("product"))
	return http.StatusOK, out, err
}
