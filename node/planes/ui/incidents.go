package uiplane

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/planes/ui/rowlists"
)

// event is what the page needs of an event of the monitor plane's API.
type event struct {
	Entity struct {
		Metadata      names    `json:"metadata"`
		Subscriptions []string `json:"subscriptions"`
	} `json:"entity"`
	Check struct {
		Metadata      names    `json:"metadata"`
		Status        uint32   `json:"status"`
		State         string   `json:"state"`
		Output        string   `json:"output"`
		Occurrences   int64    `json:"occurrences"`
		Executed      int64    `json:"executed"`
		LastOK        int64    `json:"last_ok"`
		Handlers      []string `json:"handlers"`
		Subscriptions []string `json:"subscriptions"`
		Pipelines     []struct {
			Name string `json:"name"`
		} `json:"pipelines"`
	} `json:"check"`
}

type names struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// silence is what the page needs of a silence.
type silence struct {
	Metadata     names  `json:"metadata"`
	Check        string `json:"check"`
	Subscription string `json:"subscription"`
	Begin        int64  `json:"begin"`
}

// holds tells whether a silence covers an event at a time.
func (s *silence) holds(e *event, now int64) bool {
	if s.Metadata.Namespace != e.Entity.Metadata.Namespace || s.Begin > now ||
		s.Check != "" && s.Check != e.Check.Metadata.Name {
		return false
	}
	return s.Subscription == "" || s.Subscription == "entity:"+e.Entity.Metadata.Name ||
		slices.Contains(e.Entity.Subscriptions, s.Subscription) || slices.Contains(e.Check.Subscriptions, s.Subscription)
}

// incidentRow is an event that is not well. It implements rowfilter.Row.
type incidentRow struct {
	Cluster     string   `json:"cluster,omitempty"` // in lists of several
	Namespace   string   `json:"namespace"`
	Entity      string   `json:"entity"`
	Check       string   `json:"check"`
	State       string   `json:"state"`
	Output      string   `json:"output"`
	Occurrences int64    `json:"occurrences"`
	Since       int64    `json:"since"` // ms since 1970
	Last        int64    `json:"last"`
	Silenced    []string `json:"silenced"`
	Handlers    []string `json:"handlers"`
	Status      uint32   `json:"status"`
}

func (i incidentRow) Words() []string { return []string{i.Entity, i.Check, i.Output} }

func (i incidentRow) Values(field string) []string {
	switch field {
	case "cluster":
		return []string{i.Cluster}
	case "namespace":
		return []string{i.Namespace}
	case "entity":
		return []string{i.Entity}
	case "check":
		return []string{i.Check}
	case "handler":
		return i.Handlers
	case "silenced":
		return []string{fmt.Sprint(len(i.Silenced) > 0)}
	}
	return []string{i.State}
}

// watched is how often the monitor plane is asked while somebody looks.
const watched = 2 * time.Second

// maxIncidents bounds the events that are looked at.
const maxIncidents = 10_000

// monitorRights tells apart those who may see different things of the monitor plane.
func (u *UI) monitorRights(p *uiapi.Person) string {
	if u.monitor == nil {
		return ""
	}
	return u.monitor.Who(p.Monitor)
}

func (u *UI) incidentsTopic() *topic {
	rights := func(_ context.Context, p *uiapi.Person) (string, error) { return u.monitorRights(p), nil }
	return &topic{every: watched, rights: rights, make: func(ctx context.Context, p *uiapi.Person, q url.Values) (any,
		error) {
		rows, err := u.incidents(ctx, p)
		if err != nil {
			return nil, err
		}
		return rowlists.Paged(rows, q, "namespace", "entity", "check", "handler", "silenced", "state"), nil
	}}
}

// incidents are the events that are not well, the worst first.
func (u *UI) incidents(ctx context.Context, p *uiapi.Person) ([]incidentRow, error) {
	if u.monitor != nil && p.Monitor == "" {
		return nil, errNoMonitorLogin
	}
	var list []event
	path := "/api/core/v2/events?limit=" + fmt.Sprint(maxIncidents) + "&fieldSelector=" +
		url.QueryEscape(`event.check.status != "0"`)
	if err := u.ask.Get(ctx, p, "monitor", path, &list); err != nil {
		return nil, err
	}
	var silences []silence
	if err := u.ask.Get(ctx, p, "monitor", "/api/core/v2/silenced", &silences); err != nil &&
		!errkind.Is(err, errkind.Denied) {
		return nil, err
	}
	return failingOf(list, silences, u.d.Clock.Now().Unix()), nil
}

var errNoMonitorLogin = errkind.New(errkind.Denied, "this session has no login of the monitor plane: log in with a "+
	"user and password, or an API key")

// failingOf are the events that are not well at a time, the worst first.
func failingOf(list []event, silences []silence, now int64) []incidentRow {
	rows := []incidentRow{}
	for i := range list {
		if e := &list[i]; e.Check.Status != 0 {
			row := e.row()
			row.Silenced = []string{} // by what holds now: the event knows what held when it was stored
			for j := range silences {
				if silences[j].holds(e, now) {
					row.Silenced = append(row.Silenced, silences[j].Metadata.Name)
				}
			}
			rows = append(rows, row)
		}
	}
	sortIncidents(rows)
	return rows
}

// sortIncidents puts the worst first: those that nobody silenced, then by status and age.
func sortIncidents(rows []incidentRow) {
	slices.SortStableFunc(rows, func(a, b incidentRow) int {
		return cmp.Or(cmp.Compare(min(len(a.Silenced), 1), min(len(b.Silenced), 1)),
			cmp.Compare(rank(b.Status), rank(a.Status)), cmp.Compare(b.Since, a.Since), strings.Compare(a.Entity, b.Entity))
	})
}

// rank orders statuses: critical, warning, and what a check did not know.
func rank(status uint32) int {
	switch status {
	case 2:
		return 3
	case 1:
		return 1
	case 0:
		return 0
	}
	return 2
}

func (e *event) row() incidentRow {
	c := &e.Check
	row := incidentRow{Namespace: e.Entity.Metadata.Namespace, Entity: e.Entity.Metadata.Name, Check: c.Metadata.Name,
		State: "unknown", Output: firstLine(c.Output), Occurrences: c.Occurrences, Last: c.Executed * 1000,
		Since: c.LastOK * 1000, Handlers: append([]string{}, c.Handlers...), Status: c.Status}
	switch c.Status {
	case 1:
		row.State = "warning"
	case 2:
		row.State = "critical"
	}
	for _, one := range c.Pipelines {
		row.Handlers = append(row.Handlers, one.Name)
	}
	return row
}

// monitorLine is the monitor plane in one line, with the worst incidents that nobody silenced.
func (u *UI) monitorLine(ctx context.Context, p *uiapi.Person) (line planeRow, worst []incidentRow, told bool) {
	line = planeRow{Name: "Incidents", State: "passing", Path: "/incidents", Words: "no check fails"}
	if u.monitor == nil || p.Monitor == "" {
		return line, nil, false
	}
	rows, err := u.incidents(ctx, p)
	switch {
	case errkind.Is(err, errkind.Denied):
		return line, nil, false
	case err != nil:
		line.State, line.Words = "critical", err.Error()
		return line, nil, true
	}
	silent, nobody := 0, 0
	var t tally
	for i := range rows {
		switch {
		case len(rows[i].Silenced) > 0:
			silent++
			continue
		case len(rows[i].Handlers) == 0:
			nobody++
		}
		if rows[i].Status == 1 {
			t.Warning++
		} else {
			t.Critical++
		}
		if len(worst) < worstShown {
			worst = append(worst, rows[i])
		}
	}
	if len(rows) > 0 {
		line.Words = plural(len(rows), "failing check")
	}
	line.judge(t.Critical, t.Warning)
	if silent > 0 {
		line.Words += fmt.Sprintf(", %d silenced", silent)
	}
	if nobody > 0 {
		line.Words += fmt.Sprintf(", %d page nobody", nobody)
	}
	return line, worst, true
}
