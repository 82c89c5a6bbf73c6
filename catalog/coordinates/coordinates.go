// Package coordinates brings where the nodes lie into the catalog. It is not worth a write per measurement: each node
// sends its coordinate now and then, the fewer times the more nodes there are (Push), and servers keep the newest of
// each node and write them together (Staging). Bounded: past 16,384 nodes a coordinate is left out and counted.
package coordinates

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/vivaldi"
	"corbel.dev/corbel/telemetry"
)

// The RPCs that bring the coordinates of nodes to a server: from agents, whose tokens are judged, and to the leader
// from servers that judged them.
const (
	MethodUpdate = "coordinate.update"
	MethodJudged = "coordinate.judged"
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

// Own is the coordinate of the node that pushes it.
type Own struct {
	Now func() vivaldi.Coord
	// Nodes tells how many nodes there are: all of them share pushRate.
	Nodes func() int
	// Send brings it to a server, within the context's time.
	Send func(ctx context.Context, at vivaldi.Coord) error
	Log  *slog.Logger
}

// Push sends the coordinate, when it has changed, until ctx ends.
func (o Own) Push(ctx context.Context) error {
	var sent vivaldi.Coord
	t := time.NewTimer(rand.N(time.Second + o.spread()))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		pause := max(pushInterval, o.spread())
		if at := o.Now(); at != sent {
			err := o.send(ctx, at)
			switch {
			case err == nil:
				sent = at
			case ctx.Err() == nil:
				o.Log.Debug("cannot send this node's coordinate", "error", err)
				pause = time.Second + o.spread() // a server will be found
			}
		}
		t.Reset(pause - pause/10 + rand.N(pause/5))
	}
}

// spread is the time in which all nodes send once.
func (o Own) spread() time.Duration { return time.Duration(o.Nodes()) * time.Second / pushRate }

func (o Own) send(ctx context.Context, at vivaldi.Coord) error {
	ctx, cancel := context.WithTimeout(ctx, flushInterval)
	defer cancel()
	return o.Send(ctx, at)
}

// Update is the request of MethodUpdate by which a node with this token sends its coordinate.
func Update(token, node string, at vivaldi.Coord) []byte {
	return encode(pack.String(nil, token), map[string]vivaldi.Coord{node: at})
}

// Catalog is where coordinates are written.
type Catalog interface {
	State() *statestore.State
	Apply(ctx context.Context, c catalog.Command) (catalog.Result, error)
}

// Config describes a Staging.
type Config struct {
	Catalog Catalog
	// Leads tells whether this server writes itself; else CallLeader passes on what it was sent.
	Leads      func() bool
	CallLeader func(ctx context.Context, method string, req []byte) ([]byte, error)
	// Grant tells what a token may do.
	Grant   func(ctx context.Context, token string) (*acl.Grant, error)
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

// Staging keeps on a server the newest coordinate of each node until it is written. Safe for concurrent use.
type Staging struct {
	cfg     Config
	dropped *telemetry.Counter

	mu     sync.Mutex // guards staged; held for map operations only
	staged map[string]vivaldi.Coord
}

// New returns an empty Staging.
func New(cfg Config) *Staging {
	return &Staging{cfg: cfg, dropped: cfg.Metrics.Counter("coordinate.dropped"), staged: map[string]vivaldi.Coord{}}
}

// Stage has the coordinate of a node written with the next batch.
func (c *Staging) Stage(node string, at vivaldi.Coord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.staged[node]; !ok && len(c.staged) >= stagedLimit {
		c.dropped.Add(1)
		return
	}
	c.staged[node] = at
}

func encode(b []byte, batch map[string]vivaldi.Coord) []byte {
	b = pack.Uint(b, uint64(len(batch)))
	for name, at := range batch {
		b = pack.Bytes(pack.String(b, name), at.Append(nil))
	}
	return b
}

// Serve implements MethodUpdate.
func (c *Staging) Serve(ctx context.Context, req []byte) ([]byte, error) {
	rd := pack.Read(req)
	grant, err := c.cfg.Grant(ctx, rd.String())
	if err != nil {
		return nil, err
	}
	return nil, c.receive(rd, grant)
}

// ServeJudged implements MethodJudged.
func (c *Staging) ServeJudged(_ context.Context, req []byte) ([]byte, error) {
	return nil, c.receive(pack.Read(req), nil)
}

// receive stages what grant may write; nil may write all.
func (c *Staging) receive(rd *pack.Reader, grant *acl.Grant) error {
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

// Run writes what was sent, on the leader, or passes it on to the leader, until ctx ends.
func (c *Staging) Run(ctx context.Context) error {
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
					c.cfg.Log.Debug("cannot write coordinates", "nodes", len(batch), "error", err)
				}
				break
			}
		}
	}
}

func (c *Staging) take() map[string]vivaldi.Coord {
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

func (c *Staging) write(ctx context.Context, batch map[string]vivaldi.Coord) error {
	ctx, cancel := context.WithTimeout(ctx, flushInterval)
	defer cancel()
	if !c.cfg.Leads() {
		_, err := c.cfg.CallLeader(ctx, MethodJudged, encode(nil, batch))
		return err
	}
	state := c.cfg.Catalog.State()
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
	result, err := c.cfg.Catalog.Apply(ctx, cmd)
	if err != nil {
		return err
	}
	return result.Err
}
