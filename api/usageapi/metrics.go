package usageapi

import (
	"bytes"
	"fmt"
	"net/http"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/estimate"
)

// maxMetricTenants bounds the tenants that metrics name; the rest is one.
const maxMetricTenants = 20

// others names what stands for all that has no row of its own.
const others = "other"

var prometheusType = []string{"text/plain; version=0.0.4; charset=utf-8"}

// exposition is what Prometheus reads: three families, each in one piece.
type exposition struct{ value, wrong, whole bytes.Buffer }

func (x *exposition) begin() {
	x.value.WriteString("# TYPE usage_estimate gauge\n")
	x.wrong.WriteString("# TYPE usage_estimate_error gauge\n")
	x.whole.WriteString("# TYPE usage_completeness gauge\n")
}

func (x *exposition) add(tenant, product, window string, value usage.Quantity, relative, ratio float64) {
	labels := fmt.Sprintf("{tenant=%q,product=%q,window=%q}", tenant, product, window)
	fmt.Fprintf(&x.value, "usage_estimate%s %s\n", labels, value)
	fmt.Fprintf(&x.wrong, "usage_estimate_error%s %g\n", labels, relative)
	fmt.Fprintf(&x.whole, "usage_completeness%s %g\n", labels, ratio)
}

// metrics writes estimates for Prometheus.
func (a *API) metrics(w http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := a.may(r, "", false); err != nil {
		return 0, nil, err
	}
	var out exposition
	out.begin()
	for _, p := range a.cfg.Definitions.View().Products.All() {
		for _, name := range p.Windows {
			list, _, err := a.cfg.Aggregator.Tenants(r.Context(), aggregator.Question{Product: p.Name, Window: name},
				func(string) bool { return true })
			if err != nil {
				return 0, nil, err
			}
			var rest []estimate.Estimate
			for i, t := range list {
				if len(list) > maxMetricTenants && (i >= maxMetricTenants || t.Tenant == others) {
					rest = append(rest, t.Estimate)
					continue
				}
				out.add(t.Tenant, p.Name, name, *t.Value, t.Error.Relative, t.Completeness.Ratio)
			}
			if len(rest) > 0 {
				value, relative, ratio := estimate.Together(p.Kind, rest)
				out.add(others, p.Name, name, value, relative, ratio)
			}
		}
	}
	out.value.Write(out.wrong.Bytes())
	out.value.Write(out.whole.Bytes())
	httpx.Write(w, r, http.StatusOK, prometheusType, out.value.Bytes())
	return 0, nil, nil
}
