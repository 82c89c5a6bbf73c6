package node

import (
	"strings"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/kit/vivaldi"
)

// places is where the servers of all datacenters lie, as the API sees it.
type places struct{ s *Server }

// Own implements operatorrows.Coordinates.
func (c places) Own() vivaldi.Coord { return c.s.Pool.Coordinate() }

// Stage implements operatorrows.Coordinates.
func (c places) Stage(node string, at vivaldi.Coord) { c.s.places.Stage(node, at) }

// Datacenters implements operatorrows.Coordinates: where the servers of all datacenters lie, as far as this one knows.
func (c places) Datacenters() map[string][]operatorrows.NodeCoordinate {
	out := map[string][]operatorrows.NodeCoordinate{}
	w := c.s.wan
	if w == nil {
		return out
	}
	own := wan.Name(c.s.Cfg.Node.Name, c.s.Cfg.Node.Datacenter)
	for _, m := range w.Pool.Members(member.ActShow) {
		at, ok := w.Pool.CoordinateOf(m.Name)
		if m.Name == own {
			at, ok = w.Pool.Coordinate(), true
		}
		if dc := m.Tags["dc"]; ok && m.Status == member.Alive {
			out[dc] = append(out[dc], operatorrows.NodeCoordinate{Node: strings.TrimSuffix(m.Name, "."+dc), Coord: at})
		}
	}
	return out
}
