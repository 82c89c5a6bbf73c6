package uiplane

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/planes/ui/farplaces"
	"corbel.dev/corbel/node/planes/ui/planeasker"
)

// datacenters asks them, with the rights of whoever looks.
type datacenters struct {
	ask *planeasker.Asker
	far *farplaces.Places
	own string
}

// datacenter is what is asked of one.
type datacenter struct {
	services, nodes, instances int // nodes and instances are -1 where the person may not know them
	ill                        []illRow
	tally                      tally // of instances that do not pass
}

// illRow is a check that fails somewhere.
type illRow struct {
	Datacenter string `json:"datacenter"`
	Service    string `json:"service"`
	Node       string `json:"node"`
	Check      string `json:"check"`
	Output     string `json:"output"`
	State      string `json:"state"`
}

// datacenterRow is a datacenter in a line.
type datacenterRow struct {
	farplaces.Row
	Services  int `json:"services"`
	Nodes     int `json:"nodes"` // -1: the person may not know
	Instances int `json:"instances"`
	Critical  int `json:"critical"`
	Warning   int `json:"warning"`
}

// federationView is all datacenters, and all clusters of the monitor plane.
type federationView struct {
	Datacenters []datacenterRow   `json:"datacenters"`
	Ill         []illRow          `json:"ill"` // the worst of each datacenter
	Clusters    []clusterRow      `json:"clusters"`
	Problems    map[string]string `json:"problems"`
}

const (
	mostDatacenters = 64 // that are shown
	illShown        = 20 // of each datacenter
)

func (u *UI) federationTopic() *topic {
	return &topic{every: farplaces.Every, rights: u.rightsOfAll, make: func(ctx context.Context, p *uiapi.Person,
		_ url.Values) (any, error) {
		v := &federationView{Ill: []illRow{}, Clusters: []clusterRow{}, Problems: map[string]string{}}
		names, err := u.dcs.names(ctx, p)
		if err != nil {
			return nil, err
		}
		farplaces.Settle(ctx, u.dcs.look(p, names))
		places := u.dcs.look(p, names)
		for i := range places {
			row := datacenterRow{Row: places[i].Row(names[i], i == 0), Nodes: -1, Instances: -1, Services: -1}
			if d, ok := places[i].Value.(*datacenter); ok {
				row.Services, row.Nodes, row.Instances = d.services, d.nodes, d.instances
				row.Critical, row.Warning = d.tally.Critical, d.tally.Warning
				v.Ill = append(v.Ill, d.ill[:min(len(d.ill), illShown)]...)
			}
			v.Datacenters = append(v.Datacenters, row)
		}
		if u.monitor == nil {
			return v, nil
		}
		clusters, err := u.clusters.look(ctx, p)
		if err != nil {
			v.Problems["monitor"] = err.Error()
		}
		for i := range clusters {
			v.Clusters = append(v.Clusters, clusters[i].row())
		}
		return v, ctx.Err()
	}}
}

// names are all of them, this one first.
func (d *datacenters) names(ctx context.Context, p *uiapi.Person) (names []string, err error) {
	if err := d.ask.Get(ctx, p, "catalog", "/v1/catalog/datacenters", &names); err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == d.own })
	return append([]string{d.own}, names[:min(len(names), mostDatacenters-1)]...), nil
}

// look has datacenters asked and gives what is known of each.
func (d *datacenters) look(p *uiapi.Person, names []string) (places []farplaces.Heard) {
	who := *p
	for _, name := range names {
		places = append(places, d.far.Look("dc\x00"+name+"\x00"+p.Catalog, func(ctx context.Context) (any, error) {
			return d.one(ctx, &who, name)
		}))
	}
	return places
}

// one asks one, by the catalog's own API and with the person's rights there.
func (d *datacenters) one(ctx context.Context, p *uiapi.Person, name string) (*datacenter, error) {
	type check struct{ Node, Name, Status, Output, ServiceID, ServiceName string }
	var services map[string][]string
	var usage struct {
		Usage map[string]struct{ Nodes, ServiceInstances int }
	}
	var critical, warning []check
	questions := []struct {
		path string
		into any
	}{{"/v1/catalog/services", &services}, {"/v1/health/state/critical", &critical},
		{"/v1/health/state/warning", &warning}, {"/v1/operator/usage", &usage}}
	errs := make([]error, len(questions))
	var asking sync.WaitGroup
	for i, q := range questions {
		asking.Go(func() { errs[i] = d.ask.Get(ctx, p, "catalog", q.path+"?stale&dc="+url.QueryEscape(name), q.into) })
	}
	asking.Wait()
	for i, err := range errs {
		if err != nil && !(questions[i].into == any(&usage) && errkind.Is(err, errkind.Denied)) {
			return nil, err
		}
	}
	out := &datacenter{services: len(services), nodes: -1, instances: -1}
	if all, ok := usage.Usage[name]; ok {
		out.nodes, out.instances = all.Nodes, all.ServiceInstances
	}
	seen := map[string]bool{}
	for _, c := range append(critical, warning...) {
		if c.ServiceID != "" && !seen[c.Node+"\x00"+c.ServiceID] {
			seen[c.Node+"\x00"+c.ServiceID] = true
			if c.Status == "critical" {
				out.tally.Critical++
			} else {
				out.tally.Warning++
			}
		}
		if len(out.ill) < illShown {
			out.ill = append(out.ill, illRow{Datacenter: name, Service: c.ServiceName, Node: c.Node, Check: c.Name,
				Output: firstLine(c.Output), State: c.Status})
		}
	}
	return out, nil
}

// datacentersLine is the other datacenters in one line of the overview; false where there are none. It waits for none.
func (u *UI) datacentersLine(ctx context.Context, p *uiapi.Person) (planeRow, bool) {
	line := planeRow{Name: "Datacenters", State: "passing", Path: "/federation"}
	names, err := u.dcs.names(ctx, p)
	if err != nil || len(names) < 2 {
		return line, false
	}
	line.Words = plural(len(names), "datacenter")
	var away, slow []string
	others := u.dcs.look(p, names[1:])
	for i := range others {
		switch row := others[i].Row(names[i+1], false); row.State {
		case "critical":
			away = append(away, row.Name)
		case "warning":
			slow = append(slow, row.Name)
		}
	}
	if len(slow) > 0 {
		line.State, line.Words = "warning", line.Words+", slow: "+strings.Join(slow, " ")
	}
	if len(away) > 0 {
		line.State, line.Words = "critical", line.Words+", unreachable: "+strings.Join(away, " ")
	}
	return line, true
}
