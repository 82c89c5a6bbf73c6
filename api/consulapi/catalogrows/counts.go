package catalogrows

import (
	"slices"
	"strings"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
)

// What clients show of a fleet in one line each: how many instances are in which state, by service or by node. It is
// counted here, so that nobody asks for 60,000 instances to count them.

// tally counts instances by their worst check, the node's own among them.
type tally struct{ Instances, Passing, Warning, Critical int }

// serviceCount is a service in one line.
type serviceCount struct {
	Name string
	Tags []string
	tally
}

// nodeCount is a node in one line. Status is the worst of its own checks.
type nodeCount struct {
	Node   string
	Status string
	tally
}

func (t *tally) add(h catalog.Health) {
	t.Instances++
	switch h {
	case catalog.Passing:
		t.Passing++
	case catalog.Warning:
		t.Warning++
	default:
		t.Critical++
	}
}

// counted changes with nodes, instances and checks.
func counted(s *statestore.State) uint64 {
	return max(s.NodesIndex(), s.ServicesIndex(), s.ChecksIndex())
}

// ofNode is the worst of a node's own checks.
func ofNode(st *statestore.State, node string) (worst catalog.Health) {
	for c := range st.NodeChecks(node) {
		worst = max(worst, c.Status)
	}
	return worst
}

func ofInstance(st *statestore.State, s *catalog.Service, node catalog.Health) catalog.Health {
	for c := range st.InstanceChecks(s.Node, s.ID) {
		node = max(node, c.Status)
	}
	return node
}

// countServices counts the instances of each service that the caller may read, on nodes that they may read.
func countServices(q *rows.Request) error {
	st, err := q.Read(registry.Subject{Topic: registry.TopicCatalog}, counted)
	if err != nil {
		return err
	}
	nodes := map[string]catalog.Health{}
	out := []serviceCount{}
	for name := range st.ServiceNames() {
		if !q.Sees(acl.Service, name.Name) {
			continue
		}
		row := serviceCount{Name: name.Name, Tags: slices.Clip(append([]string{}, name.Tags...))}
		for s := range st.Instances(name.Name) {
			if !q.Sees(acl.Node, s.Node) {
				continue
			}
			key := strings.ToLower(s.Node)
			health, known := nodes[key]
			if !known {
				health = ofNode(st, s.Node)
				nodes[key] = health
			}
			row.add(ofInstance(st, s, health))
		}
		out = append(out, row)
	}
	q.TellFiltered()
	return q.ReplyValue(out)
}

// countNodes counts the instances on each node that the caller may read, of services that they may read.
func countNodes(q *rows.Request) error {
	st, err := q.Read(registry.Subject{Topic: registry.TopicCatalog}, counted)
	if err != nil {
		return err
	}
	out := []nodeCount{}
	for n := range st.Nodes() {
		if !q.Sees(acl.Node, n.Name) {
			continue
		}
		health := ofNode(st, n.Name)
		row := nodeCount{Node: n.Name, Status: health.String()}
		for s := range st.ServicesOfNode(n.Name) {
			if q.Sees(acl.Service, s.Name) {
				row.add(ofInstance(st, s, health))
			}
		}
		out = append(out, row)
	}
	q.TellFiltered()
	return q.ReplyValue(out)
}
