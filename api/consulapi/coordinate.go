package consulapi

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
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

var coordinateRoutes = []route{
	{"GET", "/v1/coordinate/datacenters", read, acl.NoResource, coordinateDatacenters},
	{"GET", "/v1/coordinate/nodes", read, acl.Node, coordinateNodes},
	{"GET", "/v1/coordinate/node/", read, acl.Node, coordinateNode},
	{"PUT", "/v1/coordinate/update", write, acl.Node, coordinateUpdate},
}

type wireCoord struct {
	Vec                       []float64
	Error, Adjustment, Height float64
}

type wireCoordinate struct {
	Node, Segment string
	Coord         wireCoord
}

func coordOf(c vivaldi.Coord) wireCoord {
	return wireCoord{c.Vec[:], c.Error, c.Adjustment, c.Height}
}

func (w *wireCoord) coord() (c vivaldi.Coord, err error) {
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

// coordinate reads a node's coordinate from a State; false when none is known.
func coordinate(st *catalog.State, node string) (vivaldi.Coord, bool) {
	r := st.Record(catalog.RecordCoordinate, strings.ToLower(node))
	if r == nil {
		return vivaldi.Coord{}, false
	}
	c, err := vivaldi.Decode(r.Value)
	return c, err == nil
}

func coordinateDatacenters(q *request) error {
	type row struct {
		Datacenter, AreaID string
		Coordinates        []wireCoordinate
	}
	out := []row{}
	if q.api.cfg.Coordinates != nil {
		all := q.api.cfg.Coordinates.Datacenters()
		for _, dc := range slices.Sorted(maps.Keys(all)) {
			r := row{Datacenter: dc, AreaID: "wan"}
			for _, n := range all[dc] {
				r.Coordinates = append(r.Coordinates, wireCoordinate{Node: n.Node, Coord: coordOf(n.Coord)})
			}
			out = append(out, r)
		}
	}
	return q.replyValue(out)
}

func coordinateNodes(q *request) error {
	st, err := q.read(registry.RecordsSubject(catalog.RecordCoordinate),
		func(s *catalog.State) uint64 { return s.RecordsIndex(catalog.RecordCoordinate) })
	if err != nil {
		return err
	}
	out := []wireCoordinate{}
	for r := range st.Records(catalog.RecordCoordinate, "") {
		n, at := st.Node(r.Key), vivaldi.Coord{}
		if n == nil || !q.sees(acl.Node, n.Name) {
			continue
		}
		if at, err = vivaldi.Decode(r.Value); err == nil {
			out = append(out, wireCoordinate{Node: n.Name, Coord: coordOf(at)})
		}
	}
	return q.replyValue(out)
}

func coordinateNode(q *request) error {
	if q.rest == "" {
		return errMissingNode
	}
	if err := q.allow(acl.Node, q.rest, acl.Read); err != nil {
		return err
	}
	key := strings.ToLower(q.rest)
	st, err := q.read(registry.RecordSubject(catalog.RecordCoordinate, key),
		func(s *catalog.State) uint64 { return s.RecordIndex(catalog.RecordCoordinate, key) })
	if err != nil {
		return err
	}
	at, ok := coordinate(st, key)
	if !ok {
		return errkind.New(errkind.NotFound, "")
	}
	name := q.rest
	if n := st.Node(key); n != nil && n.Name != name {
		if name = n.Name; !q.sees(acl.Node, name) { // it was asked for in another case
			return errkind.New(errkind.NotFound, "")
		}
	}
	return q.replyValue([]wireCoordinate{{Node: name, Coord: coordOf(at)}})
}

func coordinateUpdate(q *request) error {
	var in struct {
		Datacenter, Node, Segment string
		Coord                     *wireCoord
	}
	if err := q.decode(&in); err != nil {
		return err
	}
	if err := q.bodyDatacenter(in.Datacenter); err != nil {
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
	if n := q.api.cfg.Registry.State().Node(name); n != nil {
		name = n.Name // as it is stored: names of nodes are found in any case
	}
	if err := q.allow(acl.Node, name, acl.Write); err != nil {
		return err
	}
	if q.api.cfg.Coordinates != nil {
		q.api.cfg.Coordinates.Stage(in.Node, at)
	}
	return q.replyEmpty()
}

// nearAgent is ?near= for the agent that was asked, which writes its own name in before it passes the request on.
const nearAgent = "_agent"

// near is the node that a list is to be sorted by; "" for none.
func (q *request) near() string {
	if q.q == "" {
		return ""
	}
	if v, _ := q.q.Get("near"); v != nearAgent {
		return v
	}
	return q.api.cfg.Identity.NodeName
}

// nameNear writes this agent's name for _agent into a request that another process will answer.
func (q *request) nameNear() {
	if v, _ := q.q.Get("near"); v == nearAgent {
		query := q.r.URL.Query()
		query.Set("near", q.api.cfg.Identity.NodeName)
		q.r.URL.RawQuery = query.Encode()
	}
	if strings.HasSuffix(q.rest, "/execute") && !q.q.Has(askedParam) { // the prepared query itself may say _agent
		query := q.r.URL.Query()
		query.Set(askedParam, q.api.cfg.Identity.NodeName)
		q.r.URL.RawQuery = query.Encode()
	}
}

// sorted orders a list by distance from the node that ?near= names; objects of nodes whose
// place is unknown come last, and equals stay as they were. Without it, or when nobody knows where that
// node lies, the list is as it was.
func sorted[T any](q *request, st *catalog.State, list iter.Seq[T], node func(T) string) iter.Seq[T] {
	from := q.near()
	if from == "" {
		return list
	}
	distance := Distances(st, from)
	if distance == nil {
		return list
	}
	type row struct {
		value T
		at    time.Duration
	}
	var rows []row
	for v := range list {
		rows = append(rows, row{v, distance(node(v))})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.at, b.at) })
	return func(yield func(T) bool) {
		for _, r := range rows {
			if !yield(r.value) {
				return
			}
		}
	}
}

// Distances estimates the round trips from one node to others; nil when nobody knows where it lies. To a node
// whose place is unknown it is the longest there is.
func Distances(st *catalog.State, from string) func(node string) time.Duration {
	origin, ok := coordinate(st, from)
	if !ok {
		return nil
	}
	known := map[string]time.Duration{}
	return func(node string) time.Duration {
		d, ok := known[node]
		if !ok {
			d = math.MaxInt64
			if at, ok := coordinate(st, node); ok {
				d = origin.Distance(&at)
			}
			known[node] = d
		}
		return d
	}
}

func nodeOfNode(n *catalog.Node) string { return n.Name }

func nodeOfService(s *catalog.Service) string { return s.Node }

func nodeOfCheck(c *catalog.Check) string { return c.Node }

// replyList is replyShared, but for lists in the order of one node, which are encoded for this request alone:
// coordinates change without the list's index.
func (q *request) replyList(key string, index uint64, encode func([]byte) []byte) error {
	if q.near() != "" {
		return q.replyScratch(encode(q.buffer()))
	}
	return q.replyShared(key, index, encode)
}
