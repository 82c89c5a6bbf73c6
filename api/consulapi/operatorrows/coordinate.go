package operatorrows

import (
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vivaldi"
)

// NodeCoordinate is where a node lies.
type NodeCoordinate struct {
	Node  string
	Coord vivaldi.Coord
}

// Coordinates is where this process and its peers lie in the network.
type Coordinates interface {
	Own() vivaldi.Coord
	// Stage has the coordinate of a node written with the next batch, on a server.
	Stage(node string, c vivaldi.Coord)
	// Datacenters tells, on a server, where the servers of all datacenters lie, by datacenter.
	Datacenters() map[string][]NodeCoordinate
}

// WireCoord is a coordinate as clients see it.
type WireCoord struct {
	Vec                       []float64
	Error, Adjustment, Height float64
}

type wireCoordinate struct {
	Node, Segment string
	Coord         WireCoord
}

// CoordOf is the coordinate for clients.
func CoordOf(c vivaldi.Coord) WireCoord {
	return WireCoord{c.Vec[:], c.Error, c.Adjustment, c.Height}
}

func (w *WireCoord) coord() (c vivaldi.Coord, err error) {
	if len(w.Vec) != vivaldi.Dimensions {
		return c, answer.Invalidf("incompatible coordinate: Coord.Vec must have %d numbers", vivaldi.Dimensions)
	}
	c = vivaldi.Coord{Error: w.Error, Adjustment: w.Adjustment, Height: w.Height}
	copy(c.Vec[:], w.Vec)
	if !c.Valid() {
		return c, answer.Invalidf("invalid coordinate: its numbers are out of range")
	}
	return c, nil
}

func (or *Rows) coordinateDatacenters(q *rows.Request) error {
	type row struct {
		Datacenter, AreaID string
		Coordinates        []wireCoordinate
	}
	out := []row{}
	if or.Coordinates != nil {
		all := or.Coordinates.Datacenters()
		for _, dc := range slices.Sorted(maps.Keys(all)) {
			r := row{Datacenter: dc, AreaID: "wan"}
			for _, n := range all[dc] {
				r.Coordinates = append(r.Coordinates, wireCoordinate{Node: n.Node, Coord: CoordOf(n.Coord)})
			}
			out = append(out, r)
		}
	}
	return q.ReplyValue(out)
}

func coordinateNodes(q *rows.Request) error {
	st, err := q.ReadRecords(catalog.RecordCoordinate)
	if err != nil {
		return err
	}
	out := []wireCoordinate{}
	for r := range st.Records(catalog.RecordCoordinate, "") {
		n, at := st.Node(r.Key), vivaldi.Coord{}
		if n == nil || !q.Sees(acl.Node, n.Name) {
			continue
		}
		if at, err = vivaldi.Decode(r.Value); err == nil {
			out = append(out, wireCoordinate{Node: n.Name, Coord: CoordOf(at)})
		}
	}
	return q.ReplyValue(out)
}

func coordinateNode(q *rows.Request) error {
	if q.Rest == "" {
		return rows.ErrNoNode
	}
	if err := q.Allow(acl.Node, q.Rest, acl.Read); err != nil {
		return err
	}
	key := strings.ToLower(q.Rest)
	st, err := q.ReadRecord(catalog.RecordCoordinate, key)
	if err != nil {
		return err
	}
	at, ok := rows.Coordinate(st, key)
	if !ok {
		return errkind.New(errkind.NotFound, "")
	}
	name := q.Rest
	if n := st.Node(key); n != nil && n.Name != name {
		if name = n.Name; !q.Sees(acl.Node, name) { // it was asked for in another case
			return errkind.New(errkind.NotFound, "")
		}
	}
	return q.ReplyValue([]wireCoordinate{{Node: name, Coord: CoordOf(at)}})
}

func (or *Rows) coordinateUpdate(q *rows.Request) error {
	var in struct {
		Datacenter, Node, Segment string
		Coord                     *WireCoord
	}
	if err := q.Decode(&in); err != nil {
		return err
	}
	if err := q.BodyDatacenter(in.Datacenter); err != nil {
		return err
	}
	if in.Node == "" || in.Coord == nil {
		return answer.Invalidf("Must provide Node and Coord")
	}
	at, err := in.Coord.coord()
	if err != nil {
		return err
	}
	name := in.Node
	if n := q.Registry.State().Node(name); n != nil {
		name = n.Name // as it is stored: names of nodes are found in any case
	}
	if err := q.Allow(acl.Node, name, acl.Write); err != nil {
		return err
	}
	if or.Coordinates != nil {
		or.Coordinates.Stage(in.Node, at)
	}
	return q.ReplyEmpty()
}
