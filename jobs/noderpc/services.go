package noderpc

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/pack"
)

// Services changes the native service registrations of a node: first Delete, then Upsert. All asks that what the
// node registered before and Upsert does not name goes too: a node says so when it starts.
type Services struct {
	Key
	All    bool
	Delete []string // ids
	Upsert []Registration
}

// Registration is a native service (NN-14). The node and its datacenter are the servers' to add.
type Registration struct {
	ID, Name, Namespace string
	Job                 string
	Alloc               jobs.ID
	Address             string
	Port                int
	Tags                []string
}

// SignAsk asks for a workload identity of a task, or of a service when Service is set.
type SignAsk struct {
	Key
	Alloc    jobs.ID
	Task     string
	Service  string
	Identity string // its name; "default"
}

// Signed is one.
type Signed struct {
	Token   string
	Expires jobs.Time // 0: never
}

// VariableAsk reads a variable for a template of a task.
type VariableAsk struct {
	Key
	Alloc jobs.ID
	Task  string
	Path  string
}

// Variable answers. Index is that of its last change, and Items is empty where there is none.
type Variable struct {
	Index uint64
	Items map[string]string
}

// InstancesAsk reads the instances of a native service in the namespace of an allocation, for a template of it.
type InstancesAsk struct {
	Key
	Alloc jobs.ID
	Name  string
}

// Instances answers. Index is that of the last change of any service.
type Instances struct {
	Index uint64
	List  []Registration
}

func (m *InstancesAsk) pass(c *pack.Coder) {
	m.Key.pass(c)
	passID(c, &m.Alloc)
	passText(c, &m.Name)
}

func (m *Instances) pass(c *pack.Coder) {
	pack.Unsigned(c, &m.Index)
	pack.List(c, &m.List, MaxUpdates, func(s *Registration) { c.Record(s.pass) })
}

func (m *Services) pass(c *pack.Coder) {
	m.Key.pass(c)
	c.Bool(&m.All)
	c.Strings(&m.Delete)
	pack.List(c, &m.Upsert, MaxUpdates, func(s *Registration) { c.Record(s.pass) })
}

func (s *Registration) pass(c *pack.Coder) {
	c.String(&s.ID, &s.Name, &s.Namespace, &s.Job)
	passID(c, &s.Alloc)
	c.String(&s.Address)
	pack.Signed(c, &s.Port)
	c.Strings(&s.Tags)
}

func (m *SignAsk) pass(c *pack.Coder) {
	m.Key.pass(c)
	passID(c, &m.Alloc)
	c.String(&m.Task, &m.Service, &m.Identity)
}

func (m *Signed) pass(c *pack.Coder) {
	c.String(&m.Token)
	pack.Signed(c, &m.Expires)
}

func (m *VariableAsk) pass(c *pack.Coder) {
	m.Key.pass(c)
	passID(c, &m.Alloc)
	c.String(&m.Task, &m.Path)
}

func (m *Variable) pass(c *pack.Coder) {
	pack.Unsigned(c, &m.Index)
	passTexts(c, &m.Items)
}
