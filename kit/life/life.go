// Package life runs the parts of a process and stops them in reverse order.
//
// A Group starts each part in the order in which it was added and waits for
// every goroutine before Run returns: no part outlives its Group. The first
// part that fails, or the end of the context, begins the stop: parts end one
// after the other, newest first, each within its grace period.
package life

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Part is something that runs until its context ends.
type Part struct {
	Name string
	// Run returns nil when ctx ended and all its goroutines have.
	Run func(ctx context.Context) error
}

// Group holds parts. The zero value is ready; Add before Run, from one goroutine.
type Group struct {
	parts []Part
	// Grace bounds how long one part may take to end before Run reports it by
	// name and goes on with the next; zero means 30 s.
	Grace time.Duration
}

// Add appends a part. Later parts may use earlier ones: they are stopped first.
func (g *Group) Add(name string, run func(ctx context.Context) error) {
	g.parts = append(g.parts, Part{Name: name, Run: run})
}

type running struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Run starts all parts, blocks until ctx ends or one part fails, then stops
// them in reverse order. It returns the failures joined, or nil.
func (g *Group) Run(ctx context.Context) error {
	grace := g.Grace
	if grace == 0 {
		grace = 30 * time.Second
	}
	// A part's context is not ctx's child: the stop order is ours to give.
	base := context.WithoutCancel(ctx)
	first := make(chan struct{})
	var once sync.Once
	var live []*running
	for _, part := range g.parts {
		partCtx, cancel := context.WithCancel(base)
		r := &running{name: part.Name, cancel: cancel, done: make(chan struct{})}
		live = append(live, r)
		go func() {
			defer close(r.done)
			if err := part.Run(partCtx); err != nil && !(errors.Is(err, context.Canceled) && partCtx.Err() != nil) {
				r.err = fmt.Errorf("%s: %w", r.name, err)
				once.Do(func() { close(first) })
			}
		}()
	}
	select {
	case <-ctx.Done():
	case <-first:
	}
	var failures []error
	for i := len(live) - 1; i >= 0; i-- {
		r := live[i]
		r.cancel()
		timer := time.NewTimer(grace)
		select {
		case <-r.done:
			if r.err != nil {
				failures = append(failures, r.err)
			}
		case <-timer.C:
			failures = append(failures, fmt.Errorf("%s: did not stop within %s", r.name, grace))
		}
		timer.Stop()
	}
	return errors.Join(failures...)
}
