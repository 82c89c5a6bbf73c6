package noderpc

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/pack"
)

// Watch asks for a node's allocations.
type Watch struct {
	Key
	Since uint64 // the Index of the last frame that the node has; 0 has none
}

// Allocs is a frame of the answer.
type Allocs struct {
	Index uint64
	Full  bool
	// Present are all allocations that the node is to know, in a Full frame.
	Present []jobs.ID
	// Jobs are the versions of jobs that Allocs refer to: JSON of jobwire.Job, so that a server encodes each once.
	Jobs   [][]byte
	Allocs []Alloc
}

// Alloc is an allocation as its node needs it.
type Alloc struct {
	ID          jobs.ID
	ModifyIndex uint64
	Job         int // place in Allocs.Jobs
	Group       string
	Index       int
	Desired     jobs.Desired
	Client      string // status that the servers know
	Rollout     jobs.Rollout
	Previous    jobs.ID
	EvalID      jobs.ID
	CreateTime  jobs.Time
	Grant       jobs.Grant
}

// Update is what a node says of an allocation.
type Update struct {
	Alloc       jobs.ID
	Status      string // jobs.ClientPending ...
	Description string
	StartedAt   jobs.Time
	FinishedAt  jobs.Time // of its last task; 0 while one runs
	Health      jobs.Health
	HealthAt    jobs.Time
	// TaskStates is JSON of map[string]*jobwire.TaskState: servers keep and show it, and read nothing of it.
	TaskStates []byte
	// Network is JSON of the contract's NetworkStatus, or nothing.
	Network []byte
}

// Updates is a batch, at most one of an allocation.
type Updates struct {
	Key
	List []Update
}

// Updated answers.
type Updated struct{ Index uint64 }

// Bytes encodes m.
func (m *Watch) Bytes() []byte {
	return message(func(b []byte) []byte { return pack.Uint(appendKey(b, m.Key), m.Since) })
}

// ReadWatch decodes.
func ReadWatch(b []byte) (*Watch, error) {
	r, err := open(b, "watch")
	if err != nil {
		return nil, err
	}
	m := &Watch{Key: r.key(), Since: r.Uint()}
	return m, r.end("watch")
}

// Bytes encodes m.
func (m *Allocs) Bytes() []byte {
	return message(func(b []byte) []byte {
		b = appendIDs(pack.Bool(pack.Uint(b, m.Index), m.Full), m.Present)
		b = pack.Uint(b, uint64(len(m.Jobs)))
		for _, text := range m.Jobs {
			b = pack.Bytes(b, text)
		}
		b = pack.Uint(b, uint64(len(m.Allocs)))
		for i := range m.Allocs {
			b = m.Allocs[i].append(b)
		}
		return b
	})
}

// ReadAllocs decodes. Each Alloc has a place in Jobs.
func ReadAllocs(b []byte) (*Allocs, error) {
	r, err := open(b, "allocations")
	if err != nil {
		return nil, err
	}
	m := &Allocs{Index: r.Uint(), Full: r.Bool(), Present: r.ids(MaxAllocs)}
	for range r.count(MaxAllocs) {
		m.Jobs = append(m.Jobs, r.copied())
	}
	for range r.count(MaxAllocs) {
		inner := &reader{Reader: r.Record()}
		a := readAlloc(inner)
		if inner.end("") != nil || a.Job < 0 || a.Job >= len(m.Jobs) {
			r.wrong = pack.ErrDamaged
			break
		}
		m.Allocs = append(m.Allocs, a)
	}
	return m, r.end("allocations")
}

func (a *Alloc) append(b []byte) []byte {
	b, mark := pack.Begin(b)
	b = pack.Uint(pack.Uint(appendID(b, a.ID), a.ModifyIndex), uint64(a.Job))
	b = pack.Int(pack.String(b, a.Group), int64(a.Index))
	b = pack.String(pack.String(b, a.Desired.Status), a.Desired.Description)
	b = pack.Bool(pack.Bool(b, a.Desired.Migrate), a.Desired.Reschedule)
	b = pack.Bool(appendID(pack.String(b, a.Client), a.Rollout.Deployment), a.Rollout.Canary)
	b = pack.Int(pack.Uint(b, uint64(a.Rollout.Health)), int64(a.Rollout.At))
	b = pack.Int(appendID(appendID(b, a.Previous), a.EvalID), int64(a.CreateTime))
	return pack.End(appendGrant(b, &a.Grant), mark)
}

func readAlloc(r *reader) (a Alloc) {
	a.ID, a.ModifyIndex, a.Job = r.id(), r.Uint(), int(r.Uint())
	a.Group, a.Index = r.String(), int(r.Int())
	a.Desired = jobs.Desired{Status: r.String(), Description: r.String(), Migrate: r.Bool(), Reschedule: r.Bool()}
	a.Client = r.String()
	a.Rollout = jobs.Rollout{Deployment: r.id(), Canary: r.Bool(), Health: jobs.Health(r.Uint()), At: jobs.Time(r.Int())}
	a.Previous, a.EvalID, a.CreateTime = r.id(), r.id(), jobs.Time(r.Int())
	a.Grant = readGrant(r)
	return a
}

func appendGrant(b []byte, g *jobs.Grant) []byte {
	b = pack.Int(pack.Int(pack.Int(pack.Int(b, g.CPU), g.MemoryMB), g.DiskMB), g.MemoryMaxMB)
	b = pack.Uint(b, uint64(len(g.Ports)))
	for _, p := range g.Ports {
		b = pack.Int(pack.Int(pack.Int(pack.String(b, p.Label), int64(p.Value)), int64(p.To)), int64(p.Network))
	}
	b = pack.Uint(b, uint64(len(g.Cores)))
	for _, c := range g.Cores {
		b = pack.Uint(pack.String(b, c.Task), uint64(len(c.Cores)))
		for _, core := range c.Cores {
			b = pack.Uint(b, uint64(core))
		}
	}
	b = pack.Uint(b, uint64(len(g.Devices)))
	for _, d := range g.Devices {
		b = pack.Strings(pack.Int(pack.String(b, d.Task), int64(d.Group)), d.Instances)
	}
	return b
}

func readGrant(r *reader) (g jobs.Grant) {
	g.Vector = jobs.Vector{CPU: r.Int(), MemoryMB: r.Int(), DiskMB: r.Int()}
	g.MemoryMaxMB = r.Int()
	for range r.count(MaxAttributes) {
		g.Ports = append(g.Ports, jobs.PortGrant{Label: r.String(), Value: int(r.Int()), To: int(r.Int()),
			Network: int(r.Int())})
	}
	for range r.count(MaxAttributes) {
		c := jobs.CoreGrant{Task: r.String()}
		for range r.count(MaxAttributes) {
			c.Cores = append(c.Cores, uint16(r.Uint()))
		}
		g.Cores = append(g.Cores, c)
	}
	for range r.count(MaxAttributes) {
		g.Devices = append(g.Devices, jobs.DeviceGrant{Task: r.String(), Group: int(r.Int()), Instances: r.Strings()})
	}
	return g
}

// Bytes encodes m.
func (m *Updates) Bytes() []byte {
	return message(func(b []byte) []byte {
		b = pack.Uint(appendKey(b, m.Key), uint64(len(m.List)))
		for i := range m.List {
			b = m.List[i].Append(b)
		}
		return b
	})
}

// Append encodes u as a record of its own, for the servers' log too.
func (u *Update) Append(b []byte) []byte {
	b, mark := pack.Begin(b)
	b = pack.String(pack.String(appendID(b, u.Alloc), u.Status), u.Description)
	b = pack.Int(pack.Int(b, int64(u.StartedAt)), int64(u.FinishedAt))
	b = pack.Int(pack.Uint(b, uint64(u.Health)), int64(u.HealthAt))
	return pack.End(pack.Bytes(pack.Bytes(b, u.TaskStates), u.Network), mark)
}

// ReadUpdate decodes what Append wrote, from the next record of outer.
func ReadUpdate(outer *pack.Reader) Update {
	r := &reader{Reader: outer.Record()}
	u := Update{Alloc: r.id(), Status: r.String(), Description: r.String(), StartedAt: jobs.Time(r.Int()),
		FinishedAt: jobs.Time(r.Int()), Health: jobs.Health(r.Uint()), HealthAt: jobs.Time(r.Int()),
		TaskStates: r.copied(), Network: r.copied()}
	outer.Merge(r.Reader)
	return u
}

// ReadUpdates decodes.
func ReadUpdates(b []byte) (*Updates, error) {
	r, err := open(b, "updates")
	if err != nil {
		return nil, err
	}
	m := &Updates{Key: r.key()}
	for range r.count(MaxUpdates) {
		m.List = append(m.List, ReadUpdate(r.Reader))
	}
	return m, r.end("updates")
}

// Bytes encodes m.
func (m *Updated) Bytes() []byte {
	return message(func(b []byte) []byte { return pack.Uint(b, m.Index) })
}

// ReadUpdated decodes.
func ReadUpdated(b []byte) (*Updated, error) {
	r, err := open(b, "updated")
	if err != nil {
		return nil, err
	}
	m := &Updated{Index: r.Uint()}
	return m, r.end("updated")
}
