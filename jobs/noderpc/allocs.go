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

func (m *Watch) pass(c *pack.Coder) {
	m.Key.pass(c)
	pack.Unsigned(c, &m.Since)
}

// pass passes a frame. Each Alloc has a place in Jobs.
func (m *Allocs) pass(c *pack.Coder) {
	pack.Unsigned(c, &m.Index)
	c.Bool(&m.Full)
	passIDs(c, &m.Present, MaxAllocs)
	pack.List(c, &m.Jobs, MaxAllocs, func(text *[]byte) { c.Copy(text) })
	pack.List(c, &m.Allocs, MaxAllocs, func(a *Alloc) {
		c.Record(a.pass)
		if a.Job < 0 || a.Job >= len(m.Jobs) {
			c.Fail(pack.ErrDamaged)
		}
	})
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
}

func (m *Updated) pass(c *pack.Coder) { pack.Unsigned(c, &m.Index) }
