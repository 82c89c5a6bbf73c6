package namerows

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/kit/errkind"
)

// serviceStub is a service in the list: its name and all tags of its instances.
type serviceStub struct {
	ServiceName string
	Tags        []string
}

// ofNamespace is a part of the list.
type ofNamespace struct {
	Namespace string
	Services  []*serviceStub
}

func services(q *request) error {
	return q.Read(nomadrows.Whole(nomadrows.Services, func(v nomadrows.View) (any, error) {
		list := []*ofNamespace{}
		for _, n := range v.Namespaces() {
			if !q.Sees(n.Name, nomadrows.ReadJob) {
				continue
			}
			if part := stubs(v, n.Name); len(part.Services) > 0 {
				list = append(list, part)
			}
		}
		return list, nil
	}))
}

func stubs(v nomadrows.View, namespace string) *ofNamespace {
	by := map[string]*serviceStub{}
	for s := range v.Services(namespace) {
		stub := by[s.ServiceName]
		if stub == nil {
			stub = &serviceStub{ServiceName: s.ServiceName, Tags: []string{}}
			by[s.ServiceName] = stub
		}
		stub.Tags = append(stub.Tags, s.Tags...)
	}
	part := &ofNamespace{Namespace: namespace}
	for _, stub := range by {
		slices.Sort(stub.Tags)
		stub.Tags = slices.Compact(stub.Tags)
		part.Services = append(part.Services, stub)
	}
	slices.SortFunc(part.Services, func(a, b *serviceStub) int { return strings.Compare(a.ServiceName, b.ServiceName) })
	return part
}

func service(q *request) error {
	count, key, choose, err := choice(q.Query.Value("choose"))
	if err != nil {
		return err
	}
	return q.Read(nomadrows.Whole(nomadrows.Services, func(v nomadrows.View) (any, error) {
		list := []*nomadrows.Service{}
		for _, n := range v.Namespaces() {
			if !q.Sees(n.Name, nomadrows.ReadJob) {
				continue
			}
			for s := range v.Services(n.Name) {
				if s.ServiceName == q.Args["name"] {
					list = append(list, s)
				}
			}
		}
		if choose {
			list = rendezvous(list, key)
			return list[:min(count, len(list))], nil
		}
		return nomadrows.List(q, nomadrows.Listing[*nomadrows.Service]{
			Items: slices.Values(list),
			Name:  func(s *nomadrows.Service) string { return s.ID },
			Show:  func(s *nomadrows.Service) any { return s },
		})
	}))
}

// choice reads "n|key".
func choice(text string) (count int, key string, choose bool, err error) {
	if text == "" {
		return 0, "", false, nil
	}
	number, key, ok := strings.Cut(text, "|")
	count, bad := strconv.Atoi(number)
	if !ok || bad != nil || count < 1 || key == "" {
		return 0, "", false, nomadrows.BadRequest("choose must be a number and a key, as in 2|web")
	}
	return count, key, true, nil
}

// rendezvous orders instances by the hash of their ID with a key: who has the same key gets the same ones, whoever
// else comes and goes.
func rendezvous(list []*nomadrows.Service, key string) []*nomadrows.Service {
	weight := func(s *nomadrows.Service) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(s.ID + "\x00" + key)) // it takes everything
		return h.Sum64()
	}
	slices.SortFunc(list, func(a, b *nomadrows.Service) int {
		return cmp.Or(cmp.Compare(weight(a), weight(b)), strings.Compare(a.ID, b.ID))
	})
	return list
}

func deleteService(q *request) error {
	w, err := q.Settings.Delete(q.Ctx(), nomadrows.Services, q.Namespace, q.Args["id"])
	if errkind.Is(err, errkind.NotFound) {
		return nomadrows.Failed("service registration not found")
	}
	if err != nil {
		return err
	}
	return q.Wrote(w.Index, nil)
}
