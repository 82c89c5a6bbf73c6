// Package nodeclient is a node of the jobs plane: it tells the servers what the host is and that it lives, runs the
// allocations that they give it, and answers what they ask of them.
//
// What always holds:
//   - An allocation is run once: what the servers know to have ended is not begun again, and a record that is done is
//     not either.
//   - Of each allocation at most one update waits, the newest; they go together each noderpc.BatchEvery, less often
//     while the servers do not answer. Nothing of a node waits for the servers.
//   - What the servers know of allocations is compared with what the node has, each compareEvery, by a sum in a
//     heartbeat: what differs twice is said again, and what the node was never told is asked for.
//   - A server that is behind begins and ends nothing: a frame is taken only when it is as new as the node's
//     registration and as the newest frame that was taken. Servers that start read their log again, and what they show
//     meanwhile is long over: it would begin a second time, and nobody would end it.
//   - When Run's ctx ends, tasks go on running, unless Config.StopTasks.
//   - Dead allocations keep their folders and logs until there are more than GC.MaxAllocs, or the disk is fuller than
//     GC.DiskPercent, or the servers have forgotten them.
//
// Handlers (handlers.go) are for any goroutine.
package nodeclient

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/fingerprint"
	"corbel.dev/corbel/jobs/client/nodestate"
	"corbel.dev/corbel/jobs/client/workload"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/telemetry"
)

// Servers are the servers, any of which answers.
type Servers interface {
	Call(ctx context.Context, method string, req []byte) ([]byte, error)
	Stream(ctx context.Context, method string, req []byte) (Stream, error)
}

// Stream is an answer of many frames.
type Stream interface {
	Recv() ([]byte, error)
	Close() error
}

// Config is what a Client needs.
type Config struct {
	Node     Identity
	Drivers  map[string]driver.Driver
	Servers  Servers
	RPCAddr  func() string // where servers reach this process
	HTTPAddr func() string
	TLS      bool // of HTTPAddr
	Host     fingerprint.Options
	AllocDir string // "" makes no folders: for simulated nodes
	StateDir string // "" keeps nothing
	Volumes  map[string]allocrunner.Volume
	GC       GC
	// MaxKillTimeout bounds the kill timeouts of jobs.
	MaxKillTimeout time.Duration
	// PublishAllocs measures what allocations use, as metrics.
	PublishAllocs bool
	// StopTasks ends all tasks with the process.
	StopTasks bool
	Steps     []allocrunner.Step
	Services  allocrunner.Services
	Networks  Networks // nil: allocations have the host's
	FS        vfs.FS
	Clock     clock.Clock
	Log       *slog.Logger
	Metrics   *telemetry.Registry
}

// Networks is what the node needs of networks of allocations.
type Networks interface {
	allocrunner.Networks
	// Modes are the networks that groups may ask for, with attributes of the node.
	Modes(ctx context.Context) (modes []string, attributes map[string]string)
	// Keep takes away what former lives made for all allocations but these.
	Keep(ctx context.Context, allocs []string)
	// Tend repairs what others broke.
	Tend()
}

// Identity is who the node is.
type Identity struct {
	ID                     jobs.ID
	Name, Datacenter       string
	Region                 string
	Class, Pool            string
	Meta, Attributes       map[string]string // further attributes
	MaxAllocs              int
	ReservedForTheHost     jobs.Vector
	AdvertisedHostNetworks []jobs.HostNetwork
}

// GC is when dead allocations go.
type GC struct {
	MaxAllocs   int           // 50
	DiskPercent float64       // 80
	Every       time.Duration // 1 min
}

func (c *Config) complete() {
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.FS == nil {
		c.FS = vfs.OS{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.GC.MaxAllocs <= 0 {
		c.GC.MaxAllocs = 50
	}
	if c.GC.DiskPercent <= 0 {
		c.GC.DiskPercent = 80
	}
	if c.GC.Every <= 0 {
		c.GC.Every = time.Minute
	}
	if c.Node.Region == "" {
		c.Node.Region = "global"
	}
}

// Client is a node.
type Client struct {
	cfg   Config
	key   noderpc.Key
	store *nodestate.Store
	host  *allocrunner.Host // valid once Run looked at the host
	ready chan struct{}     // closed then
	told  chan struct{}     // closed when a server has taken the first registration
	life  context.Context   //nolint:containedctx // of the allocations, which outlive Run's when they are stopped
	queue queue
	compares
	sessions
	gauges
	facts

	mu sync.Mutex // guards what is known; nothing is called out under it
	known
	runners sync.WaitGroup
}

// known is what changes.
type known struct {
	allocs   map[jobs.ID]*alloc
	index    uint64 // of the last frame
	least    uint64 // of the registration: what is older is the past
	framed   bool   // a frame was taken; restored is its Restored
	restored uint64
	replaced chan struct{}     // capacity 1: see Replaced
	every    time.Duration     // between heartbeats
	heard    time.Time         // last answer of a server
	texts    map[string]string // of drivers, as they were found last
}

// gauges count, and measure the host.
type gauges struct {
	running, dead *telemetry.Gauge
	processors    processors
}

// alloc is an allocation of the node.
type alloc struct {
	*allocrunner.Runner
	ended time.Time // zero while it runs; guarded by Client.mu
}

// New opens the state and starts nothing.
func New(cfg Config) (*Client, error) {
	cfg.complete()
	c := &Client{cfg: cfg, ready: make(chan struct{}), told: make(chan struct{}),
		known: known{allocs: map[jobs.ID]*alloc{}, every: firstBeat, replaced: make(chan struct{}, 1)},
		gauges: gauges{running: cfg.Metrics.Gauge("nomad.client.allocations.running"),
			dead: cfg.Metrics.Gauge("nomad.client.allocations.terminal")}}
	c.sessions.init()
	var err error
	if c.store, err = nodestate.Open(cfg.FS, cfg.StateDir); err != nil {
		return nil, err
	}
	life, err := c.store.Life(cfg.Clock.Now())
	if err != nil {
		cfg.Log.Warn("the number of this start cannot be stored: the next one goes by the clock", "error", err)
	}
	c.queue.init(life)
	if err = c.facts.open(&c.cfg, c.store); err != nil {
		return nil, err
	}
	c.key.Node = cfg.Node.ID
	c.key.Secret, err = c.store.Secret()
	return c, err
}

// Run is the node until ctx ends.
func (c *Client) Run(ctx context.Context) error {
	c.node.Store(c.look(ctx))
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	c.life = life
	c.host = &allocrunner.Host{Node: c.node.Load, Region: c.cfg.Node.Region, AllocDir: c.cfg.AllocDir,
		StateDir: c.cfg.StateDir, Drivers: c.cfg.Drivers, Volumes: c.cfg.Volumes,
		MaxKillTimeout: c.cfg.MaxKillTimeout, Steps: c.cfg.Steps, Services: c.cfg.Services, Previous: c.runner,
		Networks: runnersNetworks(c.cfg.Networks), Report: c.queue.put, Clock: c.cfg.Clock, Log: c.cfg.Log}
	if c.store != nil {
		c.host.Save = c.store.Put
	}
	if err := c.restore(life); err != nil {
		return err
	}
	close(c.ready)
	var parts sync.WaitGroup
	for _, part := range []func(context.Context){c.live, c.watch, c.send, c.collectAtTimes, c.fingerprintAtTimes,
		c.publishAtTimes, newHostGauges(c).run} {
		parts.Go(func() { part(ctx) })
	}
	parts.Wait()
	if c.cfg.StopTasks {
		c.stopAll()
		last, cancel := context.WithTimeout(life, lastLimit)
		_ = c.flush(last)
		cancel()
	}
	end()
	c.runners.Wait()
	return nil
}

// stopLimit bounds how long the tasks of a process that ends may take.
const stopLimit = 30 * time.Second

// stopAll ends all tasks, and says so to the servers as far as they hear it.
func (c *Client) stopAll() {
	for _, a := range c.snapshot() {
		a.Stop()
	}
	all := make(chan struct{})
	go func() { c.runners.Wait(); close(all) }() // ends with the allocations, which Run ends next
	timer := c.cfg.Clock.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-all:
	case <-timer.C:
		c.cfg.Log.Warn("tasks do not end: they are left running", "after", stopLimit)
	}
}

// snapshot are the allocations of now.
func (c *Client) snapshot() map[jobs.ID]*alloc {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.allocs)
}

// restore goes on with what a former life had.
func (c *Client) restore(life context.Context) error {
	records, wrong, err := c.store.All()
	if err != nil {
		return errkind.E(errkind.Internal, "read the state of allocations", err)
	}
	for _, err := range wrong {
		c.cfg.Log.Error("the record of an allocation is damaged and was set aside", "error", err)
	}
	var loads []*workload.Workload
	var lively []string
	kept := records[:0]
	for _, r := range records {
		load, err := workload.Parse(r.Workload)
		if err != nil {
			c.cfg.Log.Error("the record of an allocation cannot be read", "error", err)
			continue
		}
		loads, kept = append(loads, load), append(kept, r)
		if !r.Done {
			lively = append(lively, load.ID.String())
		}
	}
	if c.cfg.Networks != nil {
		limited, cancel := context.WithTimeout(life, keepLimit)
		c.cfg.Networks.Keep(limited, lively)
		cancel()
	}
	for i, load := range loads {
		c.begin(life, load, kept[i])
	}
	return nil
}

// keepLimit bounds how long the networks of allocations that are over may take to go.
const keepLimit = 2 * time.Minute

// runnersNetworks keeps nil what is nil.
func runnersNetworks(n Networks) allocrunner.Networks {
	if n == nil {
		return nil
	}
	return n
}

// begin runs an allocation, or only knows it when it is done.
func (c *Client) begin(life context.Context, load *workload.Workload, r *nodestate.Record) {
	a := &alloc{Runner: allocrunner.New(c.host, load, r)}
	if r.Done {
		a.ended = c.cfg.Clock.Now()
	}
	c.mu.Lock()
	c.allocs[load.ID] = a
	c.mu.Unlock()
	c.count()
	if r.Done {
		return
	}
	c.runners.Go(func() {
		if err := a.Run(life); err != nil {
			c.cfg.Log.Warn("an allocation did not start", "alloc", load.ID.String(), "error", err)
		}
		if life.Err() == nil {
			c.mu.Lock()
			a.ended = c.cfg.Clock.Now()
			c.mu.Unlock()
			c.count()
		}
	})
}

func (c *Client) count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := 0
	for _, a := range c.allocs {
		if a.ended.IsZero() {
			live++
		}
	}
	c.running.Set(float64(live))
	c.dead.Set(float64(len(c.allocs) - live))
}

// take is a frame of allocations.
func (c *Client) take(life context.Context, frame *noderpc.Allocs, bases *workload.Bases) {
	loads, wrong := workload.Read(frame, bases)
	for id, err := range wrong {
		c.cfg.Log.Error("an allocation cannot be read", "alloc", id.String(), "error", err)
		c.queue.put(noderpc.Update{Alloc: id, Status: jobs.ClientFailed, Description: err.Error(),
			FinishedAt: jobs.Time(c.cfg.Clock.Now().UnixNano())})
	}
	have := c.snapshot()
	for _, load := range loads {
		switch a := have[load.ID]; {
		case a != nil:
			a.Update(load)
			if a.over(c) && !terminal(load.Client) {
				allocrunner.Retell(a.Runner)
			}
		case terminal(load.Client):
		case sayEnd(c, load.ID): // it ran here, and the servers have lost its end
		case !load.Wanted(): // it never began here, or its record is lost: nothing runs
			c.queue.put(noderpc.Update{Alloc: load.ID, Status: jobs.ClientComplete,
				Description: "The allocation was stopped before it began", FinishedAt: jobs.Time(c.cfg.Clock.Now().UnixNano())})
		default:
			c.begin(life, load, &nodestate.Record{})
		}
	}
	if frame.Full {
		present := map[jobs.ID]bool{}
		for _, id := range frame.Present {
			present[id] = true
		}
		for id, a := range have {
			// A server that is behind does not know the newest yet: what it has not seen, it has not forgotten.
			if !present[id] && a.Workload().ModifyIndex <= frame.Index {
				c.forget(id, a)
			}
		}
	}
	c.mu.Lock()
	c.index = max(c.index, frame.Index)
	replaced := c.framed && frame.Restored != c.restored
	c.framed, c.restored = true, frame.Restored
	c.mu.Unlock()
	if replaced {
		retell(c)
	}
}

// retell says again what the servers may have lost with a state that a snapshot replaced.
func retell(c *Client) {
	c.cfg.Log.Info("the servers' state was replaced by a snapshot: the node says again how it is")
	for _, a := range c.snapshot() {
		allocrunner.Retell(a.Runner)
	}
	select {
	case c.replaced <- struct{}{}:
	default:
	}
}

// Replaced has an element when a snapshot replaced what the servers know: what this node told them beside its
// allocations is to be told again. It is for one receiver.
func (k *known) Replaced() <-chan struct{} { return k.replaced }

func terminal(status string) bool {
	return status == jobs.ClientComplete || status == jobs.ClientFailed || status == jobs.ClientLost
}

// forget ends and deletes what the servers do not know any more.
func (c *Client) forget(id jobs.ID, a *alloc) {
	if !a.over(c) {
		a.Stop() // it goes with the next collection, once it has ended
		return
	}
	c.remove(id, a)
}

func (a *alloc) over(c *Client) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !a.ended.IsZero()
}

// remove deletes a dead allocation.
func (c *Client) remove(id jobs.ID, a *alloc) {
	err := c.store.Delete(id)
	if d := a.Dir(); d != nil {
		err = errors.Join(err, d.Remove(), os.RemoveAll(filepath.Join(c.cfg.StateDir, "tasks", id.String())))
	}
	if err != nil {
		c.cfg.Log.Warn("a dead allocation could not be deleted", "alloc", id.String(), "error", err)
	}
	c.keepEnd(allocrunner.Says(a.Runner)) // before it is forgotten: a frame that comes between begins it anew
	c.mu.Lock()
	delete(c.allocs, id)
	c.mu.Unlock()
	c.count()
}

// Notify has an allocation look again: its checks changed.
func (c *Client) Notify(id jobs.ID) {
	c.mu.Lock()
	a := c.allocs[id]
	c.mu.Unlock()
	if a != nil {
		a.Look()
	}
}

// Ready is closed when the allocations of a former life are known.
func (c *Client) Ready() <-chan struct{} { return c.ready }

// Key is who the node is to the servers.
func (c *Client) Key() noderpc.Key { return c.key }

// Has reports whether the node has an allocation that is not over.
func (c *Client) Has(id string) bool {
	for known, a := range c.snapshot() {
		if known.String() == id {
			c.mu.Lock()
			defer c.mu.Unlock()
			return a.ended.IsZero()
		}
	}
	return false
}

// Running are the names of the allocations that are not over, by their ids.
func (c *Client) Running() map[string]string {
	all := map[string]string{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, a := range c.allocs {
		if a.ended.IsZero() {
			all[id.String()] = a.Workload().Name()
		}
	}
	return all
}

// Debug is the node's part of the debug archive.
func (c *Client) Debug() any {
	all := map[string]any{}
	for id, a := range c.snapshot() {
		load := a.Workload()
		all[id.String()] = map[string]any{"name": load.Name(), "desired": load.Desired.Status, "index": load.ModifyIndex,
			"over": a.Done()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return map[string]any{"allocations": all, "index": c.index, "heartbeat": c.every.String(), "heard": c.heard,
		"updates_waiting": c.queue.len(), "drivers": c.texts}
}

// runner is an allocation of this node, or nil.
func (c *Client) runner(id jobs.ID) *allocrunner.Runner {
	if a, err := c.find(id); err == nil {
		return a.Runner
	}
	return nil
}
