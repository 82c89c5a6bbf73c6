package jobsagentplane

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/jobs/client/tasktemplate"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/errkind"
)

// native are the instances of a native service: a name, or name?choose=n|key.
func (s *source) native(ctx context.Context, name string, after uint64) (v tasktemplate.Value, err error) {
	name, choose, chosen := strings.Cut(name, "?choose=")
	count, key := 0, ""
	if chosen {
		number, rest, ok := strings.Cut(choose, "|")
		if count, err = strconv.Atoi(number); err != nil || !ok || count < 1 {
			return v, errkind.Errorf(errkind.Invalid, "nomadService: %q is no number of instances", number)
		}
		key = rest
	}
	if err := s.wait(ctx, after); err != nil {
		return v, err
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	ask := &noderpc.InstancesAsk{Key: s.agent.client.Key(), Alloc: s.work.Workload.ID, Name: name}
	answer, err := servers{s.d}.Call(ctx, noderpc.MethodInstances, noderpc.Bytes(ask))
	if err != nil {
		return v, err
	}
	m, err := noderpc.Read[noderpc.Instances](answer)
	if err != nil {
		return v, err
	}
	if chosen {
		m.List = nearest(m.List, key)[:min(count, len(m.List))]
	}
	list := []tasktemplate.Instance{}
	for i := range m.List {
		r := &m.List[i]
		list = append(list, tasktemplate.Instance{ID: r.ID, Name: r.Name, Address: r.Address, Port: r.Port, Tags: r.Tags,
			Status: "passing"})
	}
	return tasktemplate.Value{Data: list, Found: true, Index: max(m.Index, 2)}, nil
}

// nearest orders instances by the hash of their ID with a key, as the API does for choose: who has the same key gets
// the same ones.
func nearest(list []noderpc.Registration, key string) []noderpc.Registration {
	weight := func(r *noderpc.Registration) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(r.ID + "\x00" + key)) // it takes everything
		return h.Sum64()
	}
	slices.SortFunc(list, func(a, b noderpc.Registration) int {
		return cmp.Or(cmp.Compare(weight(&a), weight(&b)), strings.Compare(a.ID, b.ID))
	})
	return list
}
