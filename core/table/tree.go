package table

import "sync/atomic"

// The tree is a B-tree. A node is one allocation with its items within, an inner
// node's children behind them.
//
// By BenchmarkSetPointers (100,000 pointers, 100 random sets a batch) a set allocates 690
// bytes; with maxItems 15 it is 500 and 3 allocations, with 63 it is 870.
const (
	maxItems = 31
	minItems = 10 // below, a node takes from a neighbour or joins it
	// maxDepth is far above what memory can hold: each level multiplies by at least minItems.
	maxDepth = 16
)

// node belongs to the Edit whose owner it carries; to all others it is read-only.
//
// Invariant: 1 <= count <= maxItems, but for a root that begin just made. The last
// node of each level may have fewer than minItems: see put.
type node[T any] struct {
	owner uint64
	count int
	items [maxItems]T
	kids  *[maxItems + 1]*node[T] // nil in a leaf
}

// inner is a node with room for children.
type inner[T any] struct {
	node[T]
	space [maxItems + 1]*node[T]
}

// owners numbers the Edits that change something.
var owners atomic.Uint64

func newNode[T any](owner uint64, leaf bool) *node[T] {
	if leaf {
		return &node[T]{owner: owner}
	}
	n := &inner[T]{}
	n.owner, n.kids = owner, &n.space
	return &n.node
}

// kid is the child before item i, nil in a leaf.
func (n *node[T]) kid(i int) *node[T] {
	if n.kids == nil {
		return nil
	}
	return n.kids[i]
}

// search finds the item equal to pivot, or the place where it belongs.
func (t *Table[T]) search(n *node[T], pivot T) (int, bool) {
	low, high := 0, n.count
	for low < high {
		mid := int(uint(low+high) >> 1)
		switch c := t.compare(pivot, n.items[mid]); {
		case c == 0:
			return mid, true
		case c < 0:
			high = mid
		default:
			low = mid + 1
		}
	}
	return low, false
}

func (n *node[T]) seek(at func(T) int) (int, bool) {
	low, high := 0, n.count
	for low < high {
		mid := int(uint(low+high) >> 1)
		switch c := at(n.items[mid]); {
		case c == 0:
			return mid, true
		case c < 0:
			high = mid
		default:
			low = mid + 1
		}
	}
	return low, false
}

func (n *node[T]) walk(yield func(T) bool) bool {
	if n == nil {
		return true
	}
	for i := range n.count {
		if n.kids != nil && !n.kids[i].walk(yield) || !yield(n.items[i]) {
			return false
		}
	}
	return n.kids == nil || n.kids[n.count].walk(yield)
}

func (n *node[T]) walkFrom(at func(T) int, yield func(T) bool) bool {
	if n == nil {
		return true
	}
	i, found := n.seek(at)
	if !found && n.kids != nil && !n.kids[i].walkFrom(at, yield) {
		return false
	}
	for ; i < n.count; i++ {
		if !yield(n.items[i]) || n.kids != nil && !n.kids[i+1].walk(yield) {
			return false
		}
	}
	return true
}

// step is a node on the way down and the child that was taken.
type step[T any] struct {
	n *node[T]
	i int
}

// begin returns the root for changing in place.
func (e *Edit[T]) begin() *node[T] {
	if e.owner == 0 {
		e.owner = owners.Add(1)
	}
	if e.root == nil {
		e.root = newNode[T](e.owner, true)
	} else {
		e.root = e.own(e.root)
	}
	return e.root
}

// own returns n for changing in place.
func (e *Edit[T]) own(n *node[T]) *node[T] {
	if n.owner == e.owner {
		return n
	}
	next := newNode[T](e.owner, n.kids == nil)
	next.count = n.count
	copy(next.items[:n.count], n.items[:n.count])
	if n.kids != nil {
		copy(next.kids[:n.count+1], n.kids[:n.count+1])
	}
	return next
}

func (e *Edit[T]) ownKid(n *node[T], i int) *node[T] {
	kid := n.kids[i]
	if kid.owner != e.owner {
		kid = e.own(kid)
		n.kids[i] = kid
	}
	return kid
}

// put places item at i of the leaf at the end of path, and splits what is full, from
// there upwards. At the right edge of the tree the left half of a split stays full:
// keys often come in order, and leaves that were filled in order stay so.
func (e *Edit[T]) put(n *node[T], i int, item T, path []step[T]) {
	var right *node[T] // goes behind item
	for {
		if n.count < maxItems {
			n.insert(i, item, right)
			return
		}
		cut := maxItems / 2
		if i == maxItems && atEnd(path) {
			cut = maxItems - 1
		}
		middle, second := e.split(n, cut)
		if i <= cut {
			n.insert(i, item, right)
		} else {
			second.insert(i-cut-1, item, right)
		}
		item, right = middle, second
		if len(path) == 0 {
			root := newNode[T](e.owner, false)
			root.kids[0] = n
			root.insert(0, item, right)
			e.root = root
			return
		}
		last := path[len(path)-1]
		n, i, path = last.n, last.i, path[:len(path)-1]
	}
}

func atEnd[T any](path []step[T]) bool {
	for _, s := range path {
		if s.i != s.n.count {
			return false
		}
	}
	return true
}

// insert places item at i and kid, if there is one, behind it.
func (n *node[T]) insert(i int, item T, kid *node[T]) {
	copy(n.items[i+1:n.count+1], n.items[i:n.count])
	n.items[i] = item
	if kid != nil {
		copy(n.kids[i+2:n.count+2], n.kids[i+1:n.count+1])
		n.kids[i+1] = kid
	}
	n.count++
}

// split moves what is behind item cut to a new node and takes that item out.
func (e *Edit[T]) split(n *node[T], cut int) (middle T, right *node[T]) {
	right = newNode[T](e.owner, n.kids == nil)
	right.count = copy(right.items[:], n.items[cut+1:n.count])
	middle = n.items[cut]
	clear(n.items[cut:n.count])
	if n.kids != nil {
		copy(right.kids[:], n.kids[cut+1:n.count+1])
		clear(n.kids[cut+1 : n.count+1])
	}
	n.count = cut
	return middle, right
}

// remove takes the item that equals pivot, and that is there, out of what is below n.
func (e *Edit[T]) remove(n *node[T], pivot T) {
	i, found := e.search(n, pivot)
	switch {
	case n.kids == nil:
		n.cut(i)
	case found:
		n.items[i] = e.removeLast(e.ownKid(n, i))
		e.refill(n, i)
	default:
		e.remove(e.ownKid(n, i), pivot)
		e.refill(n, i)
	}
}

func (e *Edit[T]) removeLast(n *node[T]) T {
	if n.kids == nil {
		last := n.items[n.count-1]
		n.cut(n.count - 1)
		return last
	}
	i := n.count
	last := e.removeLast(e.ownKid(n, i))
	e.refill(n, i)
	return last
}

// cut removes item i and the child behind it.
func (n *node[T]) cut(i int) {
	var none T
	copy(n.items[i:n.count-1], n.items[i+1:n.count])
	n.items[n.count-1] = none
	if n.kids != nil {
		copy(n.kids[i+1:n.count], n.kids[i+2:n.count+1])
		n.kids[n.count] = nil
	}
	n.count--
}

// refill mends child i when it has become too small: it joins a neighbour or takes one item from it.
func (e *Edit[T]) refill(n *node[T], i int) {
	if n.kids[i].count >= minItems {
		return
	}
	at := max(i-1, 0) // the item between the two
	left, right := n.kids[at], n.kids[at+1]
	switch {
	case left.count+right.count < maxItems:
		e.join(n, at)
	case i == at: // the left one is too small
		left, right = e.ownKid(n, at), e.ownKid(n, at+1)
		var kid *node[T]
		if right.kids != nil {
			kid = right.kids[0]
			copy(right.kids[:right.count], right.kids[1:right.count+1])
			right.kids[right.count] = nil
		}
		left.insert(left.count, n.items[at], kid)
		n.items[at] = right.items[0]
		right.drop()
	default:
		left, right = e.ownKid(n, at), e.ownKid(n, at+1)
		if left.kids != nil {
			copy(right.kids[1:right.count+2], right.kids[:right.count+1])
			right.kids[0] = left.kids[left.count]
		}
		right.insert(0, n.items[at], nil)
		n.items[at] = left.items[left.count-1]
		left.cut(left.count - 1)
	}
}

// drop removes the first item; its child is gone already.
func (n *node[T]) drop() {
	var none T
	copy(n.items[:n.count-1], n.items[1:n.count])
	n.items[n.count-1] = none
	n.count--
}

// join moves child at+1 and the item before it into child at.
func (e *Edit[T]) join(n *node[T], at int) {
	left, right := e.ownKid(n, at), n.kids[at+1]
	left.items[left.count] = n.items[at]
	copy(left.items[left.count+1:], right.items[:right.count])
	if left.kids != nil {
		copy(left.kids[left.count+1:], right.kids[:right.count+1])
	}
	left.count += 1 + right.count
	n.cut(at)
}
