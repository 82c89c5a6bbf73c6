package noderpc

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/pack"
)

// Watch asks for a node's allocations.
type Watch struct {
	Key
	Since uint64 // the Index of the last frame that the node has; 0 has none
	// Bases is how many jobs the node keeps for as long as the stream lasts, for others to be told as differences from
	// them. An agent of an older release keeps none, and is told of whole jobs only.
	Bases int
}

// MaxBases bounds the jobs that a node keeps for a stream.
const MaxBases = 64

// Allocs is a frame of the answer.
type Allocs struct {
	Index uint64
	Full  bool
	// Present are all allocations that the node is to know, in a Full frame.
	Present []jobs.ID
	// Jobs are the versions of jobs that Allocs refer to: JSON of jobwire.Job, so that a server encodes each once.
	Jobs   [][]byte
	Allocs []Alloc
	// Bases are jobs to keep: each takes the place of the one that had its Slot. Children are jobs as differences from
	// them. A release before these sends neither.
	Bases    []Base
	Children []Child
	// Restored is the index at which an operator's snapshot replaced everything. When it changes the frame is Full, and
	// the node says again how its allocations and services are: what it said before may be gone.
	Restored uint64
}

// Base is a job that others are told as differences from. A node that gets a Base keeps it before it reads Children.
type Base struct {
	Slot int    // below the Watch's Bases
	Job  []byte // JSON of jobwire.Job
}

// Child is a dispatched job: all but what stands here is as in the Base of the Slot.
type Child struct {
	Slot     int
	ID, Name string
	Priority int
	jobs.Origin
	Meta map[string]string
	jobs.Revision
}

// Alloc is an allocation as its node needs it.
type Alloc struct {
	ID          jobs.ID
	ModifyIndex uint64
	Job         int // place in Allocs.Jobs, and from the end of that on in Allocs.Children
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
	// Order has the servers leave out what comes after a newer update of the allocation: a server may hold a batch whose
	// sender has long turned to another one.
	Order jobs.Order
}

// Updates is a batch, at most one of an allocation.
type Updates struct {
	Key
	List []Update
}

// Updated answers.
type Updated struct{ Index uint64 }

func (m *Watch) pass(c *pack.Coder) {
	m.Key.pass(c)
	pack.Unsigned(c, &m.Since)
	pack.Unsigned(c, &m.Bases)
	if m.Bases < 0 {
		c.Fail(pack.ErrDamaged)
	}
}

// pass passes a frame. Each Alloc has a place in Jobs or in Children.
func (m *Allocs) pass(c *pack.Coder) {
	pack.Unsigned(c, &m.Index)
	c.Bool(&m.Full)
	passIDs(c, &m.Present, MaxAllocs)
	pack.List(c, &m.Jobs, MaxAllocs, func(text *[]byte) { c.Copy(text) })
	pack.List(c, &m.Allocs, MaxAllocs, func(a *Alloc) {
		c.Record(a.pass)
	})
	pack.List(c, &m.Bases, MaxBases, func(b *Base) {
		pack.Unsigned(c, &b.Slot)
		c.Copy(&b.Job)
		if b.Slot < 0 || b.Slot >= MaxBases {
			c.Fail(pack.ErrDamaged)
		}
	})
	pack.List(c, &m.Children, MaxAllocs, func(child *Child) { c.Record(child.pass) })
	pack.Unsigned(c, &m.Restored)
	for i := range m.Allocs {
		if at := m.Allocs[i].Job; at < 0 || at >= len(m.Jobs)+len(m.Children) {
			c.Fail(pack.ErrDamaged)
		}
	}
}

func (m *Child) pass(c *pack.Coder) {
	pack.Unsigned(c, &m.Slot)
	if m.Slot < 0 || m.Slot >= MaxBases {
		c.Fail(pack.ErrDamaged)
	}
	c.String(&m.ID, &m.Name)
	pack.Signed(c, &m.Priority)
	c.String(&m.ParentID)
	c.Bool(&m.Dispatched)
	c.Copy(&m.Payload)
	c.String(&m.Token)
	passTexts(c, &m.Meta)
	pack.Unsigned(c, &m.Version)
	c.Bool(&m.Stop, &m.Stable)
	pack.Signed(c, &m.SubmitTime)
	pack.Unsigned(c, &m.CreateIndex, &m.ModifyIndex, &m.JobModifyIndex)
}

func (a *Alloc) pass(c *pack.Coder) {
	passID(c, &a.ID)
	pack.Unsigned(c, &a.ModifyIndex)
	pack.Unsigned(c, &a.Job)
	c.String(&a.Group)
	pack.Signed(c, &a.Index)
	c.String(&a.Desired.Status, &a.Desired.Description)
	c.Bool(&a.Desired.Migrate, &a.Desired.Reschedule)
	c.String(&a.Client)
	passID(c, &a.Rollout.Deployment)
	c.Bool(&a.Rollout.Canary)
	pack.Unsigned(c, &a.Rollout.Health)
	pack.Signed(c, &a.Rollout.At)
	passID(c, &a.Previous, &a.EvalID)
	pack.Signed(c, &a.CreateTime)
	passGrant(c, &a.Grant)
}

func passGrant(c *pack.Coder, g *jobs.Grant) {
	pack.Signed(c, &g.CPU, &g.MemoryMB, &g.DiskMB, &g.MemoryMaxMB)
	pack.List(c, &g.Ports, MaxAttributes, func(p *jobs.PortGrant) {
		c.String(&p.Label)
		pack.Signed(c, &p.Value, &p.To, &p.Network)
	})
	pack.List(c, &g.Cores, MaxAttributes, func(task *jobs.CoreGrant) {
		c.String(&task.Task)
		pack.List(c, &task.Cores, MaxAttributes, func(core *uint16) { pack.Unsigned(c, core) })
	})
	pack.List(c, &g.Devices, MaxAttributes, func(d *jobs.DeviceGrant) {
		c.String(&d.Task)
		pack.Signed(c, &d.Group)
		c.Strings(&d.Instances)
	})
}

func (m *Updates) pass(c *pack.Coder) {
	m.Key.pass(c)
	pack.List(c, &m.List, MaxUpdates, func(u *Update) { c.Record(u.pass) })
}

// Append encodes u as a record of its own.
func (u *Update) Append(b []byte) []byte { return pack.AppendRecord(b, u.pass) }

func (u *Update) pass(c *pack.Coder) {
	passID(c, &u.Alloc)
	c.String(&u.Status, &u.Description)
	pack.Signed(c, &u.StartedAt, &u.FinishedAt)
	pack.Unsigned(c, &u.Health)
	pack.Signed(c, &u.HealthAt)
	c.Copy(&u.TaskStates, &u.Network)
	pack.Unsigned(c, &u.Order.Life, &u.Order.Seq)
}

func (m *Updated) pass(c *pack.Coder) { pack.Unsigned(c, &m.Index) }
