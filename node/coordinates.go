package node

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/vivaldi"
	"corbel.dev/corbel/telemetry"
)

// The RPCs that bring the coordinates of nodes to a server: from agents, whose tokens are judged, and to the leader
// from servers that judged them.
const (
	methodCoordinate  = "coordinate.update"
	methodCoordinates = "coordinate.judged"
)

const (
	// pushRate is how many coordinates a second all agents together send; pushInterval the least
	// time between two of one agent.
	pushRate     = 64
	pushInterval = 15 * time.Second
	// flushInterval is how often a server writes what it was sent, in up to flushBatches commands
	// of flushSize nodes.
	flushInterval = 5 * time.Second
	flushBatches  = 5
	flushSize     = 128
	// stagedLimit bounds the nodes that wait to be written; those past it are left out and counted.
	stagedLimit = 16384
)

// coordinates brings where the nodes lie into the catalog. It is not worth a write per measurement:
// agents send theirs now and then, servers keep the newest of each node and write them together.
type coordinates struct {
	p       *Process
	dropped *telemetry.Counter

	mu     sync.Mutex // guards staged; held for map operations only
	staged map[string]vivaldi.Coord
}

func newCoordinates(p *Process) *coordinates {
	return &coordinates{p: p, dropped: p.metrics.Counter("coordinate.dropped"), staged: map[string]vivaldi.Coord{}}
}

// Own implements operatorrows.Coordinates.
func (c *coordinates) Own() vivaldi.Coord { return c.p.pool.Coordinate() }

// Stage implements operatorrows.Coordinates: the coordinate is written with the next batch.
func (c *coordinates) Stage(node string, at vivaldi.Coord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.staged[node]; !ok && len(c.staged) >= stagedLimit {
		c.dropped.Add(1)
		return
	}
	c.staged[node] = at
}

// Datacenters implements operatorrows.Coordinates: where the servers of all datacenters lie, as far as this one knows.
func (c *coordinates) Datacenters() map[string][]operatorrows.NodeCoordinate {
	out := map[string][]operatorrows.NodeCoordinate{}
	w := c.p.wan
	if w == nil {
		return out
	}
	own := wanName(c.p.cfg.Node.Name, c.p.cfg.Node.Datacenter)
	for _, m := range w.pool.Members(member.ActShow) {
		at, ok := w.pool.CoordinateOf(m.Name)
		if m.Name == own {
			at, ok = w.pool.Coordinate(), true
		}
		if dc := m.Tags["dc"]; ok && m.Status == member.Alive {
			out[dc] = append(out[dc], operatorrows.NodeCoordinate{Node: strings.TrimSuffix(m.Name, "."+dc), Coord: at})
		}
	}
	return out
}

// push sends this node's coordinate to a server until ctx ends.
func (c *coordinates) push(ctx context.Context) error {
	var sent vivaldi.Coord
	t := time.NewTimer(rand.N(time.Second + c.spread()))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		pause := max(pushInterval, c.spread())
		if at := c.Own(); at != sent {
			err := c.send(ctx, at)
			switch {
			case err == nil:
				sent = at
			case ctx.Err() == nil:
				c.p.log.Debug("cannot send this node's coordinate", "error", err)
				pause = time.Second + c.spread() // a server will be found
			}
		}
		t.Reset(pause - pause/10 + rand.N(pause/5))
	}
}

// spread is the time in which all nodes send once.
func (c *coordinates) spread() time.Duration {
	return time.Duration(len(c.p.pool.Members(member.ActShow))) * time.Second / pushRate
}

func (c *coordinates) send(ctx context.Context, at vivaldi.Coord) error {
	name := c.p.cfg.Node.Name
	if c.p.registry != nil {
		c.Stage(name, at)
		return nil
	}
	addr, err := c.p.anyServer()
	if err != nil {
		return err
	}
	token := c.p.tokens.get(tokenAgent)
	if token == "" {
		token = c.p.tokens.get(tokenDefault)
	}
	ctx, cancel := context.WithTimeout(ctx, flushInterval)
	defer cancel()
	_, err = c.p.rpc.Call(ctx, addr, methodCoordinate,
		encodeCoordinates(pack.String(nil, token), map[string]vivaldi.Coord{name: at}))
	return err
}

func encodeCoordinates(b []byte, batch map[string]vivaldi.Coord) []byte {
	b = pack.Uint(b, uint64(len(batch)))
	for name, at := range batch {
		b = pack.Bytes(pack.String(b, name), at.Append(nil))
	}
	return b
}

// serve takes coordinates in that agents send.
func (c *coordinates) serve(ctx context.Context, req []byte) ([]byte, error) {
	rd := pack.Read(req)
	grant, err := c.p.access.tokens.Grant(ctx, rd.String())
	if err != nil {
		return nil, err
	}
	return nil, c.receive(rd, grant)
}

// serveJudged takes coordinates in that other servers send.
func (c *coordinates) serveJudged(_ context.Context, req []byte) ([]byte, error) {
	return nil, c.receive(pack.Read(req), nil)
}

// receive stages what grant may write; nil may write all.
func (c *coordinates) receive(rd *pack.Reader, grant *acl.Grant) error {
	for range rd.Count() {
		name := rd.String()
		at, err := vivaldi.Decode(rd.Bytes())
		if rd.Err() != nil || err != nil {
			return errkind.New(errkind.Invalid, "damaged coordinates")
		}
		if grant != nil {
			if err := grant.Check(acl.Node, name, acl.Write); err != nil {
				return err
			}
		}
		c.Stage(name, at)
	}
	return rd.Err()
}

// flush writes what was sent, on the leader, or passes it on to the leader, until ctx ends.
func (c *coordinates) flush(ctx context.Context) error {
	t := time.NewTicker(flushInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		for range flushBatches {
			batch := c.take()
			if len(batch) == 0 {
				break
			}
			if err := c.write(ctx, batch); err != nil {
				if ctx.Err() == nil { // the agents send again
					c.p.log.Debug("cannot write coordinates", "nodes", len(batch), "error", err)
				}
				break
			}
		}
	}
}

func (c *coordinates) take() map[string]vivaldi.Coord {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := map[string]vivaldi.Coord{}
	for name, at := range c.staged {
		if len(batch) == flushSize {
			break
		}
		batch[name] = at
		delete(c.staged, name)
	}
	return batch
}

func (c *coordinates) write(ctx context.Context, batch map[string]vivaldi.Coord) error {
	ctx, cancel := context.WithTimeout(ctx, flushInterval)
	defer cancel()
	if !c.p.raft.IsLeader() {
		addr, err := c.p.leaderServer()
		if err != nil {
			return err
		}
		_, err = c.p.rpc.Call(ctx, addr, methodCoordinates, encodeCoordinates(nil, batch))
		return err
	}
	state := c.p.registry.State()
	cmd := &catalog.Records{}
	for name, at := range batch {
		n := state.Node(name)
		if n == nil {
			continue // not registered yet, or gone
		}
		key := strings.ToLower(n.Name)
		cmd.Ops = append(cmd.Ops, catalog.RecordOp{Verb: catalog.RecordSet, Record: catalog.Record{
			Kind: catalog.RecordCoordinate, Key: key, Node: key, Value: at.Append(nil)}})
	}
	if len(cmd.Ops) == 0 {
		return nil
	}
	result, err := c.p.registry.Apply(ctx, cmd)
	if err != nil {
		return err
	}
	return result.Err
}
