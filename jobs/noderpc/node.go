package noderpc

import (
	"encoding/json"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/pack"
)

// Register says what a node is. The servers keep Duty, CreateIndex and ModifyIndex of their own.
type Register struct {
	Key
	Spec     *jobs.Node // JSON inside
	RPCAddr  string     // where servers call it
	HTTPAddr string     // where its HTTP API answers
	TLS      bool       // of HTTPAddr
	// DriverTexts tells of each driver why it is healthy or not.
	DriverTexts map[string]string
}

// Registered answers.
type Registered struct {
	Index uint64
	Every time.Duration // between heartbeats
}

// Heartbeat says that nodes live: one, or the simulated ones of a process.
type Heartbeat struct{ Nodes []Key }

// Beaten answers: the nodes in Unknown have to register again.
type Beaten struct {
	Every   time.Duration
	Unknown []jobs.ID
}

// Bytes encodes m.
func (m *Register) Bytes() []byte {
	node, err := json.Marshal(m.Spec)
	if err != nil {
		panic("noderpc: " + err.Error()) // a Node has nothing that JSON cannot say
	}
	return message(func(b []byte) []byte {
		b = pack.Bytes(appendKey(b, m.Key), node)
		b = pack.Bool(pack.String(pack.String(b, m.RPCAddr), m.HTTPAddr), m.TLS)
		return appendMap(b, m.DriverTexts)
	})
}

// ReadRegister decodes. The node's id is the key's, whatever Spec says.
func ReadRegister(b []byte) (*Register, error) {
	r, err := open(b, "register")
	if err != nil {
		return nil, err
	}
	m := &Register{Key: r.key(), Spec: &jobs.Node{}}
	if text := r.Bytes(); len(text) > 0 {
		if err := json.Unmarshal(text, m.Spec); err != nil {
			r.wrong = err
		}
	}
	if len(m.Spec.Attributes) > MaxAttributes || len(m.Spec.Meta) > MaxAttributes {
		r.wrong = pack.ErrDamaged
	}
	m.Spec.ID, m.Spec.Duty = m.Key.Node, jobs.Duty{MaxAllocs: m.Spec.Duty.MaxAllocs}
	m.Spec.CreateIndex, m.Spec.ModifyIndex = 0, 0
	m.RPCAddr, m.HTTPAddr, m.TLS = r.String(), r.String(), r.Bool()
	m.DriverTexts = r.texts()
	return m, r.end("register")
}

// Bytes encodes m.
func (m *Registered) Bytes() []byte {
	return message(func(b []byte) []byte { return pack.Int(pack.Uint(b, m.Index), int64(m.Every)) })
}

// ReadRegistered decodes.
func ReadRegistered(b []byte) (*Registered, error) {
	r, err := open(b, "registered")
	if err != nil {
		return nil, err
	}
	m := &Registered{Index: r.Uint(), Every: time.Duration(r.Int())}
	return m, r.end("registered")
}

// Bytes encodes m.
func (m *Heartbeat) Bytes() []byte {
	return message(func(b []byte) []byte {
		b = pack.Uint(b, uint64(len(m.Nodes)))
		for _, k := range m.Nodes {
			b = appendKey(b, k)
		}
		return b
	})
}

// ReadHeartbeat decodes.
func ReadHeartbeat(b []byte) (*Heartbeat, error) {
	r, err := open(b, "heartbeat")
	if err != nil {
		return nil, err
	}
	m := &Heartbeat{}
	for range r.count(MaxNodes) {
		m.Nodes = append(m.Nodes, r.key())
	}
	return m, r.end("heartbeat")
}

// Bytes encodes m.
func (m *Beaten) Bytes() []byte {
	return message(func(b []byte) []byte { return appendIDs(pack.Int(b, int64(m.Every)), m.Unknown) })
}

// ReadBeaten decodes.
func ReadBeaten(b []byte) (*Beaten, error) {
	r, err := open(b, "beaten")
	if err != nil {
		return nil, err
	}
	m := &Beaten{Every: time.Duration(r.Int()), Unknown: r.ids(MaxNodes)}
	return m, r.end("beaten")
}

func appendIDs(b []byte, list []jobs.ID) []byte {
	b = pack.Uint(b, uint64(len(list)))
	for _, id := range list {
		b = appendID(b, id)
	}
	return b
}

func (r *reader) ids(most int) (list []jobs.ID) {
	for range r.count(most) {
		list = append(list, r.id())
	}
	return list
}
