// Package catalogplane wires the catalog to those who ask for it: agents that register what runs on their hosts, and
// operators who look after its Raft group and its snapshots.
package catalogplane

import (
	"context"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/hedge"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// The RPCs of anti-entropy. Requests and answers are commands in the catalog's
// own encoding, so that no second description of the objects exists.
const (
	MethodApply = "catalog.apply"
	MethodNode  = "catalog.node"
)

// Applier is the part of the registry that anti-entropy writes through.
type Applier interface {
	Apply(ctx context.Context, c catalog.Command) (catalog.Result, error)
	State() *statestore.State
}

// Servers is the catalog as an agent's anti-entropy sees it
// (local.Servers): on a server the registry when it leads, else the leader, and
// on a client agent any server, which passes writes on.
type Servers struct {
	Client *rpc.Client
	// Own is nil on client agents and on servers that do not lead at the moment.
	Own func() Applier
	// Target is where to send what cannot be done here.
	Target func() (string, error)
	// Allow decides on the leader whether a token may register or remove; nil allows everything.
	Allow func(token string, c catalog.Command) error
	// Sees tells there what a token may see of a node's registrations; nil shows everything.
	Sees func(token string, list []*catalog.Register) ([]*catalog.Register, error)
}

func (s *Servers) apply(ctx context.Context, token string, c catalog.Command) error {
	if reg := s.Own(); reg != nil {
		if s.Allow != nil {
			if err := s.Allow(token, c); err != nil {
				return err
			}
		}
		result, err := reg.Apply(ctx, c)
		if err == nil {
			return result.Err
		}
		if !errkind.Is(err, errkind.NotLeader) {
			return err
		}
	}
	_, err := s.ask(ctx, MethodApply, pack.Bytes(pack.String(nil, token), catalog.EncodeCommand(nil, c)))
	return err
}

// ask calls the target. What is asked may be carried out twice: one agent alone speaks for its node, and it compares
// what the catalog has with what it wants.
func (s *Servers) ask(ctx context.Context, method string, req []byte) ([]byte, error) {
	return hedge.Repeat(ctx, s.Client, s.Target, method, req)
}

// Register implements local.Servers.
func (s *Servers) Register(ctx context.Context, token string, r *catalog.Register) error {
	return s.apply(ctx, token, r)
}

// RegisterBatch implements local.Servers.
func (s *Servers) RegisterBatch(ctx context.Context, token string, list []*catalog.Register) error {
	return s.apply(ctx, token, &catalog.RegisterBatch{Registrations: list})
}

// Deregister implements local.Servers.
func (s *Servers) Deregister(ctx context.Context, token string, d *catalog.Deregister) error {
	return s.apply(ctx, token, d)
}

// NodeServices implements local.Servers.
func (s *Servers) NodeServices(ctx context.Context, token, node string) ([]*catalog.Service, error) {
	batch, err := s.node(ctx, token, node)
	if err != nil {
		return nil, err
	}
	var list []*catalog.Service
	for _, r := range batch {
		if r.Service != nil {
			list = append(list, r.Service)
		}
	}
	return list, nil
}

// NodeChecks implements local.Servers.
func (s *Servers) NodeChecks(ctx context.Context, token, node string) ([]*catalog.Check, error) {
	batch, err := s.node(ctx, token, node)
	if err != nil {
		return nil, err
	}
	var list []*catalog.Check
	for _, r := range batch {
		list = append(list, r.Checks...)
	}
	return list, nil
}

// NodeInfo implements local.Servers.
func (s *Servers) NodeInfo(ctx context.Context, token, node string) (*catalog.Node, error) {
	batch, err := s.node(ctx, token, node)
	if err != nil || len(batch) == 0 {
		return nil, err
	}
	return &batch[0].Node, nil
}

// node reads what the catalog holds of a node, as registrations, as far as the token may see it.
func (s *Servers) node(ctx context.Context, token, name string) ([]*catalog.Register, error) {
	if reg := s.Own(); reg != nil {
		list := nodeRegistrations(reg.State(), name)
		if s.Sees == nil {
			return list, nil
		}
		return s.Sees(token, list)
	}
	reply, err := s.ask(ctx, MethodNode, pack.String(pack.String(nil, name), token))
	if err != nil {
		return nil, err
	}
	c, err := catalog.DecodeCommand(reply)
	if err != nil {
		return nil, err
	}
	batch, ok := c.(*catalog.RegisterBatch)
	if !ok {
		return nil, errkind.New(errkind.Internal, "the server's answer is no list of registrations")
	}
	return batch.Registrations, nil
}

// nodeRegistrations lists a node as one registration for itself and its own
// checks and one for each service; nil when it is unknown.
func nodeRegistrations(state *statestore.State, name string) []*catalog.Register {
	n := state.Node(name)
	if n == nil {
		return nil
	}
	own := &catalog.Register{Node: *n}
	for c := range state.ChecksOfNode(name) {
		own.Checks = append(own.Checks, c)
	}
	list := []*catalog.Register{own}
	for svc := range state.ServicesOfNode(name) {
		list = append(list, &catalog.Register{Node: *n, SkipNodeUpdate: true, Service: svc})
	}
	return list
}

// Limits is the part of the API that counts what reaches this server.
type Limits interface {
	AdmitWrite(op, remote string) error
	AdmitRead(op, remote string) error
}

// Handle serves the RPCs of anti-entropy on a server. What only the
// leader may do is passed on to it once.
//
// They count against the server's request limits as what they are in the contract: reads and writes of the catalog.
func (s *Servers) Handle(srv *rpc.Server, limits Limits) {
	srv.Handle(wire.Members, MethodApply, func(ctx context.Context, req []byte) ([]byte, error) {
		if err := limits.AdmitWrite("Catalog.Register", rpc.Peer(ctx)); err != nil {
			return nil, errkind.E(errkind.Overloaded, "", err)
		}
		rd := pack.Read(req)
		token, command := rd.String(), rd.Bytes()
		if rd.Err() != nil {
			return nil, errkind.E(errkind.Invalid, "read a registration", rd.Err())
		}
		c, err := catalog.DecodeCommand(command)
		if err != nil {
			return nil, err
		}
		switch c.(type) {
		case *catalog.Register, *catalog.RegisterBatch, *catalog.Deregister:
		default:
			return nil, errkind.New(errkind.Invalid, "only registrations may come this way")
		}
		return nil, s.apply(ctx, token, c)
	})
	srv.Handle(wire.Members, MethodNode, func(ctx context.Context, req []byte) ([]byte, error) {
		if err := limits.AdmitRead("Catalog.NodeServices", rpc.Peer(ctx)); err != nil {
			return nil, errkind.E(errkind.Overloaded, "", err)
		}
		rd := pack.Read(req)
		name, token := rd.String(), ""
		if rd.More() { // else it is an older agent, which sees what everybody may
			token = rd.String()
		}
		if rd.Err() != nil {
			return nil, errkind.E(errkind.Invalid, "read a node", rd.Err())
		}
		list, err := s.node(ctx, token, name)
		if err != nil {
			return nil, err
		}
		return catalog.EncodeCommand(nil, &catalog.RegisterBatch{Registrations: list}), nil
	})
}
