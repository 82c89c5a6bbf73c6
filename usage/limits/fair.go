package limits

// Fair is a queue of batches by tenant, served by deficit round robin (Shreedhar, Varghese 1995): each turn gives a
// tenant the same number of bytes, so a tenant's storm delays the others by one turn. Bounded in bytes: all together,
// and a tenant to a share. What does not fit is refused, and the sender is told so: nothing that was taken is
// dropped. One goroutine at a time.
type Fair[T any] struct {
	most, share, quantum int
	bytes                int
	queues               map[string]*line[T]
	ring                 []*line[T] // those that have something, in the order of their turns
}

type line[T any] struct {
	tenant  string
	items   []queued[T]
	bytes   int
	deficit int
	turn    bool // it has been given this turn's bytes
}

type queued[T any] struct {
	item  T
	bytes int
}

// NewFair makes a queue of at most so many bytes, a tenant at most share of them. A turn is quantum bytes.
func NewFair[T any](most, share, quantum int) *Fair[T] {
	return &Fair[T]{most: most, share: share, quantum: max(quantum, 1), queues: map[string]*line[T]{}}
}

// Push queues an item; false refuses it. A tenant's only item may be larger than its share.
func (f *Fair[T]) Push(tenant string, bytes int, item T) bool {
	l := f.queues[tenant]
	if f.bytes+bytes > f.most || l != nil && l.bytes+bytes > f.share {
		return false
	}
	if l == nil {
		l = &line[T]{tenant: tenant}
		f.queues[tenant] = l
		f.ring = append(f.ring, l)
	}
	l.items = append(l.items, queued[T]{item, bytes})
	l.bytes += bytes
	f.bytes += bytes
	return true
}

// Pop takes the next item.
func (f *Fair[T]) Pop() (tenant string, item T, ok bool) {
	for len(f.ring) > 0 {
		l := f.ring[0]
		if !l.turn {
			l.deficit, l.turn = l.deficit+f.quantum, true
		}
		next := l.items[0]
		if next.bytes > l.deficit {
			l.turn = false
			f.ring = append(f.ring[1:], l)
			continue
		}
		l.items[0] = queued[T]{} // what was taken is no longer held
		l.items, l.deficit = l.items[1:], l.deficit-next.bytes
		l.bytes -= next.bytes
		f.bytes -= next.bytes
		if len(l.items) == 0 {
			f.ring = f.ring[1:]
			delete(f.queues, l.tenant)
		}
		return l.tenant, next.item, true
	}
	return "", item, false
}

// Bytes is what is queued, Tenants whose it is.
func (f *Fair[T]) Bytes() int { return f.bytes }

// Tenants is how many tenants have something queued.
func (f *Fair[T]) Tenants() int { return len(f.ring) }
