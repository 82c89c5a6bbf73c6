package plotpage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Frame is one of a flame graph: a function, what was spent in it and below, and what it called.
type Frame struct {
	Name  string
	Value float64
	Calls []Frame
}

const (
	flameWidth = 1000
	flameRow   = 16
	// flameThin is the share of the width below which a frame is not drawn, flameDeep how many stand on each other.
	flameThin = 0.002
	flameDeep = 60
	flameSelf = 20 // functions that are named by what they spent themselves
)

// box is a frame as it is drawn, from the top down.
type box struct {
	X, Width, Y float64
	Title, Text string
}

// picture is a flame graph, laid out.
type picture struct {
	Height float64
	Boxes  []box
	// Self are the functions that spent the most themselves: a browser finds their names, too.
	Self [][]string
}

// layout draws a flame graph; nil without one, or where nothing was spent.
func (p Part) layout() *picture {
	if p.Flame == nil || p.Flame.Value <= 0 {
		return nil
	}
	out, self := &picture{}, map[string]float64{}
	p.Flame.draw(out, self, p.Flame.Value, 0, 0)
	for name, v := range self {
		if v > 0 {
			out.Self = append(out.Self, []string{name, fmt.Sprintf("%.1f %%", 100*v/p.Flame.Value)})
		}
	}
	slices.SortFunc(out.Self, func(a, b []string) int {
		return cmp.Or(cmp.Compare(self[b[0]], self[a[0]]), cmp.Compare(a[0], b[0]))
	})
	out.Self = out.Self[:min(len(out.Self), flameSelf)]
	return out
}

func (f *Frame) draw(out *picture, self map[string]float64, total, x float64, level int) {
	own := f.Value
	for i := range f.Calls {
		own -= f.Calls[i].Value
	}
	self[f.Name] += own
	share := f.Value / total
	if share >= flameThin && level < flameDeep {
		b := box{X: x, Width: share * flameWidth, Y: float64(level * flameRow),
			Title: fmt.Sprintf("%s: %.1f %%", f.Name, 100*share)}
		if fits := int(b.Width / 6.2); fits > 3 {
			b.Text = f.Name[strings.LastIndexByte(f.Name, '/')+1:]
			if len(b.Text) > fits {
				b.Text = strings.ToValidUTF8(b.Text[:fits-2], "") + ".."
			}
		}
		out.Boxes = append(out.Boxes, b)
		out.Height = max(out.Height, b.Y+flameRow)
	}
	for i := range f.Calls {
		f.Calls[i].draw(out, self, total, x, level+1)
		x += f.Calls[i].Value / total * flameWidth
	}
}
