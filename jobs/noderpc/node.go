package noderpc

import (
	"encoding/json"
	"hash/fnv"
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
type Heartbeat struct {
	Nodes []Key
	// Held is what some of the Nodes have, now and then, to be compared with what the servers know. A release before it
	// compares nothing.
	Held []Held
}

// Held is what a node has: the Sum of its allocations that are not over.
type Held struct {
	Node jobs.ID
	Sum  uint64
}

// Sum adds up allocations with what their node says of them, in any order.
type Sum uint64

// Add adds one that is not over.
func (s *Sum) Add(id jobs.ID, status string) {
	h := fnv.New64a()
	_, _ = h.Write(id[:]) // it takes everything
	_, _ = h.Write([]byte(status))
	*s += Sum(h.Sum64())
}

// Beaten answers: the nodes in Unknown have to register again.
type Beaten struct {
	Every   time.Duration
	Unknown []jobs.ID
	// Known is what the servers know of the nodes that hold something else.
	Known []Known
}

// Known is what the servers know of a node's allocations that are not over.
type Known struct {
	Node   jobs.ID
	Allocs []KnownAlloc
}

// KnownAlloc is one of them, with what its node said last, by what the servers know.
type KnownAlloc struct {
	ID     jobs.ID
	Status string
}

func (m *Register) pass(c *pack.Coder) {
	m.Key.pass(c)
	m.passSpec(c)
	c.String(&m.RPCAddr, &m.HTTPAddr)
	c.Bool(&m.TLS)
	passTexts(c, &m.DriverTexts)
}

// passSpec passes the node. Its id is the key's, whatever Spec says.
func (m *Register) passSpec(c *pack.Coder) {
	var text []byte
	if !c.Reads() {
		var err error
		if text, err = json.Marshal(m.Spec); err != nil {
			panic("noderpc: " + err.Error()) // a Node has nothing that JSON cannot say
		}
		c.Bytes(&text)
		return
	}
	m.Spec = &jobs.Node{}
	if c.Bytes(&text); len(text) > 0 {
		if err := json.Unmarshal(text, m.Spec); err != nil {
			c.Fail(err)
		}
	}
	if len(m.Spec.Attributes) > MaxAttributes || len(m.Spec.Meta) > MaxAttributes {
		c.Fail(pack.ErrTooMany)
	}
	m.Spec.ID, m.Spec.Duty = m.Key.Node, jobs.Duty{MaxAllocs: m.Spec.Duty.MaxAllocs}
	m.Spec.CreateIndex, m.Spec.ModifyIndex = 0, 0
}

func (m *Registered) pass(c *pack.Coder) {
	pack.Unsigned(c, &m.Index)
	pack.Signed(c, &m.Every)
}

func (m *Heartbeat) pass(c *pack.Coder) {
	pack.List(c, &m.Nodes, MaxNodes, func(k *Key) { k.pass(c) })
	pack.List(c, &m.Held, MaxNodes, func(h *Held) {
		c.Record(func(c *pack.Coder) {
			passID(c, &h.Node)
			pack.Unsigned(c, &h.Sum)
		})
	})
}

func (m *Beaten) pass(c *pack.Coder) {
	pack.Signed(c, &m.Every)
	passIDs(c, &m.Unknown, MaxNodes)
	pack.List(c, &m.Known, MaxNodes, func(k *Known) { c.Record(k.pass) })
}

func (k *Known) pass(c *pack.Coder) {
	passID(c, &k.Node)
	pack.List(c, &k.Allocs, MaxAllocs, func(a *KnownAlloc) {
		c.Record(func(c *pack.Coder) {
			passID(c, &a.ID)
			c.String(&a.Status)
		})
	})
}
