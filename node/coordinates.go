package node

import (
	"context"
	"strings"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/catalog/coordinates"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/vivaldi"
)

// places is where this node and the others lie, as its API sees it.
type places struct {
	*coordinates.Staging // nil on client agents, which pass requests on
	p                    *Process
}

func newPlaces(p *Process) places {
	if p.registry == nil {
		return places{p: p}
	}
	return places{coordinates.New(coordinates.Config{Catalog: p.registry, Leads: p.raft.IsLeader,
		CallLeader: p.callLeader, Grant: p.access.tokens.Grant, Log: p.Log, Metrics: p.Metrics}), p}
}

// send brings this node's coordinate to a server, or keeps it where this is one.
func (c places) send(ctx context.Context, at vivaldi.Coord) error {
	p := c.p
	if c.Staging != nil {
		c.Stage(p.Cfg.Node.Name, at)
		return nil
	}
	addr, err := p.AnyServer()
	if err != nil {
		return err
	}
	_, err = p.RPC.Call(ctx, addr, coordinates.MethodUpdate, coordinates.Update(p.Tokens.Own(), p.Cfg.Node.Name, at))
	return err
}

// addParts adds what brings coordinates into the catalog.
func (c places) addParts(parts *life.Group) {
	own := coordinates.Own{Now: c.Own, Nodes: func() int { return len(c.p.Pool.Members(member.ActShow)) }, Send: c.send,
		Log: c.p.Log}
	parts.Add("coordinate", own.Push)
	if c.Staging != nil {
		parts.Add("coordinates", c.Run)
	}
}

// Own implements operatorrows.Coordinates.
func (c places) Own() vivaldi.Coord { return c.p.Pool.Coordinate() }

// Datacenters implements operatorrows.Coordinates: where the servers of all datacenters lie, as far as this one knows.
func (c places) Datacenters() map[string][]operatorrows.NodeCoordinate {
	out := map[string][]operatorrows.NodeCoordinate{}
	w := c.p.wan
	if w == nil {
		return out
	}
	own := wan.Name(c.p.Cfg.Node.Name, c.p.Cfg.Node.Datacenter)
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
