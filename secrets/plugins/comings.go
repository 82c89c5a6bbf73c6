package plugins

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/tables"
)

var errGone = errkind.New(errkind.NotFound, "the mount is no more")

// Coming lets the process of a mount that is about to be store before the mount is there, until over is called.
func (p *Plugins) Coming(e *mount.Entry) (over func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coming[e.UUID] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.coming, e.UUID)
	}
}

// here reports whether a mount is there, or about to be.
func (p *Plugins) here(st *tables.Tables, e *mount.Entry) bool {
	if in := st.In(e.Space); in != nil {
		if found := in.Mounts.Get(e.Path); found != nil && found.UUID == e.UUID {
			return true
		}
	}
	p.mu.Lock()
	coming := p.coming[e.UUID]
	p.mu.Unlock()
	if coming {
		return true
	}
	for in := range st.Each() { // one that is being moved has its next path already
		for _, found := range in.Mounts.All() {
			if found.UUID == e.UUID {
				return true
			}
		}
	}
	return false
}

// Settle waits for what processes store at the moment. Those of mounts that were no more before store nothing from then
// on, also where they live for a while yet.
func (p *Plugins) Settle() {
	p.storing.Lock()
	defer p.storing.Unlock()
}
