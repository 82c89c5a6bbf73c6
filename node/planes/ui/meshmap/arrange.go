package meshmap

import (
	"cmp"
	"slices"
)

const (
	// sweeps is how often the places of each layer are put in the order of their neighbours, from left to right and back.
	sweeps = 4
	// mostRows is how many places stand in a column; a layer of more has several.
	mostRows = 16
)

// arrange gives each place its column and row: one behind the farthest of those that call it, where calls that lead
// back around a circle count for nothing, and near its neighbours.
func (m *Map) arrange() {
	layers := m.layers()
	at := make([]float64, len(m.Places)) // of each place within its layer, from -1/2 to 1/2
	put := func(layer []int) {
		for i, n := range layer {
			at[n] = (float64(i)+0.5)/float64(len(layer)) - 0.5
		}
	}
	for _, layer := range layers {
		put(layer)
	}
	callers, called := make([][]int, len(m.Places)), make([][]int, len(m.Places))
	for _, l := range m.Lines {
		callers[l.To], called[l.From] = append(callers[l.To], l.From), append(called[l.From], l.To)
	}
	order := func(layer []int, by [][]int) {
		middle := make(map[int]float64, len(layer))
		for _, n := range layer {
			middle[n] = at[n]
			if len(by[n]) > 0 {
				sum := 0.0
				for _, other := range by[n] {
					sum += at[other]
				}
				middle[n] = sum / float64(len(by[n]))
			}
		}
		slices.SortStableFunc(layer, func(a, b int) int { return cmp.Compare(middle[a], middle[b]) })
		put(layer)
	}
	for range sweeps {
		for _, layer := range layers {
			order(layer, callers)
		}
		for _, layer := range slices.Backward(layers) {
			order(layer, called)
		}
	}
	m.place(layers)
}

// place gives places the columns of their layers, and rows around the middle.
func (m *Map) place(layers [][]int) {
	rows, high := 0, func(layer []int, columns, column int) int { return (len(layer) - column + columns - 1) / columns }
	columnsOf := func(layer []int) int { return (len(layer) + mostRows - 1) / mostRows }
	for _, layer := range layers {
		rows = max(rows, high(layer, columnsOf(layer), 0))
	}
	for _, layer := range layers {
		columns := columnsOf(layer)
		for i, n := range layer {
			// Neighbours in the order stand beside each other: a layer of several columns is filled row by row.
			column, row := i%columns, i/columns
			m.Places[n].Column = m.Columns + column
			m.Places[n].Row = float64(row) + float64(rows-high(layer, columns, column))/2
		}
		m.Columns += columns
	}
	m.Rows = float64(rows)
}

// layers are the places by how many calls lead to them at most.
func (m *Map) layers() [][]int {
	called := make([][]int, len(m.Places))
	entries := make([]bool, len(m.Places)) // nobody calls them
	for i := range entries {
		entries[i] = true
	}
	for _, l := range m.Lines {
		called[l.From] = append(called[l.From], l.To)
		entries[l.To] = false
	}
	const fresh, open, done = 0, 1, 2
	state := make([]int, len(m.Places))
	forward := make([][]int, len(m.Places)) // calls that lead not back to a place on the way
	var back []int                          // places, each behind all that it calls
	var visit func(n int)
	visit = func(n int) { // as deep as there are places at most
		state[n] = open
		for _, to := range called[n] {
			if state[to] == open {
				continue
			}
			forward[n] = append(forward[n], to)
			if state[to] == fresh {
				visit(to)
			}
		}
		state[n] = done
		back = append(back, n)
	}
	for _, wanted := range []bool{true, false} { // circles that nobody calls begin anywhere
		for n := range m.Places {
			if entries[n] == wanted && state[n] == fresh {
				visit(n)
			}
		}
	}
	depth := make([]int, len(m.Places))
	deepest := 0
	for _, n := range slices.Backward(back) {
		for _, to := range forward[n] {
			depth[to] = max(depth[to], depth[n]+1)
			deepest = max(deepest, depth[to])
		}
	}
	layers := make([][]int, deepest+1)
	for n := range m.Places {
		layers[depth[n]] = append(layers[depth[n]], n)
	}
	return layers
}
