package host

import (
	"cmp"
	"slices"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/proxy"
)

// newsAge is how old a change may be to count as news for the timings.
const newsAge = time.Minute

// The states of a proxy.
const (
	StateSynced       = "synced"       // it has acknowledged all that it shall have
	StatePending      = "pending"      // something is sent or about to be, and not yet acknowledged
	StateRefused      = "refused"      // it refused what it shall have, and goes on with what it had
	StateWaiting      = "waiting"      // the servers have not told all that it needs
	StateDisconnected = "disconnected" // no Envoy has a stream for it
)

// Status is a proxy as its host sees it.
type Status struct {
	Node, ID, Kind string
	Service        string // the one that it stands for
	State          string
	Connection
	Resources int // that it shall have
	Pending   int // of those, how many it has not acknowledged in their newest version
	// LagMillis is for how long the oldest of the pending ones has been so: since its commit.
	LagMillis int64    `json:",omitempty"`
	Refused   uint64   // responses that it refused since it is kept
	Refusal   *Refused `json:",omitempty"` // the last one
	Missing   []string `json:",omitempty"` // values that are waited for
	Problems  []string `json:",omitempty"` // what of its configuration cannot be used
	// Upstreams are the services that its registration names.
	Upstreams []string   `json:",omitempty"`
	Details   []Resource `json:",omitempty"` // each resource; only where one proxy is asked for
}

// Connection is how a proxy's Envoy is connected to the host.
type Connection struct {
	Envoy    string    `json:",omitempty"` // version
	Streams  int       // that are open
	Since    time.Time `json:",omitzero"` // when the first of them was opened, or the last one ended
	Answered time.Time `json:",omitzero"` // when it last acknowledged or refused something
}

// Refused is a Refusal in words.
type Refused struct {
	Type      string
	Resources []string
	Words     string
	At        time.Time
}

// Resource is what a proxy shall have and has.
type Resource struct {
	Type, Name string
	Version    string    // that it shall have
	Changed    time.Time `json:",omitzero"`  // when the write that made it was applied at the servers
	Applied    string    `json:",omitempty"` // version that it acknowledged last
	AppliedAt  time.Time `json:",omitzero"`
	// TookMillis is how long it took from the write to the acknowledgement, when this was news for the proxy.
	TookMillis *float64 `json:",omitempty"`
}

// Status lists the proxies registered at this host's agent and all others that have a stream here, by node and id.
func (h *Host) Status() []Status {
	seen := map[[2]string]bool{}
	var list []Status
	h.mu.Lock()
	members := make([]*member, 0, len(h.proxies))
	for _, m := range h.proxies {
		members = append(members, m)
	}
	h.mu.Unlock()
	for _, m := range members {
		s := h.status(m, false)
		if s.Streams == 0 && seen[[2]string{s.Node, s.ID}] {
			continue
		}
		seen[[2]string{s.Node, s.ID}] = true
		list = append(list, s)
	}
	for _, svc := range h.cfg.Directory.List() {
		if seen[[2]string{svc.Node, svc.ID}] {
			continue
		}
		if s, ok := unopened(svc); ok {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b Status) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID)) })
	return list
}

// unopened is a registered proxy without a stream; false for what is none.
func unopened(svc *catalog.Service) (Status, bool) {
	reg, err := proxy.ReadRegistration(svc)
	if err != nil {
		return Status{}, false
	}
	return Status{Node: svc.Node, ID: svc.ID, Kind: svc.Kind, Service: reg.Service(), State: StateDisconnected,
		Upstreams: upstreams(reg)}, true
}

func upstreams(reg *proxy.Registration) []string {
	var list []string
	for i := range reg.Upstreams {
		list = append(list, reg.Upstreams[i].DestinationName)
	}
	return list
}

// Proxy is one proxy in full; false when none of the id is registered or open here. node "" is the host's own.
func (h *Host) Proxy(node, id string) (Status, bool) {
	node = cmp.Or(node, h.cfg.Node)
	h.mu.Lock()
	var best *member
	for _, m := range h.proxies {
		if m.key.node == node && m.key.id == id && (best == nil || len(m.streams) > len(best.streams)) {
			best = m
		}
	}
	h.mu.Unlock()
	if best != nil {
		return h.status(best, true), true
	}
	if svc := h.cfg.Directory.Find(node, id); svc != nil {
		return unopened(svc)
	}
	return Status{}, false
}

func (h *Host) status(m *member, details bool) Status {
	now := h.cfg.Clock.Now()
	h.mu.Lock()
	reg := m.proxy.Registration()
	s := Status{Node: m.key.node, ID: m.key.id, Kind: reg.Kind, Service: reg.Service(),
		Connection: Connection{Streams: len(m.streams)}, Upstreams: upstreams(reg),
		Missing: slices.Clone(m.proxy.Missing()), Problems: slices.Clone(m.proxy.Problems())}
	h.mu.Unlock()
	sets := m.sets.Load()
	a := &m.applied
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Envoy, s.Since, s.Answered, s.Refused = a.version, a.since, a.answered, a.refused
	if r := a.refusal; r != nil {
		s.Refusal = &Refused{Type: r.Type.String(), Resources: r.Resources, Words: r.Words, At: r.At}
	}
	if sets != nil {
		for _, t := range mesh.Every {
			for _, r := range sets[t].All() {
				d := a.resourceLocked(r)
				s.Resources++
				if d.Applied != d.Version {
					s.Pending++
					if !r.Changed.IsZero() {
						s.LagMillis = max(s.LagMillis, now.Sub(r.Changed).Milliseconds())
					}
				}
				if details {
					s.Details = append(s.Details, d)
				}
			}
		}
	}
	s.State = stateOf(&s, sets != nil)
	return s
}

// stateOf judges a status.
func stateOf(s *Status, ready bool) string {
	switch {
	case !ready:
		return StateWaiting
	case s.Streams == 0:
		return StateDisconnected
	case s.Pending == 0:
		return StateSynced
	case s.Refusal != nil && !s.Refusal.At.Before(s.Since):
		return StateRefused
	}
	return StatePending
}

// resourceLocked is what the proxy has of a resource.
func (a *applied) resourceLocked(r *mesh.Resource) Resource {
	d := Resource{Type: r.Type.String(), Name: r.Name, Version: r.Version, Changed: r.Changed}
	if at, found := slices.BinarySearchFunc(a.list, r, compareTaken); found {
		t := a.list[at]
		d.Applied, d.AppliedAt = t.resource.Version, time.Unix(0, t.at)
		if took := d.AppliedAt.Sub(r.Changed); t.resource.Version == r.Version && !r.Changed.IsZero() && took >= 0 &&
			took < newsAge {
			millis := float64(took.Microseconds()) / 1000
			d.TookMillis = &millis
		}
	}
	return d
}
