package usageapi

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/aggregator"
	"corbel.dev/corbel/usage/estimate"
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
	Value       json.Number        `json:"value"`
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
	groups    []string            // fields by which rows are told apart
	only      map[string][]string // of some fields the values that are asked for
	// by is the tag that answers, "" for none, and fields are those that it has the values of.
	by     string
	fields []string
	// lacks says that a filter was asked of events whose values are not told apart any more.
	lacks bool
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
			case p.Meter.GroupBy[tag] == "":
				return q, errkind.Errorf(errkind.Invalid, "groupBy: %.100q is not in the groupBy of meter %q", tag, p.Name)
			case !slices.Contains(q.groups, tag):
				q.groups = append(q.groups, tag)
			}
		}
	}
	if err := q.filter(v); err != nil {
		return q, err
	}
	if err := q.choose(); err != nil {
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
		if q.p.Meter.GroupBy[tag] == "" {
			return errkind.Errorf(errkind.Invalid, "filterGroupBy: %.100q is not in the groupBy of meter %q", tag, q.p.Name)
		}
		if q.only == nil {
			q.only = map[string][]string{}
		}
		for _, one := range values {
			q.only[tag] = append(q.only[tag], strings.Split(one, ",")...)
		}
	}
	return nil
}

// choose finds the tag that answers: that of the one field which is named, or the joint one of all fields.
func (q *meterQuestion) choose() error {
	q.fields = slices.Clone(q.groups)
	for _, field := range sorted(q.only) {
		if !slices.Contains(q.fields, field) {
			q.fields = append(q.fields, field)
		}
	}
	switch len(q.fields) {
	case 0:
		return nil
	case 1:
		q.by = q.fields[0]
	default:
		q.fields = sorted(q.p.Meter.GroupBy)
		if q.by = jointTag(q.fields); q.by == "" || !slices.Contains(q.p.Tags, q.by) {
			return errkind.Errorf(errkind.Invalid, "groupBy: meter %q is not counted by several fields together: it has "+
				"more than %d of them, or was made before there was that, which PUT /api/v1/meters/%s changes", q.p.Name,
				usage.MaxProductTags-1, q.p.Name)
		}
	}
	return nil
}

// values are those of the fields in a row; of the row that has the rest, each is "other".
func (q *meterQuestion) values(row *estimate.Row) []string {
	var list []string
	switch {
	case row.Other:
	case len(q.fields) == 1:
		return []string{row.Tag}
	case json.Unmarshal([]byte(row.Tag), &list) == nil && len(list) == len(q.fields):
		return list
	}
	list = make([]string, len(q.fields))
	for i := range list {
		list[i] = others
	}
	return list
}

// grouped are the values that a row is told by, in the order of the groups; ok is false where a filter leaves it out.
func (q *meterQuestion) grouped(row *estimate.Row) (out []string, ok bool) {
	values := q.values(row)
	for i, field := range q.fields {
		if only := q.only[field]; len(only) > 0 && !slices.Contains(only, values[i]) {
			return nil, false
		}
	}
	for _, group := range q.groups {
		out = append(out, values[slices.Index(q.fields, group)])
	}
	return out, true
}

// group is grouped for a value of the tag that answers: rows that are told alike are one, in which an instance counts
// once.
func (q *meterQuestion) group(tag string) (name string, in bool) {
	values, in := q.grouped(&estimate.Row{Tag: tag})
	if !in {
		q.lacks = q.lacks || tag == "" && len(q.fields) > 1 // values that were too long together
		return "", false
	}
	text, err := json.Marshal(values)
	return string(text), err == nil
}

func (a openMeter) meterQuery(w http.ResponseWriter, r *http.Request) (int, any, error) {
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
		q.subjects = a.subjectsOf(w, r, p.Name)
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
	if q.lacks {
		missing(w, []string{fmt.Sprintf("what had none of the %d largest combinations of values is in no row that a filter "+
			"leaves: rows are lower bounds", q.p.TopK)})
	}
	if wantsCSV(r) {
		text, err := q.csv(out.Data)
		return http.StatusOK, csvText(text), err
	}
	return http.StatusOK, &out, nil
}

// wantsCSV says whether a client names CSV before JSON, which it gets otherwise.
func wantsCSV(r *http.Request) bool {
	for _, accept := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			switch media, _, _ := strings.Cut(part, ";"); strings.ToLower(strings.TrimSpace(media)) {
			case "text/csv":
				return true
			case "application/json", "*/*":
				return false
			}
		}
	}
	return false
}

// csv writes rows as OpenMeter does: the subject and the fields are there where rows are grouped by them.
func (q *meterQuestion) csv(rows []meterRow) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	line := func(start, end, subject string, groups []string, value string) error {
		cells := []string{start, end}
		if q.bySubject {
			cells = append(cells, subject)
		}
		return w.Write(append(append(cells, groups...), value))
	}
	err := line("window_start", "window_end", "subject", q.groups, "value")
	for _, r := range rows {
		if err == nil {
			err = line(r.WindowStart.Format(time.RFC3339), r.WindowEnd.Format(time.RFC3339), text(r.Subject),
				q.groupsOf(&r), r.Value.String())
		}
	}
	w.Flush()
	return b.Bytes(), cmp.Or(err, w.Error())
}

// meterTotal is what a row adds up to, and how many events that has.
type meterTotal struct {
	value  usage.Quantity
	events uint64
}

func (t meterTotal) add(kind usage.Kind, more meterTotal) meterTotal {
	switch {
	case t.events == 0:
		return more
	case kind == usage.Sum || kind == usage.Unique:
		t.value, _ = t.value.Add(more.value)
	case kind == usage.Min && more.value.Compare(t.value) < 0, kind != usage.Min && more.value.Compare(t.value) > 0:
		t.value = more.value
	}
	t.events += more.events
	return t
}

// averageDigits are those behind the point of an average; zeros at the end are left out.
const averageDigits = 9

// number is the total as a meter tells it.
func (t meterTotal) number(m *usage.Meter) json.Number {
	if m.Aggregation != average {
		return json.Number(t.value.String())
	}
	sum, _ := new(big.Int).SetString(t.value.String(), 10) // which has digits
	mean := new(big.Rat).SetFrac(sum, new(big.Int).SetUint64(t.events))
	return json.Number(strings.TrimRight(strings.TrimRight(mean.FloatString(averageDigits), "0"), "."))
}

// meterRows are those of one window: windows without usage have none.
func (a openMeter) meterRows(r *http.Request, q *meterQuestion, span window.Range) ([]meterRow, error) {
	type group struct {
		subject string
		values  []string
		total   meterTotal
	}
	sums := map[string]*group{}
	add := func(subject string, values []string, more meterTotal) {
		key := fmt.Sprintf("%q %q", subject, values)
		if sums[key] == nil {
			sums[key] = &group{subject: subject, values: values}
		}
		sums[key].total = sums[key].total.add(q.p.Kind, more)
	}
	for _, s := range q.subjects {
		e, err := a.cfg.Aggregator.Estimate(r.Context(), aggregator.Question{Tenant: s, Product: q.p.Name, From: span.From,
			To: span.To, By: q.by, Group: q.group, Zone: &q.zone})
		if err != nil {
			return nil, err
		}
		subject := ""
		if q.bySubject {
			subject = s
		}
		if q.by == "" {
			if e.Value != nil && e.Events > 0 {
				add(subject, nil, meterTotal{*e.Value, e.Events})
			}
			continue
		}
		for i := range e.By {
			row := &e.By[i]
			var values []string
			in := true
			if row.Other {
				values, in = q.grouped(row)
				q.lacks = q.lacks || !in
			} else if err := json.Unmarshal([]byte(row.Tag), &values); err != nil {
				return nil, err // group has written it
			}
			if in {
				add(subject, values, meterTotal{row.Value, row.Events})
			}
		}
	}
	var out []meterRow
	for _, g := range sums {
		row := meterRow{Value: g.total.number(q.p.Meter), WindowStart: span.From.UTC(), WindowEnd: span.To.UTC(),
			GroupBy: map[string]*string{}}
		if q.bySubject {
			row.Subject = &g.subject
		}
		for i, name := range q.groups {
			row.GroupBy[name] = &g.values[i]
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b meterRow) int {
		return cmp.Or(cmp.Compare(text(a.Subject), text(b.Subject)), slices.Compare(q.groupsOf(&a), q.groupsOf(&b)))
	})
	return out, nil
}

// groupsOf are the values that a row is told by.
func (q *meterQuestion) groupsOf(r *meterRow) (list []string) {
	for _, name := range q.groups {
		list = append(list, text(r.GroupBy[name]))
	}
	return list
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
