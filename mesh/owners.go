package mesh

import (
	"cmp"
	"slices"
	"sort"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/pack"
)

// Owners are the services that have rules of their own. The value that all others share says at which State it holds,
// by naming those that it does not hold for: so whatever reaches a proxy first, from whichever server, it never takes
// what was not in force for its service.
//
// Of each name there are three bytes of a hash. A service that is taken for one of them goes by the subject of its own,
// whose value is what holds for any service.
type Owners struct {
	hashes []byte // ownerBytes each, in order
	all    bool   // there are more than maxOwners: nobody shares
}

const (
	ownerBytes = 3
	// maxOwners bounds what a change for every destination carries to each agent: 48 kB.
	maxOwners = 1 << 14
)

// OwnersOf lists services.
func OwnersOf(services []string) Owners {
	if len(services) > maxOwners {
		return Owners{all: true}
	}
	list := make([]uint32, len(services))
	for i, s := range services {
		list[i] = ownerHash(s)
	}
	slices.Sort(list)
	var o Owners
	for _, h := range slices.Compact(list) {
		o.hashes = append(o.hashes, byte(h>>16), byte(h>>8), byte(h))
	}
	return o
}

// Have reports whether a service is one of them, or cannot be told from one.
func (o Owners) Have(service string) bool {
	if o.all || len(o.hashes) == 0 {
		return o.all
	}
	h := ownerHash(service)
	_, found := sort.Find(len(o.hashes)/ownerBytes, func(i int) int {
		b := o.hashes[i*ownerBytes:]
		return cmp.Compare(h, uint32(b[0])<<16|uint32(b[1])<<8|uint32(b[2]))
	})
	return found
}

// ownerHash is FNV-1a, folded to 24 bits.
func ownerHash(service string) uint32 {
	h := uint32(2166136261)
	for i := range len(service) {
		h = (h ^ uint32(service[i])) * 16777619
	}
	return h>>24 ^ h&(1<<24-1)
}

// append appends nothing where nobody has rules of its own.
func (o Owners) append(b []byte) []byte {
	if !o.all && len(o.hashes) == 0 {
		return b
	}
	return pack.Bytes(pack.Uint(b, kindOf(o.all)), o.hashes)
}

// What a list begins with.
const (
	someOwners = 1
	allOwners  = 2
)

func kindOf(all bool) uint64 {
	if all {
		return allOwners
	}
	return someOwners
}

// readOwners reads what append wrote; false where it cannot. A later release may write more behind it.
func readOwners(r *pack.Reader) (o Owners, ok bool) {
	kind := r.Uint()
	o = Owners{all: kind == allOwners, hashes: r.Bytes()}
	some := kind == someOwners && len(o.hashes) > 0 && len(o.hashes)%ownerBytes == 0
	return o, r.Err() == nil && (o.all || some)
}

// Owners lists the services that intentions name.
func (m *Maker) Owners() Owners {
	var list []string
	prefix := entry.Key(entry.ServiceIntentions, "")
	for r := range m.State.Records(catalog.RecordConfigEntry, prefix) {
		if name := r.Key[len(prefix):]; name != "*" {
			list = append(list, name)
		}
	}
	return OwnersOf(list)
}
