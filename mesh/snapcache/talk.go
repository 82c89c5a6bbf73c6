package snapcache

import (
	"cmp"
	"slices"

	"corbel.dev/corbel/catalog"
)

// onlyTalk tells whether the change at an index did nothing but that checks say something else with
// the same status. Agents send such changes all the time; the proxies are told nothing by them.
func onlyTalk(c *catalog.Changes, index uint64) bool {
	if len(at(c.Services, index)) > 0 || len(at(c.Nodes, index)) > 0 {
		return false
	}
	checks := at(c.Checks, index)
	for i := range checks {
		before, after := checks[i].Before, checks[i].After
		if before == nil || after == nil || before.Status != after.Status || before.ServiceID != after.ServiceID {
			return false
		}
	}
	return len(checks) > 0
}

// at is the changes with an index; they are in the order of their indexes.
func at[T any](list []catalog.Change[T], index uint64) []catalog.Change[T] {
	find := func(index uint64) int {
		i, _ := slices.BinarySearchFunc(list, index, func(c catalog.Change[T], index uint64) int {
			return cmp.Compare(c.Index, index)
		})
		return i
	}
	return list[find(index):find(index+1)]
}
