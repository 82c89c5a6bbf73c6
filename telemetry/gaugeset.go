package telemetry

// GaugeSet holds the gauges of one name whose labels come and go, such as a count by role. What a Replace does not
// name is gone for every reader, and makes room for others under MaxSeriesPerName. Its owner alone makes series of that
// name, from one goroutine at a time. A nil *GaugeSet does nothing.
type GaugeSet struct {
	r    *Registry
	name string
	held map[*Series]bool
}

// Point is one value of a GaugeSet.
type Point struct {
	Labels []string // k1, v1, k2, v2
	Value  float64
}

// GaugeSet makes an empty set.
func (r *Registry) GaugeSet(name string) *GaugeSet {
	if r == nil {
		return nil
	}
	return &GaugeSet{r: r, name: name, held: make(map[*Series]bool)}
}

// Replace makes the set what points say. Values change one after the other.
func (g *GaugeSet) Replace(points []Point) {
	if g == nil {
		return
	}
	keep := make(map[string]bool, len(points))
	for _, p := range points {
		keep[string(appendKey(nil, g.name, p.Labels))] = true
	}
	var gone []*Series
	for s := range g.held {
		if !keep[s.order] {
			gone = append(gone, s)
			delete(g.held, s)
		}
	}
	g.r.forget(gone) // first: what is new may need their room
	for _, p := range points {
		s := g.r.get(KindGauge, g.name, p.Labels)
		s.gauge.Set(p.Value)
		g.held[s] = true
	}
}

// forget takes series out of the registry.
func (r *Registry) forget(list []*Series) {
	if len(list) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range list {
		if r.series[s.order] != s {
			continue
		}
		delete(r.series, s.order)
		if f := r.families[s.Name]; f != nil {
			f.count--
		}
	}
	r.sorted.Store(nil)
}

// drop forgets the marks of series that are gone.
func (c *Cursor) drop(list []*Series) {
	if len(c.marks) <= len(list) {
		return
	}
	there := make(map[*Series]bool, len(list))
	for _, s := range list {
		there[s] = true
	}
	for s := range c.marks {
		if !there[s] {
			delete(c.marks, s)
		}
	}
}
