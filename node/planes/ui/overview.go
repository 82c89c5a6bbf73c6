package uiplane

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/jobs/rooms"
	"corbel.dev/corbel/kit/errkind"
)

// planeRow is a plane in one line.
type planeRow struct {
	Name  string `json:"name"`
	State string `json:"state"` // passing, warning, critical, unknown
	Words string `json:"words"`
	Path  string `json:"path,omitempty"`
}

// overviewView says in one look what is wrong.
type overviewView struct {
	Planes   []planeRow   `json:"planes"`
	Services []serviceRow `json:"services"` // the worst ones
	Findings []findingRow `json:"findings"`
	// Incidents are the worst failing checks; null where the person may not see any.
	Incidents []incidentRow `json:"incidents"`
	Doctor    string        `json:"doctor,omitempty"`  // why there are no findings
	Catalog   string        `json:"catalog,omitempty"` // why there are no services
}

// worstShown is how many of the worst the overview shows.
const worstShown = 5

func (u *UI) overviewTopic(f *fleet) *topic {
	rights := func(ctx context.Context, p *uiapi.Person) (string, error) { return u.rightsOfAll(ctx, p) }
	return &topic{every: 2 * time.Second, rights: rights, make: func(ctx context.Context, p *uiapi.Person,
		_ url.Values) (any, error) {
		g, err := u.d.Grant(ctx, p.Catalog)
		if err != nil {
			return nil, err
		}
		v := &overviewView{Services: []serviceRow{}, Findings: []findingRow{}}
		if err := u.catalogLine(ctx, f, g, v); err != nil {
			return nil, err
		}
		if line, worst, ok := u.monitorLine(ctx, p); ok {
			v.Planes = append(v.Planes, line)
			v.Incidents = append([]incidentRow{}, worst...)
		}
		if line, ok := secretsLine(ctx, &u.ask, p); ok {
			v.Planes = append(v.Planes, line)
		}
		if line, ok := u.usageLine(ctx, p); ok {
			v.Planes = append(v.Planes, line)
		}
		if g.Allow(acl.Operator, "", acl.Read) {
			if u.jobs != nil {
				v.Planes = append(v.Planes, jobsLine(u.jobs.Rooms()))
			}
			v.Planes = append(v.Planes, u.clusterLine())
		}
		if line, ok := u.datacentersLine(ctx, p); ok {
			v.Planes = append(v.Planes, line)
		}
		u.doctorLines(ctx, p, v)
		return v, nil
	}}
}

// rightsOfAll tells apart those whose tokens of all planes differ in what they may do.
func (u *UI) rightsOfAll(ctx context.Context, p *uiapi.Person) (string, error) {
	class, err := u.operator(ctx, p)
	return strings.Join([]string{class, p.Secrets, u.monitorRights(p)}, "\x00"), err
}

func (u *UI) catalogLine(ctx context.Context, f *fleet, g *acl.Grant, v *overviewView) error {
	st := f.state()
	services, err := f.serviceRows(ctx, g, st)
	if err != nil {
		return err
	}
	nodes := f.nodeRows(g, st)
	var all, proxies tally
	meshed := 0
	for i := range services {
		s := &services[i]
		if s.Kind == catalog.KindConnectProxy {
			meshed, proxies.Instances = meshed+1, proxies.Instances+s.Instances
			proxies.Critical, proxies.Warning = proxies.Critical+s.Critical, proxies.Warning+s.Warning
		}
		all.Instances, all.Passing = all.Instances+s.Instances, all.Passing+s.Passing
		all.Warning, all.Critical = all.Warning+s.Warning, all.Critical+s.Critical
		if i < worstShown && s.Passing < s.Instances {
			v.Services = append(v.Services, *s)
		}
	}
	line := planeRow{Name: "Services", State: "passing", Path: "/services"}
	line.Words = fmt.Sprintf("%s, %s, %d passing", plural(len(services), "service"), plural(all.Instances, "instance"),
		all.Passing)
	line.judge(all.Critical, all.Warning)
	v.Planes = append(v.Planes, line)
	ill := tally{}
	for i := range nodes {
		ill.add(nodes[i].Row.health)
	}
	line = planeRow{Name: "Nodes", State: "passing", Path: "/nodes", Words: plural(len(nodes), "node")}
	line.judge(ill.Critical, ill.Warning)
	v.Planes = append(v.Planes, line)
	if meshed > 0 {
		line = planeRow{Name: "Mesh", State: "passing", Path: "/topology"}
		line.Words = fmt.Sprintf("%s of %s", plural(proxies.Instances, "sidecar"), plural(meshed, "service"))
		line.judge(proxies.Critical, proxies.Warning)
		v.Planes = append(v.Planes, line)
	}
	return nil
}

// judge adds to a line how many are ill.
func (p *planeRow) judge(critical, warning int) {
	if warning > 0 {
		p.State, p.Words = "warning", fmt.Sprintf("%s, %d warning", p.Words, warning)
	}
	if critical > 0 {
		p.State, p.Words = "critical", fmt.Sprintf("%s, %d critical", p.Words, critical)
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// usageLine tells of limits; false where nothing is limited, or the person may not see it.
func (u *UI) usageLine(ctx context.Context, p *uiapi.Person) (planeRow, bool) {
	line := planeRow{Name: "Usage", State: "passing", Path: "/usage"}
	var limits []struct {
		Name     string    `json:"name"`
		Crossed  []float64 `json:"crossed"`
		Forecast string    `json:"forecast"`
	}
	if err := u.ask.Get(ctx, p, "catalog", "/v1/usage/limits", &limits); err != nil || len(limits) == 0 {
		return line, false
	}
	var over, soon []string
	for _, l := range limits {
		switch {
		case len(l.Crossed) > 0 && slices.Max(l.Crossed) >= 1:
			over = append(over, l.Name)
		case len(l.Crossed) > 0 || l.Forecast != "":
			soon = append(soon, l.Name)
		}
	}
	line.Words = plural(len(limits), "limit") + ", none crossed"
	switch {
	case len(over) > 0:
		line.State, line.Words = "critical", "crossed: "+strings.Join(over[:min(len(over), worstShown)], ", ")
	case len(soon) > 0:
		line.State, line.Words = "warning", "near: "+strings.Join(soon[:min(len(soon), worstShown)], ", ")
	}
	return line, true
}

// jobsLine tells of the nodes that run jobs, and of what waits for room.
func jobsLine(r rooms.Rooms) planeRow {
	line := planeRow{Name: "Jobs", State: "passing", Path: "/jobs"}
	var all rooms.Room
	for i := range r.Groups {
		all.Add(&r.Groups[i])
	}
	line.Words = fmt.Sprintf("%s run on %s", plural(all.Allocs, "allocation"), plural(all.Nodes, "node"))
	if all.Nodes == 0 {
		line.State, line.Words = "unknown", "no node runs jobs"
	}
	if all.Draining > 0 {
		line.Words += fmt.Sprintf(", %d draining", all.Draining)
	}
	if r.Waiting > 0 {
		line.State, line.Words = "warning", fmt.Sprintf("%s, %s without room", line.Words, plural(r.Waiting, "evaluation"))
	}
	if all.Down > 0 {
		line.State, line.Words = "critical", fmt.Sprintf("%s, %d down", line.Words, all.Down)
	}
	return line
}

// clusterLine tells of the Raft groups of this server.
func (u *UI) clusterLine() planeRow {
	line := planeRow{Name: "Cluster", State: "passing", Path: "/cluster"}
	groups, headless := u.d.AllGroups(), []string{}
	for _, g := range groups {
		if g.LeaderAddr() == "" {
			headless = append(headless, g.Name)
		}
	}
	line.Words = plural(len(groups), "Raft group") + ", all led"
	if len(headless) > 0 {
		line.State, line.Words = "critical", "no leader: "+strings.Join(headless, ", ")
	}
	return line
}

// doctorLines shows the worst findings, or why they may not be seen.
func (u *UI) doctorLines(ctx context.Context, p *uiapi.Person, v *overviewView) {
	report, err := u.report(ctx, p)
	switch {
	case errkind.Is(err, errkind.Denied):
		v.Doctor = "the doctor's findings need operator:read"
	case err != nil:
		v.Doctor = "the doctor does not answer: " + err.Error()
	default:
		v.Findings = report.Findings[:min(len(report.Findings), worstShown)]
	}
}
