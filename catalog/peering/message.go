package peering

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// The calls between the servers of two clusters. The side that used a token makes all of them: it establishes once,
// then pulls what the other exports, waiting for it, and pushes what it exports itself.
const (
	MethodEstablish = "peering.establish"
	MethodPull      = "peering.pull"
	MethodPush      = "peering.push"
)

// MaxMessageBytes bounds one message: a batch, the service that passes its bound, and what is about them.
const MaxMessageBytes = MaxBatchBytes + MaxServiceBytes + 1<<20

// Ask is what one side asks of the other.
type Ask struct {
	// Relayed is set by a server that does not lead and passes the request on, so that it is passed on once.
	Relayed bool
	// ID is what the other side calls the peering; Secret proves that we are who it means.
	ID, Secret string
	// Establish alone: what we call the peering, the secret of all that is asked later, and who we are.
	From   string
	Stream string
	Remote Remote
	// Session is of this connection, 0 in the first request of it.
	Session uint64
	// Terminated says, with a push, that our side is deleted.
	Terminated bool
	Batch      Batch // of a push
}

// Reply is what the other side says.
type Reply struct {
	Session uint64
	// Terminated says that the other side is deleted.
	Terminated bool
	Remote     Remote // of Establish
	Batch      Batch  // of a pull
}

func (r *Remote) pass(c *pack.Coder) { c.String(&r.Partition, &r.Datacenter) }

func (a *Ask) pass(c *pack.Coder) {
	c.Bool(&a.Relayed)
	c.String(&a.ID, &a.Secret, &a.From, &a.Stream)
	c.Record(a.Remote.pass)
	pack.Unsigned(c, &a.Session)
	c.Bool(&a.Terminated)
	c.Record(a.Batch.pass)
}

func (r *Reply) pass(c *pack.Coder) {
	pack.Unsigned(c, &r.Session)
	c.Bool(&r.Terminated)
	c.Record(r.Remote.pass)
	c.Record(r.Batch.pass)
}

// Encode is the request as it travels.
func (a *Ask) Encode() []byte { return pack.AppendRecord(nil, a.pass) }

// Encode is the reply as it travels.
func (r *Reply) Encode() []byte { return pack.AppendRecord(nil, r.pass) }

// ReadAsk reads a request, which may come from anybody.
func ReadAsk(b []byte) (*Ask, error) {
	a := &Ask{}
	r := pack.Read(b)
	pack.ReadRecord(r, a.pass)
	switch {
	case r.Err() != nil:
		return nil, errkind.E(errkind.Invalid, "read a request of a peer", r.Err())
	case len(a.ID) > MaxNameBytes || len(a.Secret) > 2*MaxNameBytes || len(a.From) > MaxNameBytes ||
		len(a.Stream) > 2*MaxNameBytes || len(a.Remote.Datacenter) > MaxNameBytes || len(a.Remote.Partition) > MaxNameBytes:
		return nil, errkind.New(errkind.Invalid, "read a request of a peer: a field is too long")
	}
	return a, nil
}

// ReadReply reads what a peer answered.
func ReadReply(b []byte) (*Reply, error) {
	p := &Reply{}
	r := pack.Read(b)
	pack.ReadRecord(r, p.pass)
	switch {
	case r.Err() != nil:
		return nil, errkind.E(errkind.Invalid, "read a reply of a peer", r.Err())
	case len(p.Remote.Datacenter) > MaxNameBytes || len(p.Remote.Partition) > MaxNameBytes:
		return nil, errkind.New(errkind.Invalid, "read a reply of a peer: a field is too long")
	}
	return p, nil
}
