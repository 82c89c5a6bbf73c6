// Package usageapi is the HTTP door of the usage plane: intake of events, and questions about what they add up to.
//
//	POST /v1/usage/events               events in JSON, newline-delimited JSON or as CloudEvents; gzip, zstd
//	POST /v1/usage/batch                the binary form of usage/batch
//	GET  /v1/usage/estimates            a value with its bound
//	GET  /v1/usage/products, tenants, top, explain, limits, corrections, accuracy, periods, metrics
//	PUT  /v1/usage/products/:name, tenants/:name, limits/:name;  DELETE products/:name, limits/:name
//	POST /v1/usage/corrections
//
// A body is bounded before and after it is decompressed, and so is how many are decoded at once. Errors are text and
// name the field. The token of a request needs the resource usage on the tenant that it is about.
package usageapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/counter"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/fate"
	"corbel.dev/corbel/usage/router"
	"corbel.dev/corbel/usage/window"
)

// Bounds of bodies.
const (
	MaxJSONBytes   = 1 << 20  // of JSON, as it comes
	MaxBodyBytes   = 16 << 20 // after decompression, and of a binary batch
	maxConfigBytes = 64 << 10 // of a definition
	decodersAtOnce = 32
)

// Counts are what this server counts.
type Counts interface {
	// Changed is closed with the next change.
	Changed() <-chan struct{}
}

// Config of an API.
type Config struct {
	Router      *router.Router
	Aggregator  *aggregator.Aggregator
	Counts      Counts
	Definitions *definitions.Definitions
	// Zone is a tenant's calendar.
	Zone func(tenant string) window.Zone
	// Allow says whether the token of a request may read or write a tenant's usage; "" stands for all tenants.
	Allow func(r *http.Request, tenant string, write bool) bool
	// Explain asks all servers what became of an event.
	Explain func(ctx context.Context, tenant, source, id string) (fate.Answer, error)
	// Refused asks them whether one has rejected an event lately; nil asks Router alone.
	Refused func(ctx context.Context, tenant, source, id string) (router.Refused, bool)
	// Rejected asks them for all such events, and says who did not answer; nil asks Router alone.
	Rejected func(ctx context.Context, q counter.RecentQuery) (list []router.Refused, silent []string)
	Now      func() time.Time
}

// API serves its paths. It is for any goroutine.
type API struct {
	cfg    Config
	intake *Intake
	mux    *http.ServeMux
}

// New makes an API.
func New(cfg Config) (*API, error) {
	if cfg.Refused == nil {
		cfg.Refused = func(_ context.Context, tenant, source, id string) (router.Refused, bool) {
			return cfg.Router.WhyRefused(tenant, source, id)
		}
	}
	if cfg.Rejected == nil {
		cfg.Rejected = func(_ context.Context, q counter.RecentQuery) ([]router.Refused, []string) {
			return cfg.Router.Rejected(&q), nil
		}
	}
	in, err := NewIntake(IntakeConfig{Take: cfg.Router.Take, Product: func(name string) (*usage.Product, bool) {
		return cfg.Definitions.View().Products.Get(name)
	}, May: func(r *http.Request, tenant string) error {
		if cfg.Allow(r, tenant, true) {
			return nil
		}
		return Denied(tenant, true)
	}})
	a := &API{cfg: cfg, intake: in, mux: http.NewServeMux()}
	for pattern, h := range a.routes() {
		a.mux.Handle(pattern, h)
	}
	return a, err
}

// ServeHTTP answers what is below /v1/usage/.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// routes are the patterns that the API answers.
func (a *API) routes() map[string]handler {
	return map[string]handler{
		"POST /v1/usage/events":               a.intake.events,
		"POST /v1/usage/batch":                a.intake.batch,
		"GET /v1/usage/estimates":             a.estimates,
		"GET /v1/usage/products":              a.products,
		"GET /v1/usage/products/{name...}":    a.product,
		"PUT /v1/usage/products/{name...}":    a.putProduct,
		"DELETE /v1/usage/products/{name...}": a.deleteProduct,
		"GET /v1/usage/tenants":               a.tenants,
		"PUT /v1/usage/tenants/{name}":        a.putTenant,
		"GET /v1/usage/top":                   a.top,
		"GET /v1/usage/explain":               a.explain,
		"GET /v1/usage/limits":                a.limits,
		"GET /v1/usage/limits/{name}":         a.limit,
		"PUT /v1/usage/limits/{name}":         a.putLimit,
		"DELETE /v1/usage/limits/{name}":      a.deleteLimit,
		"GET /v1/usage/limits/{name}/history": a.history,
		"POST /v1/usage/corrections":          a.correct,
		"GET /v1/usage/corrections":           a.corrections,
		"GET /v1/usage/corrections/{id}":      a.correction,
		"GET /v1/usage/periods":               a.periods,
		"GET /v1/usage/accuracy":              a.accuracy,
		"GET /v1/usage/metrics":               a.metrics,
	}
}

// handler answers with a value as JSON, or an error by its kind.
type handler func(w http.ResponseWriter, r *http.Request) (status int, value any, err error)

// ServeHTTP implements http.Handler.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, value, err := h(w, r)
	if err != nil {
		fail(w, err)
		return
	}
	if value == nil {
		return // it has been written
	}
	text, err := json.Marshal(value)
	if err != nil {
		fail(w, err)
		return
	}
	httpx.Write(w, r, status, httpx.JSONType, append(text, '\n'))
}

var statuses = map[errkind.Kind]int{errkind.Invalid: 400, errkind.Denied: 403, errkind.NotFound: 404,
	errkind.Conflict: 409, errkind.TooLarge: 413, errkind.Overloaded: 429, errkind.NotLeader: 503,
	errkind.Unavailable: 503, errkind.Unknown: 503}

func fail(w http.ResponseWriter, err error) {
	httpx.WriteText(w, statusOf(w, err), err.Error())
}

// statusOf is the status of an error; where it may be over soon, it says so in a header.
func statusOf(w http.ResponseWriter, err error) int {
	var large *httpx.TooLarge
	status, ok := statuses[errkind.Of(err)]
	switch {
	case errors.As(err, &large):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		status = http.StatusServiceUnavailable
	case !ok:
		status = http.StatusInternalServerError
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	return status
}

// Denied is what a token is told that lacks a right on a tenant; "" are all.
func Denied(tenant string, write bool) error {
	right := "read"
	if write {
		right = "write"
	}
	if tenant == "" {
		return errkind.Errorf(errkind.Denied, "Permission denied: this needs usage:%s on all tenants (usage_prefix \"\")",
			right)
	}
	return errkind.Errorf(errkind.Denied, "Permission denied: this needs usage:%s on tenant %q", right, tenant)
}

func (a *API) may(r *http.Request, tenant string, write bool) error {
	if !a.cfg.Allow(r, tenant, write) {
		return Denied(tenant, write)
	}
	return nil
}

// read decodes a definition; unknown fields are wrong.
func read(r *http.Request, to any) error {
	raw, err := httpx.ReadBody(r, nil, maxConfigBytes)
	if err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return errkind.E(errkind.Invalid, "the body", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errkind.New(errkind.Invalid, "the body: something follows the object")
	}
	return nil
}
