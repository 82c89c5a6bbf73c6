// Package table is a persistent ordered set: an immutable Table that any number
// of readers share without a lock, and an Edit with which one writer makes the
// next Table by copying only the paths it touches.
//
// Invariants:
//   - A Table never changes. A reader may keep it as long as it likes; what it
//     pins is the difference to the newest one.
//   - Items are ordered by the compare function given to New. Two items that
//     compare equal are the same item: the later one replaces the earlier.
//   - Items are shared by all Tables that hold them: what an item points to must not change.
//   - After Edit.Done the Edit goes on with copies, so that the Table stays as it was.
//
// Small items are what keeps it fast: a batch copies each leaf that it touches, and
// a leaf of pointers has a fifth of the bytes of one whose items carry two keys beside
// the pointer. So items are best pointers to what has its keys within (Find and Seek
// then look for a key without an item to compare with).
//
// Tables are safe for concurrent readers. An Edit belongs to one goroutine. The
// package is pure: no clock, no goroutine, no I/O. The tree is our own (tree.go): the
// library that stood here took two allocations a node, two calls a comparison, and
// half of the time of a registration. A plain map per version would copy everything,
// and a radix tree with watch channels allocates ten times as much.
package table

import "iter"

// Table is an immutable ordered set. The zero value is not usable: make one with New.
type Table[T any] struct {
	compare func(a, b T) int
	root    *node[T] // nil when empty
	length  int
}

// New returns an empty Table ordered by compare (negative, zero, positive as for cmp.Compare).
func New[T any](compare func(a, b T) int) Table[T] { return Table[T]{compare: compare} }

// Len is the number of items.
func (t Table[T]) Len() int { return t.length }

// Get returns the item that compares equal to pivot.
func (t Table[T]) Get(pivot T) (item T, ok bool) {
	for n := t.root; n != nil; {
		i, found := t.search(n, pivot)
		if found {
			return n.items[i], true
		}
		n = n.kid(i)
	}
	return item, false
}

// Find returns the item at which at is zero. at compares what is looked for with an
// item: negative when it comes before the item, positive when it comes after.
func (t Table[T]) Find(at func(item T) int) (item T, ok bool) {
	for n := t.root; n != nil; {
		i, found := n.seek(at)
		if found {
			return n.items[i], true
		}
		n = n.kid(i)
	}
	return item, false
}

// Max returns the last item.
func (t Table[T]) Max() (item T, ok bool) {
	for n := t.root; n != nil; n = n.kid(n.count) {
		item, ok = n.items[n.count-1], true
	}
	return item, ok
}

// Min returns the first item.
func (t Table[T]) Min() (item T, ok bool) {
	for n := t.root; n != nil; n = n.kid(0) {
		item, ok = n.items[0], true
	}
	return item, ok
}

// All yields every item in order.
func (t Table[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) { t.root.walk(yield) }
}

// From yields the items that are not before pivot, in order.
func (t Table[T]) From(pivot T) iter.Seq[T] {
	return func(yield func(T) bool) {
		t.root.walkFrom(func(item T) int { return t.compare(pivot, item) }, yield)
	}
}

// Seek yields the items that are not before the place at which at (see Find) points, in order.
func (t Table[T]) Seek(at func(item T) int) iter.Seq[T] {
	return func(yield func(T) bool) { t.root.walkFrom(at, yield) }
}

// Next returns the first item that is not before pivot.
func (t Table[T]) Next(pivot T) (item T, ok bool) {
	return t.FindNext(func(item T) int { return t.compare(pivot, item) })
}

// FindNext returns the first item of Seek.
func (t Table[T]) FindNext(at func(item T) int) (item T, ok bool) {
	for n := t.root; n != nil; {
		i, found := n.seek(at)
		if found {
			return n.items[i], true
		}
		if i < n.count {
			item, ok = n.items[i], true // unless something below comes first
		}
		n = n.kid(i)
	}
	return item, ok
}

// Around returns the last item that is not behind the place at which at (see Find) points,
// and the first item behind it. Of sets whose items stand for ranges, the former is the
// range that the place is in and the latter is where it ends.
func (t Table[T]) Around(at func(item T) int) (before T, hasBefore bool, after T, hasAfter bool) {
	for n := t.root; n != nil; {
		i, found := n.seek(at)
		if found {
			before, hasBefore = n.items[i], true
			i++
		} else if i > 0 {
			before, hasBefore = n.items[i-1], true
		}
		if i < n.count {
			after, hasAfter = n.items[i], true
		}
		// Below item i-1 and before item i: with found, all there is behind the place.
		n = n.kid(i)
	}
	return before, hasBefore, after, hasAfter
}

// Edit begins a change of t. It costs nothing until the first Set or Delete.
func (t Table[T]) Edit() Edit[T] { return Edit[T]{Table: t} }

// Edit is a Table in the making; its reading methods see its own changes. An
// iteration must have ended before the Edit is changed.
//
// A copy of an Edit is a way to go back, provided that the one that goes on is
// told with Fork first.
type Edit[T any] struct {
	Table[T]
	owner uint64 // of the nodes that are ours alone and may be changed in place; 0 is none yet
}

// Set adds item or replaces the one that compares equal to it, which it returns.
func (e *Edit[T]) Set(item T) (old T, replaced bool) {
	var path [maxDepth]step[T]
	depth, n := 0, e.begin()
	for {
		i, found := e.search(n, item)
		if found {
			old, n.items[i] = n.items[i], item
			return old, true
		}
		if n.kids == nil {
			e.length++
			e.put(n, i, item, path[:depth])
			return old, false
		}
		path[depth] = step[T]{n, i}
		depth++
		n = e.ownKid(n, i)
	}
}

// Load is Set for items that come in order: each at the end of the table.
func (e *Edit[T]) Load(item T) {
	if last, ok := e.Max(); ok && e.compare(item, last) <= 0 {
		e.Set(item)
		return
	}
	var path [maxDepth]step[T]
	depth, n := 0, e.begin()
	for n.kids != nil {
		path[depth] = step[T]{n, n.count}
		depth++
		n = e.ownKid(n, n.count)
	}
	e.length++
	e.put(n, n.count, item, path[:depth])
}

// Delete removes the item that compares equal to pivot and returns it.
func (e *Edit[T]) Delete(pivot T) (old T, deleted bool) {
	if old, deleted = e.Get(pivot); !deleted {
		return old, false
	}
	root := e.begin()
	e.remove(root, pivot)
	if root.count == 0 {
		e.root = root.kid(0)
	}
	e.length--
	return old, true
}

// Fork keeps what was set so far from being changed in place from now on: a
// copy of e taken before stays as it is.
func (e *Edit[T]) Fork() { e.owner = 0 }

// Done returns the Table as it is now. Later changes of e do not show in it.
func (e *Edit[T]) Done() Table[T] {
	e.owner = 0
	return e.Table
}
