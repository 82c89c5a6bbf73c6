package nodeclient

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/fingerprint"
	"corbel.dev/corbel/kit/errkind"
)

// collectAtTimes deletes dead allocations when there are too many, or the disk is full.
func (c *Client) collectAtTimes(ctx context.Context) {
	for c.pause(ctx, c.cfg.GC.Every) {
		for _, d := range c.due(c.cfg.GC.MaxAllocs) {
			c.remove(d.id, d.alloc)
		}
		for _, d := range c.due(0) {
			if c.cfg.AllocDir == "" || fingerprint.DiskUse(c.cfg.AllocDir) <= c.cfg.GC.DiskPercent {
				break
			}
			c.cfg.Log.Info("the disk is full: a dead allocation is deleted", "alloc", d.id.String())
			c.remove(d.id, d.alloc)
		}
	}
}

// deadAlloc is an allocation that ended.
type deadAlloc struct {
	id jobs.ID
	*alloc
	ended time.Time
}

// due are the dead beyond the newest keep, the oldest first.
func (c *Client) due(keep int) []deadAlloc {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []deadAlloc
	for id, a := range c.allocs {
		if !a.ended.IsZero() {
			list = append(list, deadAlloc{id, a, a.ended})
		}
	}
	slices.SortFunc(list, func(a, b deadAlloc) int {
		return cmp.Or(a.ended.Compare(b.ended), slices.Compare(a.id[:], b.id[:]))
	})
	return list[:max(0, len(list)-keep)]
}

// Collect deletes one dead allocation, or with the zero id all.
func (c *Client) Collect(id jobs.ID) error {
	if id.IsZero() {
		for _, d := range c.due(0) {
			c.remove(d.id, d.alloc)
		}
		return nil
	}
	a, err := c.find(id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	over := !a.ended.IsZero()
	c.mu.Unlock()
	if !over {
		return errkind.New(errkind.Conflict, "the allocation still runs: stop it first")
	}
	c.remove(id, a)
	return nil
}

// find is an allocation of this node.
func (c *Client) find(id jobs.ID) (*alloc, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.allocs[id]; a != nil {
		return a, nil
	}
	return nil, errkind.Errorf(errkind.NotFound, "Unknown allocation %q", id)
}

// Restart restarts a task of an allocation.
func (c *Client) Restart(id jobs.ID, task, why string) error {
	a, err := c.find(id)
	if err != nil {
		return err
	}
	return a.Restart(task, why)
}

// outputBytes is what is kept of a check's output.
const outputBytes = 4 << 10

// Exec runs a command in a task, for a check.
func (c *Client) Exec(ctx context.Context, id jobs.ID, task string, command []string) (int, string, error) {
	a, err := c.find(id)
	if err != nil {
		return 0, "", err
	}
	var kept head
	code, err := a.Exec(ctx, task, driver.Exec{Command: command, Stdout: &kept, Stderr: &kept})
	return code, string(kept.text), err
}

// head keeps what is written first.
type head struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, p[:min(len(p), outputBytes-len(h.text))]...)
	return len(p), nil
}
