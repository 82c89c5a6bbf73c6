package definitions

import (
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Part is who has a part of the log of events. A part is named by the server that had it first, its home.
type Part struct {
	// Lead is the server that takes the part's events and counts them. Copy, where there is one, has all that Lead has
	// acknowledged, and may take its place.
	Lead, Copy string
	// Epoch grows with each change. Who knows a newer one takes nothing from the lead of an older one.
	Epoch uint64
}

// PartPut changes who has a part, if nobody has changed it since an epoch.
type PartPut struct {
	Name string
	Was  uint64
	Next Part
}

// Part is who has a part: its home, until something else was decided.
func (v *View) Part(name string) Part {
	if p, ok := v.Parts[name]; ok {
		return p
	}
	return Part{Lead: name}
}

func (v View) putPart(p *PartPut) (View, error) {
	if now := v.Part(p.Name); now.Epoch != p.Was {
		return v, errkind.Errorf(errkind.Conflict, "usage: part %s is at epoch %d, not at %d", p.Name, now.Epoch, p.Was)
	}
	next := p.Next
	next.Epoch = p.Was + 1
	if next.Copy == next.Lead {
		next.Copy = ""
	}
	v.Parts = with(v.Parts, p.Name, next)
	return v, nil
}

// leftFor is how long it is told that a part was left out: longer than anybody asks back.
const leftFor = 3 * 366 * 24 * time.Hour

// putOwners decides who counts. A part that comes back brings what it counted.
func (v View) putOwners(names []string, at time.Time) View {
	next := slices.Compact(slices.Sorted(slices.Values(names)))
	left := map[string]time.Time{}
	maps.Copy(left, v.Left)
	for _, name := range v.Owners {
		left[name] = at
	}
	maps.DeleteFunc(left, func(name string, since time.Time) bool {
		return slices.Contains(next, name) || at.Sub(since) > leftFor
	})
	if v.Owners, v.Left = next, left; len(left) == 0 {
		v.Left = nil
	}
	return v
}
