// Package route says which counter owns which of the shards, and how ownership passes over in a rollout.
//
// Who should own a shard is rendezvous hashing: the member with the highest hash of (member, shard), weighted. So a
// member that leaves gives its shards to all the others evenly, one that joins takes an even share from each, and no
// other shard moves. Who does own it is a Table: a value that changes by steps, each of which is a record of the log,
// so all members see the same table at the same offset.
//
// A planned move has two steps: Begin (the new owner loads and counts beside the old one, whose numbers are told) and
// Switch (at a batch's end; the old owner stops). A member that is lost has its shards taken at once, by owners that
// are cold: their windows say "at least" until they are warm. At most k moves are under way, whatever happens.
//
// Everything is pure; a Table is never changed in place.
package route

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"github.com/cespare/xxhash/v2"
)

// Member is a counter.
type Member struct {
	Name string
	// Weight is its share; zero means 1.
	Weight float64
	// Draining members keep what they own until it has moved, and get nothing new.
	Draining bool
}

// Nobody is who owns a shard while there is no member.
const Nobody = ""

// Rank returns who should own a shard. Members that drain do not count, unless all of them do.
func Rank(shard int, members []Member) string {
	best, most := Nobody, math.Inf(-1)
	for _, all := range []bool{false, true} {
		for _, m := range members {
			if m.Draining && !all {
				continue
			}
			if score := score(shard, m); score > most || score == most && m.Name < best {
				best, most = m.Name, score
			}
		}
		if best != Nobody {
			break
		}
	}
	return best
}

// Shares is how many of the shards each of these members should own.
func Shares(names []string) map[string]int {
	members := make([]Member, len(names))
	for i, name := range names {
		members[i].Name = name
	}
	out := make(map[string]int, len(names))
	for shard := range usage.Shards {
		out[Rank(shard, members)]++
	}
	return out
}

// score is the logarithmic method of weighted rendezvous: -w / ln(u) for a u in (0, 1) of the pair's hash.
func score(shard int, m Member) float64 {
	h := xxhash.Sum64String(m.Name) ^ uint64(shard)*0x9E3779B97F4A7C15
	h = (h ^ h>>33) * 0xFF51AFD7ED558CCD // finish, or neighbouring shards would rank alike
	h = (h ^ h>>33) * 0xC4CEB9FE1A85EC53
	u := (float64((h^h>>33)>>11) + 0.5) / (1 << 53)
	weight := m.Weight
	if weight <= 0 {
		weight = 1
	}
	return -weight / math.Log(u)
}

// Place is where a shard is.
type Place struct {
	// Owner is whose numbers are told.
	Owner string
	// Next is who is loading it; "" when nobody is.
	Next string
	// Cold says that the owner began with nothing, and has not loaded what was before.
	Cold bool
}

// Table is where all shards are. The zero value has no members.
type Table struct {
	// Version grows with each change.
	Version uint64
	Members []Member // by name
	places  []Place
	wanted  []string // who should own each shard, for these members
}

// At returns where a shard is.
func (t Table) At(shard int) Place {
	if t.places == nil {
		return Place{}
	}
	return t.places[shard]
}

// Owned lists the shards of a member.
func (t Table) Owned(name string) (shards []int) {
	for i, p := range t.places {
		if p.Owner == name {
			shards = append(shards, i)
		}
	}
	return shards
}

// Loading lists the shards that a member loads and counts beside their owner.
func (t Table) Loading(name string) (shards []int) {
	for i, p := range t.places {
		if p.Next == name {
			shards = append(shards, i)
		}
	}
	return shards
}

// Counts reports whether a member counts a shard: as its owner, or beside it.
func (t Table) Counts(name string, shard int) bool {
	p := t.At(shard)
	return name != Nobody && (p.Owner == name || p.Next == name)
}

// Warm is how many shards have an owner that has all of them.
func (t Table) Warm() (n int) {
	for _, p := range t.places {
		if p.Owner != Nobody && !p.Cold {
			n++
		}
	}
	return n
}

func (t Table) change() Table {
	t.Version++
	if t.places == nil {
		t.places = make([]Place, usage.Shards)
	}
	t.places = slices.Clone(t.places)
	return t
}

// WithMembers replaces the list of members. What a lost one owned goes to its next owner at once: to the member that
// was loading it, else to the one that should have it, cold. first says that nothing was counted before, so nobody
// is.
func (t Table) WithMembers(members []Member, first bool) Table {
	t = t.change()
	t.Members = slices.Clone(members)
	slices.SortFunc(t.Members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	t.wanted = rankAll(t.Members)
	for shard := range t.places {
		p := &t.places[shard]
		if p.Next != Nobody && !t.has(p.Next) {
			p.Next = Nobody
		}
		if p.Owner != Nobody && t.has(p.Owner) {
			continue
		}
		// Who was loading it has counted since it began, and lacks what was not loaded yet: cold as well.
		*p = Place{Owner: cmp.Or(p.Next, t.wanted[shard]), Cold: !first}
	}
	return t
}

func rankAll(members []Member) []string {
	wanted := make([]string, usage.Shards)
	for shard := range wanted {
		wanted[shard] = Rank(shard, members)
	}
	return wanted
}

func (t Table) has(name string) bool {
	return slices.ContainsFunc(t.Members, func(m Member) bool { return m.Name == name })
}

// Move is a shard's way to another owner.
type Move struct {
	Shard    int
	From, To string
}

// Plan returns the moves to begin now, so that at most k are under way: the shards whose owner is not who should own
// them, those of draining members first, then by number.
func (t Table) Plan(k int) []Move {
	var moves []Move
	for shard, p := range t.places {
		if p.Next != Nobody {
			k--
			continue
		}
		if to := t.wanted[shard]; to != p.Owner {
			moves = append(moves, Move{shard, p.Owner, to})
		}
	}
	draining := func(m Move) int {
		if slices.ContainsFunc(t.Members, func(o Member) bool { return o.Name == m.From && o.Draining }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(moves, func(a, b Move) int { return cmp.Compare(draining(a), draining(b)) })
	return moves[:min(len(moves), max(k, 0))]
}

// Begin has members load shards and count beside their owners. It begins all of the moves or none.
func (t Table) Begin(moves ...Move) (Table, error) {
	next := t.change()
	for _, m := range moves {
		if err := next.check(m); err != nil {
			return t, err
		}
		if to := next.places[m.Shard].Next; to != Nobody {
			return t, fmt.Errorf("route: shard %d moves to %s already", m.Shard, to)
		}
		next.places[m.Shard].Next = m.To
	}
	return next, nil
}

// Switch makes the members that loaded shards their owners: all of them or none. cold says that they found less than
// all there is.
func (t Table) Switch(cold bool, moves ...Move) (Table, error) {
	next := t.change()
	for _, m := range moves {
		if err := next.check(m); err != nil {
			return t, err
		}
		if to := next.places[m.Shard].Next; to != m.To {
			return t, fmt.Errorf("route: shard %d is loaded by %q, not by %s", m.Shard, to, m.To)
		}
		next.places[m.Shard] = Place{Owner: m.To, Cold: cold}
	}
	return next, nil
}

// Abort ends a move: the owner keeps the shard.
func (t Table) Abort(shard int) Table {
	if t.At(shard).Next == Nobody {
		return t
	}
	t = t.change()
	t.places[shard].Next = Nobody
	return t
}

// Warmed says that a cold owner has loaded what was before.
func (t Table) Warmed(shard int, owner string) (Table, error) {
	if t.At(shard).Owner != owner {
		return t, fmt.Errorf("route: %s does not own shard %d", owner, shard)
	}
	t = t.change()
	t.places[shard].Cold = false
	return t, nil
}

func (t Table) check(m Move) error {
	if m.Shard < 0 || m.Shard >= len(t.places) {
		return fmt.Errorf("route: no shard %d", m.Shard)
	}
	if t.places[m.Shard].Owner != m.From {
		return fmt.Errorf("route: shard %d belongs to %q, not to %q", m.Shard, t.places[m.Shard].Owner, m.From)
	}
	if !t.has(m.To) || m.To == m.From {
		return fmt.Errorf("route: shard %d cannot move to %q", m.Shard, m.To)
	}
	return nil
}

// Append encodes the table.
func (t Table) Append(b []byte) []byte {
	b, mark := pack.Begin(b)
	b = pack.Uint(pack.Uint(b, t.Version), uint64(len(t.Members)))
	for _, m := range t.Members {
		b = pack.Bool(pack.Float(pack.String(b, m.Name), m.Weight), m.Draining)
	}
	number := func(name string) uint64 {
		i := slices.IndexFunc(t.Members, func(m Member) bool { return m.Name == name })
		return uint64(i + 1)
	}
	b = pack.Uint(b, uint64(len(t.places)))
	for _, p := range t.places {
		b = pack.Bool(pack.Uint(pack.Uint(b, number(p.Owner)), number(p.Next)), p.Cold)
	}
	return pack.End(b, mark)
}

// Read decodes what Append wrote.
func Read(outer *pack.Reader) (Table, error) {
	r := outer.Record()
	defer outer.Merge(r)
	t := Table{Version: r.Uint()}
	for range r.Count() {
		m := Member{Name: r.String(), Weight: r.Float(), Draining: r.Bool()}
		if n := len(t.Members); m.Name == Nobody || n > 0 && m.Name <= t.Members[n-1].Name {
			return Table{}, pack.ErrDamaged
		}
		t.Members = append(t.Members, m)
	}
	n := r.Count()
	if n != 0 && n != usage.Shards {
		return Table{}, pack.ErrDamaged
	}
	name := func(i uint64) string {
		if i == 0 || i > uint64(len(t.Members)) {
			return Nobody
		}
		return t.Members[i-1].Name
	}
	for range n {
		t.places = append(t.places, Place{name(r.Uint()), name(r.Uint()), r.Bool()})
	}
	if n > 0 {
		t.wanted = rankAll(t.Members)
	}
	return t, r.Err()
}

// Partition is which of n partitions of a log decides about an event: all with one tenant and source are together, so
// that a batch that is retried in other pieces meets the same memory.
func Partition(tenant, source string, n int) int {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(tenant) // never fails
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(source)
	return int(d.Sum64() % uint64(n))
}
