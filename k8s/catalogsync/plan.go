package catalogsync

import (
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/k8s"
)

// MaxOps bounds a transaction; the API takes 128.
const MaxOps = 64

// Op is one operation of a transaction: the instance is written with its check, or deleted, or (with neither) the
// node is written.
type Op struct {
	Set    *Instance
	Delete *Instance
}

// Catalog is what the catalog has of the sync's node: its marked instances, in any order.
type Catalog struct {
	HasNode   bool
	Instances []Instance
}

// Plan are the transactions that make have what want says. Services of held are left as they are: the catalog refuses
// what is wanted of them.
func Plan(want []Instance, have *Catalog, held map[string]bool) (txns [][]Op) {
	was := make(map[string]*Instance, len(have.Instances))
	for i := range have.Instances {
		was[have.Instances[i].ID] = &have.Instances[i]
	}
	sets, gone := map[string][]Op{}, map[string][]Op{}
	wanted := make(map[string]bool, len(want))
	for i := range want {
		w := &want[i]
		wanted[w.ID] = true
		if old := was[w.ID]; old == nil || !old.Equal(w) {
			sets[w.Name] = append(sets[w.Name], Op{Set: w})
		}
	}
	for i := range have.Instances {
		if old := &have.Instances[i]; !wanted[old.ID] {
			gone[old.Name] = append(gone[old.Name], Op{Delete: old})
		}
	}
	var ops []Op
	for _, group := range []map[string][]Op{sets, gone} {
		for _, name := range slices.Sorted(maps.Keys(group)) {
			if !held[name] {
				byID(group[name])
				ops = append(ops, group[name]...)
			}
		}
	}
	if !have.HasNode && slices.ContainsFunc(ops, func(o Op) bool { return o.Set != nil }) {
		ops = slices.Insert(ops, 0, Op{})
	}
	return pack(ops)
}

// pack fills transactions: a written instance is two operations of the API, its own and its check's.
func pack(ops []Op) (txns [][]Op) {
	n := MaxOps
	for _, op := range ops {
		cost := 1
		if op.Set != nil {
			cost = 2
		}
		if n+cost > MaxOps {
			txns, n = append(txns, nil), 0
		}
		n += cost
		txns[len(txns)-1] = append(txns[len(txns)-1], op)
	}
	return txns
}

// Apply is what the catalog has after txns.
func Apply(have *Catalog, txns [][]Op) *Catalog {
	out := &Catalog{HasNode: have.HasNode}
	now := map[string]Instance{}
	for _, i := range have.Instances {
		now[i.ID] = i
	}
	for _, txn := range txns {
		for _, op := range txn {
			switch {
			case op.Set != nil:
				now[op.Set.ID] = *op.Set
			case op.Delete != nil:
				delete(now, op.Delete.ID)
			default:
				out.HasNode = true
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		out.Instances = append(out.Instances, now[id])
	}
	return out
}

func byID(ops []Op) {
	id := func(o Op) string {
		if o.Set != nil {
			return o.Set.ID
		}
		return o.Delete.ID
	}
	slices.SortFunc(ops, func(a, b Op) int { return strings.Compare(id(a), id(b)) })
}

// MirrorLabel marks services of the cluster that stand for one of the catalog. What lacks it is never changed.
const MirrorLabel = "consul"

// MirrorOptions are how services of the catalog appear in the cluster.
type MirrorOptions struct {
	Namespace string // in which they are made
	Prefix    string // before their names
	Tag       string // services with it came from the cluster
	Domain    string // of the catalog's DNS
}

// Write is one change of the cluster: Create, Update or Delete holds the service.
type Write struct{ Create, Update, Delete *k8s.Service }

// Mirrors are the changes that let the cluster resolve the services of the catalog (name to tags), creations first.
// have are all services of the namespace.
func Mirrors(services map[string][]string, have []k8s.Service, o *MirrorOptions) (list []Write, problems []Problem) {
	was := make(map[string]*k8s.Service, len(have))
	for i := range have {
		was[have[i].Metadata.Name] = &have[i]
	}
	want := map[string]bool{}
	for _, service := range slices.Sorted(maps.Keys(services)) {
		if o.Tag != "" && slices.Contains(services[service], o.Tag) {
			continue
		}
		name := strings.ToLower(o.Prefix + service)
		if !label(name) {
			problems = append(problems, Problem{service, "no service of Kubernetes can have the name " + name})
			continue
		}
		if want[name] {
			problems = append(problems, Problem{service, "another service has the name " + name})
			continue
		}
		target := strings.ToLower(service) + ".service." + o.Domain
		old := was[name]
		switch {
		case old != nil && old.Metadata.Labels[MirrorLabel] != "true":
			problems = append(problems, Problem{service, "the cluster has a service " + name + " of its own"})
			continue
		case old == nil:
			list = append(list, Write{Create: mirror(name, target, o.Namespace, "")})
		case old.Spec.Type != k8s.ExternalName || old.Spec.ExternalName != target:
			list = append(list, Write{Update: mirror(name, target, o.Namespace, old.Metadata.ResourceVersion)})
		}
		want[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if s := was[name]; s.Metadata.Labels[MirrorLabel] == "true" && !want[name] && s.Metadata.DeletionTimestamp == "" {
			list = append(list, Write{Delete: s})
		}
	}
	rank := func(w Write) int {
		if w.Delete != nil {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b Write) int { return rank(a) - rank(b) })
	return list, problems
}

func mirror(name, target, namespace, version string) *k8s.Service {
	return &k8s.Service{APIVersion: "v1", Kind: "Service", Metadata: k8s.Meta{Name: name, Namespace: namespace,
		ResourceVersion: version, Labels: map[string]string{MirrorLabel: "true"}},
		Spec: k8s.ServiceSpec{Type: k8s.ExternalName, ExternalName: target}}
}

// label says whether a service of Kubernetes can have the name (RFC 1035).
func label(name string) bool {
	if len(name) == 0 || len(name) > 63 || name[0] < 'a' || name[0] > 'z' || name[len(name)-1] == '-' {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
