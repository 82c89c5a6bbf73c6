// Package meshmap draws who calls whom: which services a map shows, which of them stand together where they are too
// many, and where each stands. It is pure and deterministic: the same calls give the same map, so that nothing moves
// under a reader but by a change of the calls. It draws the calls that it is given: rights are the caller's matter.
//
// Callers stand to the left of what they call, in columns. Above MostServices services or MostLines lines, those whose
// names begin alike are one place, and their calls one line, until about Grouped places are left: nobody reads a map
// of more.
package meshmap

import (
	"cmp"
	"slices"
	"strings"
)

const (
	// MostServices is how many services stand alone.
	MostServices = 200
	// MostLines is how many lines are drawn.
	MostLines = 300
	// Grouped is about how many places there are where services are grouped.
	Grouped = 80
	// MostCalls bounds the calls of a view that are listed; all are drawn.
	MostCalls = 1000
)

// Call is that a service calls another one, as the catalog tells of it.
type Call struct {
	Source      string
	Destination string
	Datacenter  string `json:",omitempty"` // of the destination, where it is another one
	Proxies     int
	Allowed     bool
	PerRequest  bool `json:",omitempty"`
	Reason      string
}

// to is the ID of the destination.
func (c *Call) to() string { return ID(c.Destination, c.Datacenter) }

// ID names a service on a map; the datacenter is "" for those of this one.
func ID(service, datacenter string) string {
	if datacenter == "" {
		return service
	}
	return service + "@" + datacenter
}

// Scope is the part of the mesh that is looked at: all of it, what is within two calls of a service, or the calls from
// and to services whose IDs begin with a prefix.
type Scope struct{ Service, Prefix string }

// View is what of a mesh is looked at.
type View struct {
	Calls []Call `json:"calls"` // at most MostCalls
	More  int    `json:"more"`  // that are not listed
	Map   *Map   `json:"map"`
}

// Map is where services stand and which lines are between them. Columns count from the left, rows from above.
type Map struct {
	Columns  int     `json:"columns"`
	Rows     float64 `json:"rows"`
	Services int     `json:"services"` // that are drawn, alone or in groups
	Places   []Place `json:"places"`
	Lines    []Line  `json:"lines"`
}

// Place is a service, or a group of those whose IDs begin with a prefix.
type Place struct {
	// ID is that of the service; of a group it is its prefix with a * behind it.
	ID         string  `json:"id"`
	Name       string  `json:"name,omitempty"` // of a service
	Datacenter string  `json:"dc,omitempty"`
	Prefix     string  `json:"prefix,omitempty"`   // of a group; "" is one of services that have nothing in common
	Services   int     `json:"services,omitempty"` // of a group
	Within     int     `json:"within,omitempty"`   // calls from one of its services to another
	Column     int     `json:"x"`
	Row        float64 `json:"y"`
	// Local are the services of this datacenter in it.
	Local []string `json:"-"`
}

// Line is the calls from one place to another one.
type Line struct {
	From   int `json:"from"` // indexes of places
	To     int `json:"to"`
	Calls  int `json:"calls"`
	Denied int `json:"denied,omitempty"` // of them
}

// Of is the view of a part of a mesh.
func Of(calls []Call, of Scope) *View {
	calls = within(calls, of)
	return &View{Calls: calls[:min(len(calls), MostCalls)], More: max(0, len(calls)-MostCalls),
		Map: draw(calls, of)}
}

// hops is how far from a service one looks.
const hops = 2

func within(calls []Call, of Scope) []Call {
	keep := func(passes func(*Call) bool) []Call {
		found := []Call{}
		for i := range calls {
			if passes(&calls[i]) {
				found = append(found, calls[i])
			}
		}
		return found
	}
	switch {
	case of.Service != "":
		seen, found := map[string]bool{of.Service: true}, []Call{}
		for range hops {
			found = keep(func(c *Call) bool { return seen[c.Source] || seen[c.to()] })
			for i := range found {
				seen[found[i].Source], seen[found[i].to()] = true, true
			}
		}
		return found
	case of.Prefix != "":
		return keep(func(c *Call) bool {
			return strings.HasPrefix(c.Source, of.Prefix) || strings.HasPrefix(c.to(), of.Prefix)
		})
	}
	return keep(func(*Call) bool { return true })
}

// service is one that a map shows.
type service struct{ id, name, datacenter string }

// servicesOf are those that call or are called, by their IDs.
func servicesOf(calls []Call) []service {
	list := make([]service, 0, 2*len(calls))
	for i := range calls {
		c := &calls[i]
		list = append(list, service{c.Source, c.Source, ""}, service{c.to(), c.Destination, c.Datacenter})
	}
	slices.SortFunc(list, func(a, b service) int {
		return cmp.Or(strings.Compare(a.id, b.id), strings.Compare(a.datacenter, b.datacenter))
	})
	return slices.CompactFunc(list, func(a, b service) bool { return a.id == b.id })
}

// draw makes the map of calls.
func draw(calls []Call, of Scope) *Map {
	all := servicesOf(calls)
	m := &Map{Services: len(all), Places: []Place{}, Lines: []Line{}}
	if len(all) == 0 {
		return m
	}
	if len(all) <= MostServices {
		m.fill(eachAlone(all), calls)
	}
	// It ends: between 16 places there are fewer lines than MostLines.
	for most := Grouped; len(m.Places) == 0 || len(m.Lines) > MostLines; most = most * 2 / 3 {
		m.fill(families(all, of, most), calls)
	}
	m.arrange()
	return m
}

// fill makes places of families, and lines of the calls between them.
func (m *Map) fill(list []family, calls []Call) {
	m.Places, m.Lines = make([]Place, len(list)), []Line{}
	at := map[string]int{} // the place of each service
	for i, f := range list {
		p := &m.Places[i]
		if one := f.services[0]; len(f.services) == 1 {
			p.ID, p.Name, p.Datacenter = one.id, one.name, one.datacenter
		} else {
			p.ID, p.Prefix, p.Services = f.prefix+"*", f.prefix, len(f.services)
		}
		for _, s := range f.services {
			if at[s.id] = i; s.datacenter == "" {
				p.Local = append(p.Local, s.name)
			}
		}
	}
	known := map[[2]int]int{} // the line between two places
	for i := range calls {
		c := &calls[i]
		from, to := at[c.Source], at[c.to()]
		if from == to {
			m.Places[from].Within++
			continue
		}
		n, ok := known[[2]int{from, to}]
		if !ok {
			n = len(m.Lines)
			known[[2]int{from, to}] = n
			m.Lines = append(m.Lines, Line{From: from, To: to})
		}
		if m.Lines[n].Calls++; !c.Allowed {
			m.Lines[n].Denied++
		}
	}
	slices.SortFunc(m.Lines, func(a, b Line) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
}
