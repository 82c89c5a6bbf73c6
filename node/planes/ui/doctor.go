package uiplane

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/node/planes/ui/rowlists"
)

// findingRow is a finding of the doctor as the page shows it.
type findingRow struct {
	ID       string        `json:"id"`
	Code     string        `json:"code"`
	Severity string        `json:"severity"` // critical, warning
	Title    string        `json:"title"`
	Member   string        `json:"member,omitempty"`
	Since    int64         `json:"since"` // ms since 1970; 0 is not known
	Evidence []doctor.Line `json:"evidence"`
	Not      []doctor.Line `json:"not"`
	Do       []string      `json:"do"`
}

// doctorView is the report of the doctor.
type doctorView struct {
	Findings []findingRow    `json:"findings"`
	Fine     []string        `json:"fine"`
	Asked    int             `json:"asked"`
	Silent   []doctor.Silent `json:"silent"`
}

// examined is how often the doctor is asked while somebody looks: it asks all servers.
const examined = 5 * time.Second

func (u *UI) doctorTopic() *topic {
	return &topic{every: examined, rights: u.operator, make: func(ctx context.Context, p *uiapi.Person, _ url.Values) (any,
		error) {
		return u.report(ctx, p)
	}}
}

// operator tells apart those whose tokens differ in what they may do.
func (u *UI) operator(ctx context.Context, p *uiapi.Person) (string, error) {
	g, err := u.d.Grant(ctx, p.Catalog)
	if err != nil {
		return "", err
	}
	return g.Class(), nil
}

// reports keeps the newest view of the doctor of each set of rights: the overview shows the worst of what the doctor's
// own screen shows, and all servers are asked once for both.
type reports struct {
	mu   sync.Mutex
	kept map[string]*keptReport
}

type keptReport struct {
	turn turn // held while the servers are asked
	view *doctorView
	at   time.Time
}

// of is the report for a class of rights, at most examined old.
func (r *reports) of(ctx context.Context, class string, now func() time.Time,
	ask func() (*doctorView, error)) (*doctorView, error) {
	r.mu.Lock()
	one := r.kept[class]
	if one == nil {
		if r.kept == nil || len(r.kept) >= rowlists.MaxLists {
			r.kept = map[string]*keptReport{}
		}
		one = &keptReport{turn: newTurn()}
		r.kept[class] = one
	}
	r.mu.Unlock()
	if err := one.turn.take(ctx); err != nil {
		return nil, err
	}
	defer one.turn.leave()
	if one.view != nil && now().Sub(one.at) < examined {
		return one.view, nil
	}
	began := now()
	v, err := ask()
	if err == nil {
		one.view, one.at = v, began
	}
	return v, err
}

// report is the doctor's report as a person may see it.
func (u *UI) report(ctx context.Context, p *uiapi.Person) (*doctorView, error) {
	class, err := u.operator(ctx, p)
	if err != nil {
		return nil, err
	}
	return u.reports.of(ctx, class, u.d.Clock.Now, func() (*doctorView, error) { return u.examine(ctx, p) })
}

func (u *UI) examine(ctx context.Context, p *uiapi.Person) (*doctorView, error) {
	var r doctor.Report
	if err := u.ask.Get(ctx, p, "catalog", "/v1/doctor", &r); err != nil {
		return nil, err
	}
	return viewOf(&r), nil
}

// viewOf is a report as the page shows it.
func viewOf(r *doctor.Report) *doctorView {
	v := &doctorView{Findings: []findingRow{}, Fine: r.Fine, Asked: r.Asked, Silent: r.Silent}
	if v.Fine == nil {
		v.Fine = []string{}
	}
	if v.Silent == nil {
		v.Silent = []doctor.Silent{}
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		row := findingRow{ID: strings.Join([]string{f.Code, f.Member, f.Culprit}, " "), Code: f.Code,
			Severity: cmp.Or(string(f.Severity), "warning"), Title: f.Title, Member: f.Member, Do: f.Do,
			Evidence: append([]doctor.Line{}, f.Evidence...), Not: append([]doctor.Line{}, f.Not...)}
		if !f.Since.IsZero() {
			row.Since = f.Since.UnixMilli()
		}
		if row.Do == nil {
			row.Do = []string{}
		}
		v.Findings = append(v.Findings, row)
	}
	return v
}
