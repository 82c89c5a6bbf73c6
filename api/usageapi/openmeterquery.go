package usageapi

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/window"
)

// maxMeterQuestions bounds the estimates that one query of a meter takes: subjects times windows.
const maxMeterQuestions = 5000

// meterSince is how far back a query looks that names no beginning: as far as days are kept.
const meterSince = 366 * 24 * time.Hour

// windowSizes are OpenMeter's, as steps.
var windowSizes = map[string]string{"": "", "MINUTE": "1m", "HOUR": "hour", "DAY": "day", "MONTH": "month"}

// meterRow is a row of an answer.
type meterRow struct {
	Value       usage.Quantity     `json:"value"`
	WindowStart time.Time          `json:"windowStart"`
	WindowEnd   time.Time          `json:"windowEnd"`
	Subject     *string            `json:"subject"`
	GroupBy     map[string]*string `json:"groupBy"`
}

// meterQuestion is a query of a meter.
type meterQuestion struct {
	p         *usage.Product
	size      string // of windows, as OpenMeter has it; "" has one
	zone      window.Zone
	from, to  time.Time
	subjects  []string
	bySubject bool
	by        string   // a tag, "" has none
	grouped   bool     // by it, and not filtered alone
	only      []string // values of it; empty has all
}

// meterAnswer is the answer to it.
type meterAnswer struct {
	From       *time.Time `json:"from,omitempty"`
	To         *time.Time `json:"to,omitempty"`
	WindowSize string     `json:"windowSize,omitempty"`
	Data       []meterRow `json:"data"`
}

// meterAsked reads a query.
func (a openMeter) meterAsked(r *http.Request, p *usage.Product) (q meterQuestion, err error) {
	v := r.URL.Query()
	q = meterQuestion{p: p, size: strings.ToUpper(v.Get("windowSize")), zone: window.In(time.UTC), subjects: v["subject"]}
	if _, ok := windowSizes[q.size]; !ok {
		return q, errkind.Errorf(errkind.Invalid, "windowSize: %.40q is none of MINUTE, HOUR, DAY, MONTH",
			v.Get("windowSize"))
	}
	if tz := v.Get("windowTimeZone"); tz != "" {
		l, err := time.LoadLocation(tz)
		if err != nil || tz == "Local" {
			return q, errkind.Errorf(errkind.Invalid, "windowTimeZone: %.60q is no time zone", tz)
		}
		q.zone = window.In(l)
	}
	now := a.cfg.Now()
	q.to = now.Truncate(time.Minute).Add(time.Minute)
	q.from = now.Add(-meterSince).Truncate(24 * time.Hour)
	for name, to := range map[string]*time.Time{"from": &q.from, "to": &q.to} {
		if text := v.Get(name); text != "" {
			if *to, err = parseTime(name, text, q.zone.Location()); err != nil {
				return q, err
			}
		}
	}
	for _, name := range v["groupBy"] {
		for tag := range strings.SplitSeq(name, ",") {
			switch {
			case tag == "subject":
				q.bySubject = true
			case !slices.Contains(p.Tags, tag):
				return q, errkind.Errorf(errkind.Invalid, "groupBy: %.100q is not in the groupBy of meter %q", tag, p.Name)
			case q.by != "" && q.by != tag:
				return q, errkind.New(errkind.Invalid, "groupBy: one field at a time, beside subject")
			default:
				q.by, q.grouped = tag, true
			}
		}
	}
	if err := q.filter(v); err != nil {
		return q, err
	}
	if p.Kind == usage.Last && !q.bySubject && len(q.subjects) != 1 {
		return q, errkind.New(errkind.Invalid, "subject: LATEST is of one subject: name it, or group by subject")
	}
	return q, nil
}

// filter reads filterGroupBy[TAG].
func (q *meterQuestion) filter(v url.Values) error {
	for name, values := range v {
		tag, is := strings.CutPrefix(name, "filterGroupBy[")
		if !is {
			continue
		}
		tag = strings.TrimSuffix(tag, "]")
		if !slices.Contains(q.p.Tags, tag) || q.by != "" && q.by != tag {
			return errkind.Errorf(errkind.Invalid, "filterGroupBy: %.100q must be the one field that is grouped by", tag)
		}
		q.by = tag
		for _, one := range values {
			q.only = append(q.only, strings.Split(one, ",")...)
		}
	}
	return nil
}

func (a openMeter) meterQuery(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	p, err := a.found(r)
	if err != nil {
		return 0, nil, err
	}
	q, err := a.meterAsked(r, p)
	if err != nil {
		return 0, nil, err
	}
	for _, s := range q.subjects {
		if err := a.may(r, s, false); err != nil {
			return 0, nil, err
		}
	}
	if len(q.subjects) == 0 {
		if err := a.mayRead(r); err != nil {
			return 0, nil, err
		}
		q.subjects = a.subjectsOf(r, p.Name)
	}
	ranges := []window.Range{{From: q.from, To: q.to}}
	if q.size != "" {
		if ranges, err = q.zone.Steps(ranges[0], windowSizes[q.size], maxMeterQuestions); err != nil {
			return 0, nil, errkind.E(errkind.Invalid, "windowSize", err)
		}
	}
	if len(ranges)*max(1, len(q.subjects)) > maxMeterQuestions {
		return 0, nil, errkind.Errorf(errkind.Invalid, "windowSize: %d windows of %d subjects are more than %d: ask for a "+
			"shorter time, or larger windows", len(ranges), len(q.subjects), maxMeterQuestions)
	}
	out := meterAnswer{WindowSize: q.size, Data: []meterRow{}}
	from, to := q.from.UTC(), q.to.UTC()
	out.From, out.To = &from, &to
	for _, span := range ranges {
		rows, err := a.meterRows(r, &q, span)
		if err != nil {
			return 0, nil, err
		}
		out.Data = append(out.Data, rows...)
	}
	return http.StatusOK, &out, nil
}

// meterRows are those of one window: windows without usage have none.
func (a openMeter) meterRows(r *http.Request, q *meterQuestion, span window.Range) ([]meterRow, error) {
	type group struct{ subject, tag string }
	sums := map[group]usage.Quantity{}
	add := func(g group, v usage.Quantity) {
		was, there := sums[g]
		if q.p.Kind == usage.Sum || q.p.Kind == usage.Unique {
			v, _ = was.Add(v)
		} else if there && was.Compare(v) > 0 {
			v = was
		}
		sums[g] = v
	}
	for _, s := range q.subjects {
		e, err := a.cfg.Aggregator.Estimate(r.Context(), aggregator.Question{Tenant: s, Product: q.p.Name, From: span.From,
			To: span.To, By: q.by, Zone: &q.zone})
		if err != nil {
			return nil, err
		}
		g := group{}
		if q.bySubject {
			g.subject = s
		}
		if q.by == "" {
			if e.Value != nil && *e.Value != (usage.Quantity{}) {
				add(g, *e.Value)
			}
			continue
		}
		for _, row := range e.By {
			if g.tag = row.Tag; row.Other {
				g.tag = "other"
			}
			if len(q.only) > 0 && !slices.Contains(q.only, g.tag) {
				continue
			}
			if !q.grouped {
				g.tag = ""
			}
			add(g, row.Value)
		}
	}
	var out []meterRow
	for g, v := range sums {
		row := meterRow{Value: v, WindowStart: span.From.UTC(), WindowEnd: span.To.UTC(), GroupBy: map[string]*string{}}
		if q.bySubject {
			row.Subject = &g.subject
		}
		if q.grouped {
			row.GroupBy[q.by] = &g.tag
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b meterRow) int {
		return cmp.Or(cmp.Compare(text(a.Subject), text(b.Subject)),
			cmp.Compare(text(a.GroupBy[q.by]), text(b.GroupBy[q.by])))
	})
	return out, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
