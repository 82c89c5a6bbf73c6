// Package noderpc is what a node and the servers say to each other: names of methods, messages, and their encoding.
//
// A node calls any server (Members); a server that does not lead passes the call on. A server calls a node (Servers)
// at the RPC address with which it registered.
//
//	node -> servers
//	  jobs.node.register     call    Register -> Registered     at the start, and when its fingerprint changes
//	  jobs.node.heartbeat    call    Heartbeat -> Beaten        each Beaten.Every; costs no commit
//	  jobs.node.allocs       stream  Watch -> Allocs ...        the node's allocations, pushed as they change
//	  jobs.node.update       call    Updates -> Updated         states of allocations, newest of each, each 200 ms
//	  jobs.node.services     call    Services -> nothing        native service registrations
//	  jobs.node.identity     call    SignAsk -> Signed          a workload identity (JWT), when a task needs it
//	  jobs.node.variable     call    VariableAsk -> Variable    for templates, with the rights of the workload
//	  jobs.node.instances    call    InstancesAsk -> Instances  native services, for templates
//
//	servers -> node
//	  jobs.alloc.logs        stream  LogAsk -> Chunk ...        a task's output
//	  jobs.alloc.read        stream  FileAsk -> Chunk ...       a file of an allocation
//	  jobs.alloc.ls          call    FileAsk -> JSON            []{Name, IsDir, Size, FileMode, ModTime, ContentType}
//	  jobs.alloc.stat        call    FileAsk -> JSON            one of those
//	  jobs.alloc.exec        stream  ExecAsk -> ExecOutput ...  a command in a task
//	  jobs.alloc.input       call    ExecInput -> nothing       what the command of a session reads
//	  jobs.alloc.restart     call    TaskAsk -> nothing
//	  jobs.alloc.signal      call    TaskAsk -> nothing
//	  jobs.alloc.collect     call    TaskAsk -> nothing         garbage collection; of all dead ones without an Alloc
//	  jobs.alloc.stats       call    TaskAsk -> JSON            the contract's AllocResourceUsage
//	  jobs.alloc.checks      call    TaskAsk -> JSON            the contract's AllocCheckStatuses
//	  jobs.host.stats        call    nothing -> JSON            the contract's HostStats
//	  jobs.host.monitor      stream  MonitorAsk -> Chunk ...    the log of the agent, from now on
//	  jobs.host.meta         call    MetaAsk -> JSON            the contract's NodeMetaResponse; changes are durable
//
// Rules:
//   - A message is one pack record: fields are only added at its end. What is JSON inside is said at the field.
//   - Everything of a node carries its Key: the servers compare the secret with that of the first registration and
//     answer Denied to another. A node is answered about itself only.
//   - Errors have kinds: NotFound for an allocation, task or file that the node does not have, Invalid for a bad
//     path or signal, Denied for a path that leaves the allocation. NotFound to a heartbeat means: register again.
//   - Readers take at most MaxMessageBytes and check the counts below; what is beyond them is Invalid.
//   - An Update has its place among all of its node (Order), for a server may hold a batch whose sender has long turned
//     to another one: what comes after a newer update of the same allocation changes nothing.
//   - Now and then a heartbeat has a sum of what the node holds. The leader answers with what it knows where its own
//     sum is another one, and the node says again what differs: nothing is stored unless something does.
//   - Watch: the first frame is Full: Present names every allocation that the node is to know, Allocs those that
//     changed after Since. What is not Present may be deleted. Later frames have what changed. A node resumes at
//     the Index of the last frame that it has stored.
package noderpc

import (
	"fmt"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// What nodes call.
const (
	MethodRegister  = "jobs.node.register"
	MethodHeartbeat = "jobs.node.heartbeat"
	MethodAllocs    = "jobs.node.allocs"
	MethodUpdate    = "jobs.node.update"
	MethodServices  = "jobs.node.services"
	MethodIdentity  = "jobs.node.identity"
	MethodVariable  = "jobs.node.variable"
	MethodInstances = "jobs.node.instances"
)

// What servers call.
const (
	MethodLogs      = "jobs.alloc.logs"
	MethodRead      = "jobs.alloc.read"
	MethodList      = "jobs.alloc.ls"
	MethodStat      = "jobs.alloc.stat"
	MethodExec      = "jobs.alloc.exec"
	MethodInput     = "jobs.alloc.input"
	MethodRestart   = "jobs.alloc.restart"
	MethodSignal    = "jobs.alloc.signal"
	MethodCollect   = "jobs.alloc.collect"
	MethodStats     = "jobs.alloc.stats"
	MethodChecks    = "jobs.alloc.checks"
	MethodHostStats = "jobs.host.stats"
	MethodMeta      = "jobs.host.meta"
	MethodMonitor   = "jobs.host.monitor"
)

// Bounds.
const (
	MaxMessageBytes = 32 << 20
	MaxNodes        = 20_000  // of one heartbeat: simulated ones share it
	MaxUpdates      = 20_000  // of one batch
	MaxAllocs       = 100_000 // of one frame
	MaxChunkBytes   = 64 << 10
	MaxAttributes   = 4096
	MaxTextBytes    = 64 << 10 // paths, names
)

// BatchEvery is how long a node collects updates (NK-5).
const BatchEvery = 200 * time.Millisecond

// Key is who a node is.
type Key struct {
	Node   jobs.ID
	Secret jobs.ID
}

func (k *Key) pass(c *pack.Coder) { passID(c, &k.Node, &k.Secret) }

// message is what passes its fields.
type message interface{ pass(c *pack.Coder) }

// Bytes encodes a message.
func Bytes(m message) []byte { return pack.AppendRecord(nil, m.pass) }

// Read decodes a message. Bytes in a Chunk, an ExecInput and an ExecOutput belong to b.
func Read[T any, M interface {
	*T
	message
}](b []byte) (*T, error) {
	m := M(new(T))
	if len(b) > MaxMessageBytes {
		return nil, errkind.Errorf(errkind.TooLarge, "%T: the message is too large", *m)
	}
	r := pack.Read(b)
	pack.ReadRecord(r, m.pass)
	if r.Err() != nil {
		return m, errkind.E(errkind.Invalid, fmt.Sprintf("read %T", *m), r.Err())
	}
	return m, nil
}

// passID passes ids; one that is zero as nothing.
func passID(c *pack.Coder, list ...*jobs.ID) {
	for _, id := range list {
		var b []byte
		if !c.Reads() && !id.IsZero() {
			b = id[:]
		}
		c.Bytes(&b)
		if c.Reads() {
			if len(b) != 0 && len(b) != len(id) {
				c.Fail(pack.ErrDamaged)
				return
			}
			copy(id[:], b)
		}
	}
}

func passIDs(c *pack.Coder, list *[]jobs.ID, most int) {
	pack.List(c, list, most, func(id *jobs.ID) { passID(c, id) })
}

// passText passes a name or a path.
func passText(c *pack.Coder, list ...*string) {
	c.String(list...)
	for _, p := range list {
		if len(*p) > MaxTextBytes {
			c.Fail(pack.ErrDamaged)
		}
	}
}

func passTexts(c *pack.Coder, m *map[string]string) {
	pack.Map(c, m, MaxAttributes, func(text *string) { c.String(text) })
}
