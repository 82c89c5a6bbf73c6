package profile

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

const (
	flameWidth  = 1200
	frameHeight = 17
	// thinnest is the share of the width below which a frame is not drawn, deepest how many frames stand on each other.
	thinnest = 0.0008
	deepest  = 80
)

// frame is a function called from its parent, with all that was spent below it.
type frame struct {
	name     string
	value    int64
	children map[string]*frame
}

func (f *frame) child(name string) *frame {
	c := f.children[name]
	if c == nil {
		c = &frame{name: name}
		if f.children == nil {
			f.children = map[string]*frame{}
		}
		f.children[name] = c
	}
	return c
}

// sorted are the children, the largest first.
func (f *frame) sorted() []*frame {
	order := make([]*frame, 0, len(f.children))
	for _, c := range f.children {
		order = append(order, c)
	}
	slices.SortFunc(order, func(a, c *frame) int {
		return cmp.Or(-cmp.Compare(a.value, c.value), cmp.Compare(a.name, c.name))
	})
	return order
}

// Flame draws a compressed profile as a flame graph: an SVG that any browser shows, whose frames tell their share
// when pointed at.
func Flame(w io.Writer, compressed []byte, title string) error {
	root, err := stack(compressed, title)
	if err != nil {
		return err
	}
	var body strings.Builder
	depth := draw(&body, root, root.value, 0, 0)
	height := (depth + 2) * frameHeight
	_, err = fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" `+
		`font-family="monospace" font-size="11"><g transform="matrix(1 0 0 -1 0 %d)">%s</g></svg>`,
		flameWidth, height, flameWidth, height, height, body.String())
	return err
}

// stack adds the samples of a compressed profile up: one frame on the other, the caller below.
func stack(compressed []byte, title string) (*frame, error) {
	p, err := profile.ParseData(compressed)
	if err != nil {
		return nil, err
	}
	root := &frame{name: title}
	value := max(len(p.SampleType)-1, 0)
	for _, s := range p.Sample {
		if value >= len(s.Value) || s.Value[value] <= 0 {
			continue
		}
		root.value += s.Value[value]
		at := root
		for i := len(s.Location) - 1; i >= 0; i-- {
			lines := s.Location[i].Line
			for j := len(lines) - 1; j >= 0; j-- {
				if lines[j].Function != nil {
					at = at.child(lines[j].Function.Name)
					at.value += s.Value[value]
				}
			}
		}
	}
	return root, nil
}

// draw draws a frame and what stands on it, and returns how deep that is. Widths are shares of total, x in pixels.
func draw(b *strings.Builder, f *frame, total int64, x float64, level int) (depth int) {
	if total <= 0 || level > deepest {
		return level
	}
	share := float64(f.value) / float64(total)
	if share < thinnest {
		return level
	}
	width := share * flameWidth
	name := html.EscapeString(f.name)
	fmt.Fprintf(b, `<g><title>%s %.1f%%</title><rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`, name,
		100*share, x, level*frameHeight, width, frameHeight-1, colour(f.name))
	if fits := int(width / 6.7); fits > 3 {
		// Text stands upright in a picture that is drawn from the bottom up.
		fmt.Fprintf(b, `<text transform="matrix(1 0 0 -1 %.1f %d)" x="2">%s</text>`, x, level*frameHeight+5,
			html.EscapeString(short(f.name, fits)))
	}
	b.WriteString(`</g>`)
	depth = level
	for _, c := range f.sorted() {
		depth = max(depth, draw(b, c, total, x, level+1))
		x += float64(c.value) / float64(total) * flameWidth
	}
	return depth
}

// short is the end of a name that fits: the package's path says less than the function.
func short(name string, fits int) string {
	if slash := strings.LastIndexByte(name, '/'); slash >= 0 {
		name = name[slash+1:]
	}
	if len(name) > fits {
		return name[:fits-2] + ".."
	}
	return name
}

// colour tells ours, libraries and the runtime apart.
func colour(name string) string {
	pkg, _ := split(name)
	switch {
	case strings.HasPrefix(pkg, "corbel.dev/"):
		return "#e8a33d"
	case beneath(pkg):
		return "#b9c4cc"
	default:
		return "#8fb573"
	}
}
