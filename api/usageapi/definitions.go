package usageapi

import (
	"cmp"
	"net/http"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/limits"
)

// product is a definition as JSON has it.
type product struct {
	Name       string   `json:"name"`
	Kind       string   `json:"kind"`
	Identity   []string `json:"identity,omitempty"`
	Value      string   `json:"value,omitempty"`
	Tags       []string `json:"tags,omitempty"`
	TopK       int      `json:"topk,omitempty"`
	ExactBelow int      `json:"exact_below,omitempty"`
	Precision  int      `json:"precision,omitempty"`
	Windows    []string `json:"windows,omitempty"`
	Late       string   `json:"late,omitempty"`
	Unit       string   `json:"unit,omitempty"`
	Generation uint32   `json:"generation,omitempty"`
	Former     []former `json:"former,omitempty"`
}

// former is a generation that is still told.
type former struct {
	Generation uint32   `json:"generation"`
	Kind       string   `json:"kind"`
	Identity   []string `json:"identity,omitempty"`
}

func (a *API) shown(p *usage.Product) product {
	out := product{Name: p.Name, Kind: p.Kind.String(), Identity: p.Identity, Value: p.Value, Tags: p.Tags, TopK: p.TopK,
		ExactBelow: p.ExactBelow, Precision: p.Precision, Windows: p.Windows, Late: shortDuration(p.Late), Unit: p.Unit,
		Generation: p.Generation}
	for _, f := range a.cfg.Definitions.View().Products.Former(p.Name, a.cfg.Now()) {
		out.Former = append(out.Former, former{f.Generation, f.Kind.String(), f.Identity})
	}
	return out
}

// shortDuration writes 24h rather than 24h0m0s.
func shortDuration(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return d.String()[:len(d.String())-len("0m0s")]
	case d%time.Minute == 0:
		return d.String()[:len(d.String())-len("0s")]
	}
	return d.String()
}

// mayRead lets those read definitions who may read the tenant that they name, or any that they may read all of.
func (a *API) mayRead(r *http.Request) error {
	if a.cfg.Allow(r, "", false) {
		return nil
	}
	return a.may(r, cmp.Or(r.URL.Query().Get("tenant"), usage.DefaultTenant), false)
}

func (a *API) products(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := a.mayRead(r); err != nil {
		return 0, nil, err
	}
	out := []product{}
	for _, p := range a.cfg.Definitions.View().Products.All() {
		out = append(out, a.shown(p))
	}
	return http.StatusOK, out, nil
}

func (a *API) product(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := a.mayRead(r); err != nil {
		return 0, nil, err
	}
	name := r.PathValue("name")
	p, ok := a.cfg.Definitions.View().Products.Get(name)
	if !ok {
		return 0, nil, errkind.Errorf(errkind.NotFound, "product: %.100q is not defined", name)
	}
	return http.StatusOK, a.shown(p), nil
}

func (a *API) putProduct(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := a.may(r, "", true); err != nil {
		return 0, nil, err
	}
	var in product
	if err := read(r, &in); err != nil {
		return 0, nil, err
	}
	name := r.PathValue("name")
	if in.Name != "" && in.Name != name {
		return 0, nil, errkind.Errorf(errkind.Invalid, "name: is %.100q, and %.100q in the path", in.Name, name)
	}
	kind, ok := usage.ParseKind(in.Kind)
	if !ok {
		return 0, nil, errkind.Errorf(errkind.Invalid, "kind: %.40q is none of unique, sum, max, min, last", in.Kind)
	}
	p := usage.Product{Name: name, Kind: kind, Identity: in.Identity, Value: in.Value, Tags: in.Tags, TopK: in.TopK,
		ExactBelow: in.ExactBelow, Precision: in.Precision, Windows: in.Windows, Unit: in.Unit}
	if in.Late != "" {
		d, err := time.ParseDuration(in.Late)
		if err != nil {
			return 0, nil, errkind.Errorf(errkind.Invalid, "late: %.40q is no duration: use one like 24h", in.Late)
		}
		p.Late = d
	}
	if err := p.Complete(); err != nil {
		return 0, nil, errkind.E(errkind.Invalid, "", err)
	}
	if old, ok := a.cfg.Definitions.View().Products.Get(name); ok && old.Kind == p.Kind {
		p.Meter = old.Meter
	}
	if err := a.do(r, definitions.Command{Put: &p}); err != nil {
		return 0, nil, err
	}
	now, ok := a.cfg.Definitions.View().Products.Get(name)
	if !ok {
		return 0, nil, errkind.Errorf(errkind.Conflict, "product: %.100q was deleted meanwhile", name)
	}
	return http.StatusOK, a.shown(now), nil
}

func (a *API) do(r *http.Request, c definitions.Command) error {
	c.At = a.cfg.Now()
	_, err := a.cfg.Definitions.Do(r.Context(), c)
	return err
}

func (a *API) deleteProduct(w http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := a.may(r, "", true); err != nil {
		return 0, nil, err
	}
	_, keep := r.URL.Query()["keep-data"]
	gone := &definitions.Delete{Name: r.PathValue("name"), KeepData: keep}
	if err := a.do(r, definitions.Command{Delete: gone}); err != nil {
		return 0, nil, err
	}
	w.WriteHeader(http.StatusNoContent)
	return 0, nil, nil
}

func (a *API) putTenant(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	name := r.PathValue("name")
	if err := a.may(r, name, true); err != nil {
		return 0, nil, err
	}
	var in definitions.Tenant
	if err := read(r, &in); err != nil {
		return 0, nil, err
	}
	if _, err := location(in.Zone); err != nil || name == "" || len(name) > usage.MaxNameBytes {
		return 0, nil, cmp.Or(err, errkind.New(errkind.Invalid, "name: is no tenant's"))
	}
	return http.StatusOK, in, a.do(r, definitions.Command{Tenant: &definitions.TenantPut{Name: name, Tenant: in}})
}

// limit is a limit as JSON has it.
type limit struct {
	Name     string          `json:"name,omitempty"`
	Tenant   string          `json:"tenant"`
	Product  string          `json:"product"`
	Window   string          `json:"window"`
	At       []float64       `json:"at"`
	Value    *usage.Quantity `json:"value"`
	Crossed  []float64       `json:"crossed,omitempty"`
	Now      *usage.Quantity `json:"now,omitempty"`
	Forecast *time.Time      `json:"forecast,omitempty"`
}

func (a *API) shownLimit(r *http.Request, l definitions.Limit) limit {
	out := limit{Name: l.Name, Tenant: l.Tenant, Product: l.Product, Window: l.Window, At: l.At, Value: &l.Value}
	for i, at := range l.At {
		if l.State.Crossed&(1<<i) != 0 {
			out.Crossed = append(out.Crossed, at)
		}
	}
	if e, err := a.cfg.Aggregator.Estimate(r.Context(), questionOf(&l.Limit)); err == nil {
		out.Now = e.Value
	}
	if at, ok := a.cfg.Aggregator.Forecast(&l.Limit); ok {
		at = at.UTC().Truncate(time.Second)
		out.Forecast = &at
	}
	return out
}

func (a *API) limits(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	out := []limit{}
	view := a.cfg.Definitions.View()
	for _, name := range sorted(view.Limits) {
		if l := view.Limits[name]; a.cfg.Allow(r, l.Tenant, false) {
			out = append(out, a.shownLimit(r, l))
		}
	}
	return http.StatusOK, out, nil
}

func (a *API) findLimit(r *http.Request, write bool) (definitions.Limit, error) {
	name := r.PathValue("name")
	l, ok := a.cfg.Definitions.View().Limits[name]
	if !ok {
		return l, errkind.Errorf(errkind.NotFound, "limit: %.100q is not defined", name)
	}
	return l, a.may(r, l.Tenant, write)
}

func (a *API) limit(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	l, err := a.findLimit(r, false)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, a.shownLimit(r, l), nil
}

func (a *API) putLimit(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	var in limit
	if err := read(r, &in); err != nil {
		return 0, nil, err
	}
	l := limits.Limit{Name: r.PathValue("name"), Tenant: cmp.Or(in.Tenant, usage.DefaultTenant), Product: in.Product,
		Window: in.Window, At: in.At}
	if in.Value != nil {
		l.Value = *in.Value
	}
	if err := a.may(r, l.Tenant, true); err != nil {
		return 0, nil, err
	}
	if old, ok := a.cfg.Definitions.View().Limits[l.Name]; ok {
		if err := a.may(r, old.Tenant, true); err != nil { // it would take another tenant's limit away
			return 0, nil, err
		}
	}
	if err := l.Complete(); err != nil {
		return 0, nil, errkind.E(errkind.Invalid, "", err)
	}
	if _, ok := a.cfg.Definitions.View().Products.Get(l.Product); !ok {
		return 0, nil, errkind.Errorf(errkind.Invalid, "product: %.100q is not defined", l.Product)
	}
	if err := a.do(r, definitions.Command{Limit: &l}); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, a.shownLimit(r, definitions.Limit{Limit: l}), nil
}

func (a *API) deleteLimit(w http.ResponseWriter, r *http.Request) (int, any, error) {
	l, err := a.findLimit(r, true)
	if err != nil {
		return 0, nil, err
	}
	if err := a.do(r, definitions.Command{Unlimit: l.Name}); err != nil {
		return 0, nil, err
	}
	w.WriteHeader(http.StatusNoContent)
	return 0, nil, nil
}

// crossing is a line of a limit's history.
type crossing struct {
	At        time.Time      `json:"at"`
	Tenant    string         `json:"tenant"`
	Product   string         `json:"product"`
	Threshold float64        `json:"threshold"`
	Value     usage.Quantity `json:"value"`
	Of        usage.Quantity `json:"limit"`
	From      time.Time      `json:"from"`
	To        time.Time      `json:"to"`
}

func (a *API) history(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	l, err := a.findLimit(r, false)
	if err != nil {
		return 0, nil, err
	}
	out := []crossing{}
	for _, c := range a.cfg.Definitions.View().History {
		if c.Limit == l.Name && c.Tenant == l.Tenant {
			out = append(out, crossing{c.At.UTC(), c.Tenant, c.Product, c.Threshold, c.Value, c.Of, c.Window.From.UTC(),
				c.Window.To.UTC()})
		}
	}
	return http.StatusOK, out, nil
}
