package grants

import (
	"crypto/sha256"
	"slices"
	"sync"
)

// recent keeps what was used lately: at most limit entries, in two halves. When the young half
// is full it becomes the old one, whose entries are lost unless they are asked for meanwhile.
// So reading takes a shared lock alone, as long as it finds the entry among the young.
type recent[K comparable, V any] struct {
	limit int

	mu         sync.RWMutex // guards what follows
	young, old map[K]V
}

func (c *recent[K, V]) get(k K) (V, bool) {
	c.mu.RLock()
	v, ok := c.young[k]
	if ok {
		c.mu.RUnlock()
		return v, true
	}
	v, ok = c.old[k]
	c.mu.RUnlock()
	if ok {
		c.put(k, v)
	}
	return v, ok
}

func (c *recent[K, V]) put(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.young[k]; !there && len(c.young) >= c.limit/2 || c.young == nil {
		c.old, c.young = c.young, make(map[K]V)
	}
	c.young[k] = v
}

func (c *recent[K, V]) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.young) + len(c.old)
}

// sortedSums gives the distinct texts by their hash, and one key for the whole set.
func sortedSums(texts []string) (map[[sha256.Size]byte]string, string) {
	bySum := make(map[[sha256.Size]byte]string, len(texts))
	for _, t := range texts {
		bySum[sha256.Sum256([]byte(t))] = t
	}
	sums := make([]string, 0, len(bySum))
	for s := range bySum {
		sums = append(sums, string(s[:]))
	}
	slices.Sort(sums)
	h := sha256.New()
	for _, s := range sums {
		h.Write([]byte(s))
	}
	return bySum, string(h.Sum(nil))
}
