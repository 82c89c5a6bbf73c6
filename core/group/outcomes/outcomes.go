// Package outcomes keeps what became of entries of the Raft log that the library tells nobody about, under their places
// in it, for those who wait for them after their leader lost its place.
package outcomes

import (
	"reflect"
	"sync"

	"github.com/hashicorp/raft"
)

// Place is where a leader put an entry: nobody else puts another one there in the same term.
type Place struct{ Index, Term uint64 }

// PlaceOf returns where the library put the entry of a future that has ended; false when it was never put anywhere.
// The library tells the index alone, and the term is half of the name.
func PlaceOf(f raft.ApplyFuture) (Place, bool) {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return Place{}, false
	}
	log := v.Elem().FieldByName("log")
	if !log.IsValid() || log.Kind() != reflect.Struct {
		return Place{}, false
	}
	index, term := log.FieldByName("Index"), log.FieldByName("Term")
	if !index.IsValid() || !term.IsValid() || !index.CanUint() || !term.CanUint() {
		return Place{}, false
	}
	at := Place{index.Uint(), term.Uint()}
	return at, at.Index != 0 && at.Term != 0
}

// most bounds what is kept of entries that were applied without anybody to tell: few of them
// have somebody who looks, and the others are those that the next leader wrote until he does.
const most = 64

// Kept holds what the machine made of the newest entries that it applied while somebody of this process waited for
// one, and the library had nobody to tell. It is filled by the goroutine that applies, and read by any.
type Kept struct {
	mu   sync.Mutex // guards kept
	kept []madeOf
}

type madeOf struct {
	at      Place
	results []any
}

// Note keeps what was made of an entry.
func (o *Kept) Note(at Place, results []any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.kept) >= most {
		o.kept = append(o.kept[:0], o.kept[1:]...)
	}
	o.kept = append(o.kept, madeOf{at, results})
}

// Of returns what was made of the entry at a place.
func (o *Kept) Of(at Place) ([]any, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.kept {
		if m.at == at {
			return m.results, true
		}
	}
	return nil, false
}

// Forget drops what nobody waits for any more.
func (o *Kept) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = nil
}
