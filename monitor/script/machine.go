package script

import (
	"context"
	"crypto/sha256"
	"sync"

	"github.com/dlclark/regexp2/v2"
	"github.com/dop251/goja"
)

// machine runs programs in this process.
type machine struct {
	plain *ready

	mu        sync.Mutex
	programs  map[[sha256.Size]byte]*goja.Program
	libraries map[[sha256.Size]byte]*ready
}

// What a machine keeps; beyond that it forgets all and begins anew.
const (
	maxPrograms  = 1024
	maxLibraries = 16
)

// regexps are bounded by a variable of their library, which is set before the first machine exists.
var regexps sync.Once

func newMachine() *machine {
	regexps.Do(func() { regexp2.DefaultMatchTimeout = Limit })
	return &machine{
		plain:    &ready{idle: make(chan *runtime, maxIdle)},
		programs: map[[sha256.Size]byte]*goja.Program{}, libraries: map[[sha256.Size]byte]*ready{},
	}
}

// compiled returns p compiled. Two callers may compile the same text at once; that does no harm.
func (m *machine) compiled(p *Program) (*goja.Program, error) {
	m.mu.Lock()
	out := m.programs[p.id]
	m.mu.Unlock()
	if out != nil {
		return out, nil
	}
	out, err := p.compile()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.programs) >= maxPrograms {
		clear(m.programs)
	}
	m.programs[p.id] = out
	return out, nil
}

func (m *machine) library(l *Library) (*ready, error) {
	if l == nil {
		return m.plain, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if out := m.libraries[l.id]; out != nil {
		return out, nil
	}
	out, err := l.ready()
	if err != nil {
		return nil, err
	}
	if len(m.libraries) >= maxLibraries {
		clear(m.libraries)
	}
	m.libraries[l.id] = out
	return out, nil
}

// run runs a task, or only compiles it where t.check says so.
func (m *machine) run(ctx context.Context, t Task) (Result, error) {
	p, err := m.compiled(t.Program)
	if err != nil || t.check {
		return Result{}, err
	}
	lib, err := m.library(t.Library)
	if err != nil {
		return Result{}, err
	}
	var r *runtime
	select {
	case r = <-lib.idle:
	default:
		if r, err = newRuntime(lib); err != nil {
			return Result{}, err
		}
	}
	if t.begins != nil {
		t.begins()
	}
	out, err := r.run(ctx, p, t)
	if r.clean() {
		select {
		case lib.idle <- r:
		default:
		}
	}
	return out, err
}
