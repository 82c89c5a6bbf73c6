// Package snapfile reads a snapshot that a Consul server saved, and answers from it the
// questions that migrate asks a running one: a Source stands in the place of the network.
//
// The layout is the documented one: a gzipped tar of meta.json, state.bin and SHA256SUMS; state.bin
// is a header object and then, for each object of the state, one byte that says its type and the
// object in MessagePack. Types that are not known here are counted and named, never an error.
//
// The file may come from anywhere: the sums are compared first, and the state, one object of it and
// the number of values in all are bounded. A Source is read-only after Open and safe for concurrent use.
package snapfile

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"corbel.dev/corbel/kit/archive"
	"corbel.dev/corbel/kit/errkind"
)

// The bounds of a file. A state larger than these is brought over by the API instead.
const (
	maxStateBytes  = 4 << 30
	maxObjectBytes = 32 << 20 // far above the largest value that Consul takes by default
	maxDepth       = 64
	maxValues      = 64 << 20 // over all objects: 200,000 instances have about 15 million
)

// object is anything of the API.
type object = map[string]any

// host is a node with what stands on it.
type host struct {
	fields   object
	services map[string]object // by id
	checks   []object
	agent    bool // it has serfHealth
}

// kind is how objects of one type are treated.
type kind struct {
	name string
	take func(*Source, object) error // nil: left out, and why says why
	why  string
}

// Source is the state of a snapshot.
type Source struct {
	meta  archive.Meta
	tally tally

	pairs    []object
	nodes    map[string]*host
	locks    int // keys that a session holds
	acl      map[string][]object
	policies map[string]string // names by id
	roles    map[string]string
	entries  map[string][]object // by kind
	legacy   []object            // intentions of before config entries
	queries  []object
}

// tally is what was counted while a snapshot was read.
type tally struct {
	counts  map[byte]int
	sizes   map[byte]int // bytes of the objects, with the byte of their type
	keys    []keySize
	damaged map[byte]int // objects of a type that is known and could not be read
	first   map[byte]error
	peered  int // registrations that came from another cluster's peer
	expired int // tokens whose time was over
}

// Open reads a file that `consul snapshot save` made.
func Open(path string) (*Source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	spool, err := os.CreateTemp("", "corbel-import-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = spool.Close()
		_ = os.Remove(spool.Name()) // it holds secrets, and nobody needs it any more
	}()
	meta, err := archive.Read(f, spool, maxStateBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	s, err := Parse(spool)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.meta = *meta
	return s, nil
}

// IsConsul tells whether a state.bin begins as one of Consul's: with an object that holds LastIndex.
func IsConsul(in io.Reader) bool {
	raw, err := (&framer{in: bufio.NewReaderSize(in, 4096), values: 64, limit: 4096}).next()
	if err != nil {
		return false
	}
	head, err := decode(raw)
	_, has := head["LastIndex"]
	return err == nil && has
}

// Parse reads a state.bin.
func Parse(in io.Reader) (*Source, error) {
	s := &Source{tally: tally{
		counts: map[byte]int{}, sizes: map[byte]int{}, damaged: map[byte]int{}, first: map[byte]error{},
	},
		nodes: map[string]*host{}, acl: map[string][]object{},
		policies: map[string]string{}, roles: map[string]string{}, entries: map[string][]object{}}
	r := bufio.NewReaderSize(in, 64<<10)
	f := &framer{in: r, values: maxValues, limit: maxObjectBytes}
	raw, err := f.next()
	if err != nil {
		return nil, errkind.E(errkind.Corrupt, "read the head of the state", err)
	}
	if head, err := decode(raw); err != nil || head["LastIndex"] == nil {
		return nil, errkind.New(errkind.Corrupt,
			"the state does not begin as one that Consul saved; a snapshot of Corbel's goes to `corbel snapshot restore`")
	}
	for {
		t, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			s.linkNames()
			return s, nil
		}
		if err != nil {
			return nil, err
		}
		n := s.total()
		raw, err := f.next()
		if err != nil {
			return nil, errkind.E(errkind.Corrupt, fmt.Sprintf("object %d, of type %d", n+1, t), err)
		}
		s.tally.counts[t]++
		s.tally.sizes[t] += 1 + len(raw)
		k, known := kinds[t]
		if !known || k.take == nil {
			continue
		}
		o, err := decode(raw)
		if err == nil {
			err = k.take(s, o)
		}
		if err == nil && t == typeKVS {
			s.tally.keys = append(s.tally.keys, keySize{text(o, "Key"), 1 + len(raw)})
		}
		if err != nil {
			if s.tally.damaged[t]++; s.tally.first[t] == nil {
				s.tally.first[t] = err
			}
		}
	}
}

func (s *Source) total() (n int) {
	for _, c := range s.tally.counts {
		n += c
	}
	return n
}

// kinds are the types of objects that are known.
var kinds = map[byte]kind{
	0:       {name: "registrations", take: (*Source).register},
	typeKVS: {name: "keys", take: (*Source).pair},
	3:       {name: "sessions", why: "sessions and the locks that they hold do not move: clients make new ones"},
	4:       {name: "legacy ACLs", why: "Consul has not used them since version 1.11"},
	5:       {name: "tombstones", why: "they only serve queries that were blocking there"},
	6:       {name: "coordinates", why: "agents measure them again"},
	7:       {name: "prepared queries", take: (*Source).query},
	9: {name: "autopilot", why: "these servers have a configuration of their own: `corbel operator autopilot " +
		"set-config`"},
	11: {name: "ACL bootstrap", why: "whether ACLs were bootstrapped is each cluster's own"},
	12: {name: "intentions", take: (*Source).intention},
	13: {name: "certificate authority", why: "its keys stay there: proxies get new certificates here"},
	14: {name: "certificate authority", why: "its keys stay there: proxies get new certificates here"},
	15: {name: "certificate authority", why: "its keys stay there: proxies get new certificates here"},
	16: {name: "indexes", why: "indexes are each cluster's own"},
	17: {name: "tokens", take: acl("tokens")},
	19: {name: "policies", take: acl("policies")},
	22: {name: "config entries", take: (*Source).entry},
	23: {name: "roles", take: acl("roles")},
	25: {name: "binding rules", take: acl("binding-rules")},
	27: {name: "auth methods", take: acl("auth-methods")},
	29: {name: "chunking state", why: "it belongs to writes that were under way"},
	30: {name: "federation states", why: "datacenters are joined anew"},
	31: {name: "system metadata", why: "it belongs to Consul's own upgrades"},
	32: {name: "virtual IPs", why: "addresses are given anew"},
	33: {name: "virtual IPs", why: "addresses are given anew"},
	35: {name: "peerings", why: "peerings are set up anew"},
	38: {name: "peerings", why: "peerings are set up anew"},
	40: {name: "peerings", why: "peerings are set up anew"},
}

// Index is the index of the state.
func (s *Source) Index() uint64 { return s.meta.Index }

// Notes say what is in the file and does not come over, one line each.
func (s *Source) Notes() []string {
	var notes []string
	merged := map[string]int{} // types with one name
	for t, n := range s.tally.counts {
		merged[kinds[t].name] += n
	}
	said := map[string]bool{}
	for _, t := range slices.Sorted(maps.Keys(s.tally.counts)) {
		k, known := kinds[t]
		switch {
		case !known:
			notes = append(notes, fmt.Sprintf("%d objects of type %d are not known here and were left out", s.tally.counts[t],
				t))
		case k.take == nil && !said[k.name]:
			said[k.name] = true
			notes = append(notes, fmt.Sprintf("%s (%d) were left out: %s", k.name, merged[k.name], k.why))
		}
		if n := s.tally.damaged[t]; n > 0 {
			notes = append(notes, fmt.Sprintf("%d of %d %s could not be read and were left out, the first because: %v", n,
				s.tally.counts[t], k.name, s.tally.first[t]))
		}
	}
	if s.locks > 0 {
		notes = append(notes, fmt.Sprintf("%d keys were locked by a session: they come over unlocked", s.locks))
	}
	if s.tally.expired > 0 {
		notes = append(notes, fmt.Sprintf("%d tokens had expired and were left out", s.tally.expired))
	}
	if s.tally.peered > 0 {
		notes = append(notes, fmt.Sprintf("%d registrations came from peers and were left out", s.tally.peered))
	}
	return notes
}

// Complete tells whether all objects of the types that come over could be read.
func (s *Source) Complete() bool { return len(s.tally.damaged) == 0 }

// span prints a number of nanoseconds as the API prints durations; anything else stays.
func span(v any) any {
	n, ok := whole(v)
	if !ok {
		return v
	}
	return time.Duration(n).String()
}

func whole(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case uint64:
		return int64(min(n, 1<<62)), true
	}
	return 0, false
}

// bytesOf is a value of bytes, which older encodings write as text.
func bytesOf(v any) []byte {
	switch v := v.(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	return nil
}

func (s *Source) pair(o object) error {
	key, ok := o["Key"].(string)
	if !ok || key == "" {
		return errors.New("a key without a name")
	}
	if text(o, "Session") != "" {
		s.locks++
	}
	flags := o["Flags"]
	if flags == nil {
		flags = 0
	}
	s.pairs = append(s.pairs, object{"Key": key, "Flags": flags,
		"Value": base64.StdEncoding.EncodeToString(bytesOf(o["Value"]))})
	return nil
}
