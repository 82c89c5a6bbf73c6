package usageapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/cloudevents"
	"corbel.dev/corbel/usage/definitions"
	"corbel.dev/corbel/usage/router"
)

// The paths of OpenMeter's API, so that its SDKs send and ask here: a meter is a product with the type of the events
// that feed it, a subject is a tenant. What cannot be counted exactly is refused: amounts that are no integers. An
// average is a sum, divided by its events when somebody asks. A meter with several fields to group by has a tag more,
// of all of them together.
//
//	GET, POST /api/v1/events              the newest; CloudEvents, one or a batch: 204
//	GET, POST /api/v1/meters; GET, PUT, DELETE /api/v1/meters/:slug
//	GET /api/v1/meters/:slug/query, /api/v1/meters/:slug/subjects

// openMeter is that door.
type openMeter struct{ *API }

// OpenMeter answers what is below /api/v1/.
func (a *API) OpenMeter() http.Handler {
	m := openMeter{a}
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"GET /api/v1/events":                 m.listEvents,
		"POST /api/v1/events":                m.meterEvents,
		"GET /api/v1/meters":                 m.meters,
		"POST /api/v1/meters":                m.postMeter,
		"GET /api/v1/meters/{slug}":          m.meter,
		"PUT /api/v1/meters/{slug}":          m.putMeter,
		"DELETE /api/v1/meters/{slug}":       m.deleteMeter,
		"GET /api/v1/meters/{slug}/query":    m.meterQuery,
		"GET /api/v1/meters/{slug}/subjects": m.meterSubjects,
	} {
		mux.Handle(pattern, problems(h))
	}
	return mux
}

var (
	problemType = []string{"application/problem+json"}
	csvType     = []string{"text/csv; charset=utf-8"}
)

// csvText is an answer in that form.
type csvText []byte

// problems answers errors as RFC 9457 has them, which OpenMeter's SDKs read.
type problems handler

// ServeHTTP implements http.Handler.
func (h problems) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, value, err := h(w, r)
	switch {
	case err != nil:
		status = statusOf(w, err)
		text, _ := json.Marshal(map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status,
			"detail": err.Error(), "instance": r.URL.Path}) // texts and a number
		httpx.Write(w, r, status, problemType, append(text, '\n'))
	case value == nil:
		w.WriteHeader(cmp.Or(status, http.StatusNoContent))
	default:
		if text, is := value.(csvText); is {
			httpx.Write(w, r, status, csvType, text)
			return
		}
		handler(func(http.ResponseWriter, *http.Request) (int, any, error) { return status, value, nil }).ServeHTTP(w, r)
	}
}

// meter is one as OpenMeter has it.
type meter struct {
	ID            string            `json:"id,omitempty"`
	Slug          string            `json:"slug"`
	Name          string            `json:"name,omitempty"`
	Description   string            `json:"description,omitempty"`
	Aggregation   string            `json:"aggregation"`
	EventType     string            `json:"eventType"`
	ValueProperty string            `json:"valueProperty,omitempty"`
	GroupBy       map[string]string `json:"groupBy,omitempty"`
	WindowSize    string            `json:"windowSize,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
}

// aggregations are those of OpenMeter.
var aggregations = map[string]usage.Kind{"SUM": usage.Sum, "COUNT": usage.Sum, average: usage.Sum,
	"UNIQUE_COUNT": usage.Unique, "MIN": usage.Min, "MAX": usage.Max, "LATEST": usage.Last}

const average = "AVG"

// maxPathNames bounds how deep a path leads into an event's data.
const maxPathNames = 16

// fieldPath is where a path leads in an event's data: "a.b" for $.a.b. ok is false for what is no such path.
func fieldPath(text string) (path string, ok bool) {
	path, ok = strings.CutPrefix(text, "$.")
	if !ok || len(path) > usage.MaxNameBytes || strings.Count(path, ".") >= maxPathNames {
		return "", false
	}
	for name := range strings.SplitSeq(path, ".") {
		odd := func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
		}
		if name == "" || strings.ContainsFunc(name, odd) {
			return "", false
		}
	}
	return path, true
}

// product makes a meter's definition.
func (m *meter) product() (*usage.Product, error) {
	kind, ok := aggregations[m.Aggregation]
	if !ok {
		return nil, errkind.Errorf(errkind.Invalid, "aggregation: %.40q is none of SUM, COUNT, UNIQUE_COUNT, AVG, MIN, MAX, "+
			"LATEST", m.Aggregation)
	}
	if m.EventType == "" || len(m.EventType) > usage.MaxNameBytes {
		return nil, errkind.New(errkind.Invalid, "eventType: is missing, or too long")
	}
	if (m.Aggregation != "COUNT") != (m.ValueProperty != "") {
		return nil, errkind.New(errkind.Invalid, "valueProperty: belongs to every aggregation but COUNT")
	}
	if _, ok := fieldPath(m.ValueProperty); m.ValueProperty != "" && !ok {
		return nil, errkind.Errorf(errkind.Invalid, "valueProperty: %.60q is not $.NAME or $.NAME.NAME of a field of data",
			m.ValueProperty)
	}
	p := &usage.Product{Name: m.Slug, Kind: kind, Meter: &usage.Meter{EventType: m.EventType, Aggregation: m.Aggregation,
		ValueProperty: m.ValueProperty, GroupBy: m.GroupBy, Description: m.Description, Display: m.Name,
		Metadata: m.Metadata}}
	if kind == usage.Unique {
		p.Identity = []string{"value"}
	}
	for _, tag := range sorted(m.GroupBy) {
		if _, ok := fieldPath(m.GroupBy[tag]); !ok || tag == "subject" {
			return nil, errkind.Errorf(errkind.Invalid, "groupBy.%.40s: %.60q is not $.NAME or $.NAME.NAME of a field of data",
				tag, m.GroupBy[tag])
		}
		p.Tags = append(p.Tags, tag)
	}
	return p, errkind.E(errkind.Invalid, "", p.Complete())
}

func meterOf(p *usage.Product) meter {
	m := p.Meter
	return meter{ID: p.Name, Slug: p.Name, Name: cmp.Or(m.Display, p.Name), Description: m.Description,
		Aggregation: m.Aggregation, EventType: m.EventType, ValueProperty: m.ValueProperty, GroupBy: m.GroupBy,
		WindowSize: "MINUTE", Metadata: m.Metadata}
}

func (a openMeter) meters(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := a.mayRead(r); err != nil {
		return 0, nil, err
	}
	out := []meter{}
	for _, p := range a.cfg.Definitions.View().Products.All() {
		if p.Meter != nil {
			out = append(out, meterOf(p))
		}
	}
	return http.StatusOK, out, nil
}

// found is the meter of a path.
func (a openMeter) found(r *http.Request) (*usage.Product, error) {
	p, ok := a.cfg.Definitions.View().Products.Get(r.PathValue("slug"))
	if !ok || p.Meter == nil {
		return nil, errkind.Errorf(errkind.NotFound, "meter: %.100q is not there", r.PathValue("slug"))
	}
	return p, nil
}

func (a openMeter) meter(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := a.mayRead(r); err != nil {
		return 0, nil, err
	}
	p, err := a.found(r)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, meterOf(p), nil
}

func (a openMeter) postMeter(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return a.writeMeter(r, "")
}

func (a openMeter) putMeter(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if _, err := a.found(r); err != nil {
		return 0, nil, err
	}
	return a.writeMeter(r, r.PathValue("slug"))
}

// writeMeter makes a meter, or changes that of a slug.
func (a openMeter) writeMeter(r *http.Request, slug string) (int, any, error) {
	if err := a.may(r, "", true); err != nil {
		return 0, nil, err
	}
	raw, err := httpx.ReadBody(r, nil, maxConfigBytes)
	if err != nil {
		return 0, nil, err
	}
	var in meter // SDKs may send more than is read here
	if err := json.Unmarshal(raw, &in); err != nil {
		return 0, nil, errkind.E(errkind.Invalid, "the body", err)
	}
	in.Slug = cmp.Or(slug, in.Slug)
	p, err := in.product()
	if err != nil {
		return 0, nil, err
	}
	old, there := a.cfg.Definitions.View().Products.Get(p.Name)
	addJoint(p, old)
	if there && slug == "" {
		if old.Meter == nil {
			return 0, nil, errkind.Errorf(errkind.Conflict, "slug: %.100q is a product that is no meter", p.Name)
		}
		return 0, nil, errkind.Errorf(errkind.Conflict, "slug: there is a meter %.100q already", p.Name)
	}
	if err := a.do(r, definitions.Command{Put: p}); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, meterOf(p), nil
}

func (a openMeter) deleteMeter(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := a.may(r, "", true); err != nil {
		return 0, nil, err
	}
	if _, err := a.found(r); err != nil {
		return 0, nil, err
	}
	gone := &definitions.Delete{Name: r.PathValue("slug")}
	return http.StatusNoContent, nil, a.do(r, definitions.Command{Delete: gone})
}

// meterEvents takes CloudEvents for the meters of their types. Events that are wrong make it 400, which names them; the
// others are stored, and the batch may be sent again: ids tell.
func (a openMeter) meterEvents(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	data, release, err := a.intake.body(r, MaxJSONBytes)
	if err != nil {
		return 0, nil, err
	}
	defer release()
	media := r.Header.Get("Content-Type")
	if media == "" || strings.HasPrefix(media, "application/json") { // OpenMeter takes CloudEvents so, too
		if media = cloudevents.Structured; strings.HasPrefix(strings.TrimSpace(string(data)), "[") {
			media = cloudevents.Batched
		}
	}
	items, err := cloudevents.Decode(media, data, nil)
	if err != nil {
		return 0, nil, err
	}
	b, feed := &router.Batch{}, a.feeder()
	var from []int // which event each item is
	for i := range items {
		fed := feed.items(&items[i])
		b.Items = append(b.Items, fed...)
		for range fed {
			from = append(from, i)
		}
	}
	_, value, err := a.intake.take(r, b)
	if err != nil {
		return 0, nil, err
	}
	if answer, ok := value.(router.Answer); ok && len(answer.Rejected) > 0 {
		first := answer.Rejected[0]
		return 0, nil, errkind.Errorf(errkind.Invalid, "event %d: %s (%d in all were rejected, the others are stored)",
			from[first.Index], first.Error, len(answer.Rejected))
	}
	return http.StatusNoContent, nil, nil
}

// subjectsOf are the tenants that have used a product and that a token may read.
func (a openMeter) subjectsOf(w http.ResponseWriter, r *http.Request, product string) []string {
	series, silent := a.cfg.Aggregator.Series(r.Context())
	missing(w, unanswered(silent))
	var out []string
	for _, s := range series {
		if s.Product == product && !slices.Contains(out, s.Tenant) && a.cfg.Allow(r, s.Tenant, false) {
			out = append(out, s.Tenant)
		}
	}
	slices.Sort(out)
	return out
}

func (a openMeter) meterSubjects(w http.ResponseWriter, r *http.Request) (int, any, error) {
	p, err := a.found(r)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, append([]string{}, a.subjectsOf(w, r, p.Name)...), nil
}
