package plugins

import (
	"sync"

	"corbel.dev/corbel/kit/errkind"
)

// places are those of processes. One namespace cannot take all of them, but the root one.
type places struct {
	mu  sync.Mutex
	all int
	in  map[string]int // by the namespace's id
}

// take takes a place for a process of a namespace, until free is called, once or more.
func (p *places) take(space string) (free func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.all >= maxProcesses:
		return nil, errkind.Errorf(errkind.Overloaded, "%d plug-ins run already: there may be no more", maxProcesses)
	case space != "" && p.in[space] >= maxOfSpace:
		return nil, errkind.Errorf(errkind.Overloaded, "%d plug-ins of the namespace run already: there may be no more",
			maxOfSpace)
	}
	if p.in == nil {
		p.in = map[string]int{}
	}
	p.all++
	p.in[space]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all--
		if p.in[space]--; p.in[space] == 0 {
			delete(p.in, space)
		}
	}), nil
}

// taken is how many are.
func (p *places) taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}

// placed is a process and its place.
type placed struct {
	Process
	free func()
}

// Kill implements Process.
func (p *placed) Kill() {
	p.Process.Kill()
	p.free()
}
