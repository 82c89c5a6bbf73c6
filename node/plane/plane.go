// Package plane says what a plane is to the process that it belongs to: one value that is built, run, asked whether it
// is ready, drained, reloaded and closed like all others, and that mounts what it offers through Doors. A new plane is
// a folder below node/planes and a line in node's list of kinds; nothing else of the process knows it.
package plane

import (
	"context"
	"errors"
	"sync"

	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/node/config"
)

// Plane is one of the things that a server or an agent does. Whatever does nothing for it is an Idle to embed.
type Plane interface {
	// Run owns all goroutines and returns when they have ended. An error ends the process: a plane that is to fail alone
	// keeps it, and says so in Lacks.
	Run(ctx context.Context) error
	// Lacks is what the plane waits for after a start before clients may come, in words that name the plane. It is not
	// asked any more once the process was ready.
	Lacks() []string
	// Drain hands over what another server can have, until ctx ends.
	Drain(ctx context.Context)
	// Reload judges a fresh configuration and returns what applies it, which cannot fail; nil applies nothing.
	Reload(cfg *config.Config) (apply func(), err error)
	// Close undoes what was opened, where Run is never called.
	Close() error
}

// Quiescer is a plane whose clients have to be told, and waited for, before the process ends.
type Quiescer interface {
	// Quiesce returns when no client needs the plane any more, or ctx ends. All are served meanwhile.
	Quiesce(ctx context.Context)
}

// Idle does nothing where a plane has nothing to do.
type Idle struct{}

// Lacks implements Plane.
func (Idle) Lacks() []string { return nil }

// Drain implements Plane.
func (Idle) Drain(context.Context) {}

// Reload implements Plane.
func (Idle) Reload(*config.Config) (func(), error) { return nil, nil }

// Close implements Plane.
func (Idle) Close() error { return nil }

// Kind is a plane as a process lists it.
type Kind struct {
	Name string
	// Keys makes the struct into which the section of the plane's name of the configuration is decoded, with the tags of
	// config.Config; nil has no keys beside those that Config knows.
	Keys func() any
	// Check names what is wrong with the configuration beyond what its keys say; nil finds nothing.
	Check func(cfg *config.Config) error
	// Open makes the plane and starts nothing; nil where the configuration wants none.
	Open func(d *Doors) (Plane, error)
}

// Set is the planes of a process, in the order in which they start.
type Set struct {
	names []string
	all   []Plane
}

// Open opens the planes that are wanted, as d.Planes. On an error it closes what it opened.
func Open(kinds []Kind, d *Doors) error {
	s := &Set{}
	d.Planes = s
	for _, k := range kinds {
		d.plane = k.Name
		p, err := k.Open(d)
		if err != nil {
			d.Planes = nil
			return errors.Join(err, s.Close())
		}
		if p != nil {
			s.names, s.all = append(s.names, k.Name), append(s.all, p)
		}
	}
	return nil
}

// Check names what is wrong with the configuration of planes.
func Check(kinds []Kind, cfg *config.Config) error {
	var wrong []error
	for _, k := range kinds {
		if k.Check != nil {
			wrong = append(wrong, k.Check(cfg))
		}
	}
	return errors.Join(wrong...)
}

// Sections are the keys of the planes, for config.Options.
func Sections(kinds []Kind) map[string]func() any {
	out := map[string]func() any{}
	for _, k := range kinds {
		if k.Keys != nil {
			out[k.Name] = k.Keys
		}
	}
	return out
}

// Add adds the planes to what the process runs.
func (s *Set) Add(parts *life.Group) {
	for i, p := range s.all {
		parts.Add(s.names[i]+" plane", p.Run)
	}
}

// Lacks is what the planes wait for.
func (s *Set) Lacks() (list []string) {
	for _, p := range s.all {
		list = append(list, p.Lacks()...)
	}
	return list
}

// Drain drains one plane after another.
func (s *Set) Drain(ctx context.Context) {
	for _, p := range s.all {
		p.Drain(ctx)
	}
}

// Quiesce has all planes that have clients to wait for do so at the same time.
func (s *Set) Quiesce(ctx context.Context) {
	if s == nil {
		return
	}
	var wg sync.WaitGroup
	for _, p := range s.all {
		if q, ok := p.(Quiescer); ok {
			wg.Go(func() { q.Quiesce(ctx) })
		}
	}
	wg.Wait()
}

// Reload judges a configuration by all planes, the last first, and returns what applies it.
func (s *Set) Reload(cfg *config.Config) (apply func(), err error) {
	var steps []func()
	for i := len(s.all) - 1; i >= 0; i-- {
		step, err := s.all[i].Reload(cfg)
		if err != nil {
			return nil, err
		}
		if step != nil {
			steps = append(steps, step)
		}
	}
	return func() {
		for _, step := range steps {
			step()
		}
	}, nil
}

// Close closes all planes; a nil Set has none.
func (s *Set) Close() error {
	if s == nil {
		return nil
	}
	var wrong []error
	for i := len(s.all) - 1; i >= 0; i-- {
		wrong = append(wrong, s.all[i].Close())
	}
	return errors.Join(wrong...)
}

// Find is the first plane that is a T, for what one plane needs of another; the zero T where there is none.
func Find[T any](s *Set) (found T) {
	if s == nil {
		return found
	}
	for _, p := range s.all {
		if t, ok := p.(T); ok {
			return t
		}
	}
	return found
}
