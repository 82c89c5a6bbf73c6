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

// Bytes encodes m.
func (m *Services) Bytes() []byte {
	return message(func(b []byte) []byte {
		b = pack.Strings(pack.Bool(appendKey(b, m.Key), m.All), m.Delete)
		b = pack.Uint(b, uint64(len(m.Upsert)))
		for i := range m.Upsert {
			b = m.Upsert[i].Append(b)
		}
		return b
	})
}

// Append encodes s as a record of its own, for the servers' log too.
func (s *Registration) Append(b []byte) []byte {
	b, mark := pack.Begin(b)
	b = pack.String(pack.String(pack.String(pack.String(b, s.ID), s.Name), s.Namespace), s.Job)
	b = pack.Int(pack.String(appendID(b, s.Alloc), s.Address), int64(s.Port))
	return pack.End(pack.Strings(b, s.Tags), mark)
}

// ReadRegistration decodes what Append wrote, from the next record of outer.
func ReadRegistration(outer *pack.Reader) Registration {
	r := &reader{Reader: outer.Record()}
	s := Registration{ID: r.String(), Name: r.String(), Namespace: r.String(), Job: r.String(), Alloc: r.id(),
		Address: r.String(), Port: int(r.Int()), Tags: r.Strings()}
	outer.Merge(r.Reader)
	return s
}

// ReadServices decodes.
func ReadServices(b []byte) (*Services, error) {
	r, err := open(b, "services")
	if err != nil {
		return nil, err
	}
	m := &Services{Key: r.key(), All: r.Bool(), Delete: r.Strings()}
	for range r.count(MaxUpdates) {
		m.Upsert = append(m.Upsert, ReadRegistration(r.Reader))
	}
	return m, r.end("services")
}

// Bytes encodes m.
func (m *SignAsk) Bytes() []byte {
	return message(func(b []byte) []byte {
		b = pack.String(appendID(appendKey(b, m.Key), m.Alloc), m.Task)
		return pack.String(pack.String(b, m.Service), m.Identity)
	})
}

// ReadSignAsk decodes.
func ReadSignAsk(b []byte) (*SignAsk, error) {
	r, err := open(b, "sign")
	if err != nil {
		return nil, err
	}
	m := &SignAsk{Key: r.key(), Alloc: r.id(), Task: r.String(), Service: r.String(), Identity: r.String()}
	return m, r.end("sign")
}

// Bytes encodes m.
func (m *Signed) Bytes() []byte {
	return message(func(b []byte) []byte { return pack.Int(pack.String(b, m.Token), int64(m.Expires)) })
}

// ReadSigned decodes.
func ReadSigned(b []byte) (*Signed, error) {
	r, err := open(b, "signed")
	if err != nil {
		return nil, err
	}
	m := &Signed{Token: r.String(), Expires: jobs.Time(r.Int())}
	return m, r.end("signed")
}

// Bytes encodes m.
func (m *VariableAsk) Bytes() []byte {
	return message(func(b []byte) []byte {
		return pack.String(pack.String(appendID(appendKey(b, m.Key), m.Alloc), m.Task), m.Path)
	})
}

// ReadVariableAsk decodes.
func ReadVariableAsk(b []byte) (*VariableAsk, error) {
	r, err := open(b, "variable")
	if err != nil {
		return nil, err
	}
	m := &VariableAsk{Key: r.key(), Alloc: r.id(), Task: r.String(), Path: r.String()}
	return m, r.end("variable")
}

// Bytes encodes m.
func (m *Variable) Bytes() []byte {
	return message(func(b []byte) []byte { return appendMap(pack.Uint(b, m.Index), m.Items) })
}

// ReadVariable decodes.
func ReadVariable(b []byte) (*Variable, error) {
	r, err := open(b, "variable")
	if err != nil {
		return nil, err
	}
	m := &Variable{Index: r.Uint(), Items: r.texts()}
	return m, r.end("variable")
}
