package meshmap

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// family is services whose IDs begin with a prefix, in the order of their IDs: all of those that are divided.
type family struct {
	prefix   string
	services []service
	whole    bool // there is no room for its parts
}

func familyOf(services []service) family { return family{prefix: common(services), services: services} }

func eachAlone(all []service) (list []family) {
	for i := range all {
		list = append(list, familyOf(all[i:i+1]))
	}
	return list
}

// families divides services, which are in the order of their IDs, into at most so many families, and the service that
// is looked at, which stands alone. The largest one is divided again and again: at the next sign that divides words
// where there is room for all its parts, else at the next letter. Those that lead to the prefix that is looked at come
// first.
func families(all []service, of Scope, most int) []family {
	looked := func(s service) bool { return of.Service != "" && s.id == of.Service }
	rest := slices.DeleteFunc(slices.Clone(all), looked)
	list := []family{}
	if len(rest) > 0 {
		list = append(list, familyOf(rest))
	}
	for {
		next := largest(list, of.Prefix)
		if next < 0 {
			break
		}
		f, room := list[next], most-len(list)+1
		parts := divide(f, wordEnd)
		if len(parts) > room {
			parts = divide(f, letterEnd)
		}
		if len(parts) > room {
			list[next].whole = true
			continue
		}
		list = slices.Replace(list, next, next+1, parts...)
	}
	if at := slices.IndexFunc(all, looked); at >= 0 {
		list = append(list, familyOf(all[at:at+1]))
	}
	return list
}

// largest is the index of the family to divide next, -1 where none can be.
func largest(list []family, prefix string) int {
	best, bestLeads := -1, false
	for i := range list {
		f := &list[i]
		if len(f.services) == 1 || f.whole {
			continue
		}
		leads := strings.HasPrefix(f.prefix, prefix) || strings.HasPrefix(prefix, f.prefix)
		if best < 0 || leads && !bestLeads || leads == bestLeads && len(f.services) > len(list[best].services) {
			best, bestLeads = i, leads
		}
	}
	return best
}

// divide are the parts of a family whose IDs are the same up to an end behind what they have in common: two at least.
func divide(f family, end func(id string, from int) int) (parts []family) {
	key := func(s service) string { return s.id[:end(s.id, len(f.prefix))] }
	begin := 0
	for i := 1; i <= len(f.services); i++ {
		if i == len(f.services) || key(f.services[i]) != key(f.services[begin]) {
			parts = append(parts, familyOf(f.services[begin:i]))
			begin = i
		}
	}
	return parts
}

// wordEnd is the end of the word that goes on from an index, with the sign that divides it from the next one.
func wordEnd(id string, from int) int {
	if n := strings.IndexAny(id[from:], "-._/:@"); n >= 0 {
		return from + n + 1
	}
	return len(id)
}

// letterEnd is the end of the letter at an index.
func letterEnd(id string, from int) int {
	_, n := utf8.DecodeRuneInString(id[from:])
	return from + n
}

// common is what the IDs of services, which are in order, begin with; it ends within no letter.
func common(all []service) string {
	a, b := all[0].id, all[len(all)-1].id
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for n > 0 && (n < len(a) && !utf8.RuneStart(a[n]) || n < len(b) && !utf8.RuneStart(b[n])) {
		n--
	}
	return a[:n]
}
