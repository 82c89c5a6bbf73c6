package plugins

import "sync"

// crew is goroutines that somebody waits for, also while others begin. The zero value has none.
type crew struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when there is none; nil while nobody waits
}

func (c *crew) start(do func()) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	go func() {
		defer c.end()
		do()
	}()
}

func (c *crew) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

func (c *crew) wait() {
	c.mu.Lock()
	none := c.none
	if c.n > 0 && none == nil {
		none = make(chan struct{})
		c.none = none
	}
	busy := c.n > 0
	c.mu.Unlock()
	if busy {
		<-none
	}
}
