package snapfile

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

const typeKVS = 2

type keySize struct {
	key  string
	size int
}

// typeNames are the names that Consul's own tools print.
var typeNames = map[byte]string{0: "Register", typeKVS: "KVS", 3: "Session", 5: "Tombstone", 6: "CoordinateBatchUpdate",
	7: "PreparedQuery", 9: "AutopilotRequest",
	12: "Intention", 13: "ConnectCA", 14: "ConnectCAProviderState", 15: "ConnectCAConfig", 16: "Index", 17: "ACLToken",
	19: "ACLPolicy", 22: "ConfigEntry",
	23: "ACLRole", 25: "ACLBindingRule", 27: "ACLAuthMethod", 29: "ChunkingState", 30: "FederationState",
	31: "SystemMetadata", 32: "ServiceVirtualIP", 33: "FreeVirtualIP"}

// Type is how many objects of one type there are, and their bytes in the file.
type Type struct {
	Name        string
	Count, Size int
}

// Types lists what is in the file, the largest first.
func (s *Source) Types() []Type {
	var all []Type
	for _, t := range slices.Sorted(maps.Keys(s.tally.counts)) {
		all = append(all, Type{cmp.Or(typeNames[t], "type "+strconv.Itoa(int(t))), s.tally.counts[t], s.tally.sizes[t]})
	}
	slices.SortStableFunc(all, func(a, b Type) int { return cmp.Compare(b.Size, a.Size) })
	return all
}

// Keys calls f with each key and its bytes in the file.
func (s *Source) Keys(f func(key string, size int)) {
	for _, k := range s.tally.keys {
		f(k.key, k.size)
	}
}
