package nodeclient

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/fingerprint"
	"corbel.dev/corbel/jobs/client/workload"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/noderpc"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
)

const (
	// firstBeat is the time between heartbeats until a server says another.
	firstBeat = 5 * time.Second
	// callLimit bounds a small call.
	callLimit = 10 * time.Second
	// beatLimit bounds a heartbeat: a server that is silent for as long has failed, and another one is asked.
	beatLimit = 3 * time.Second
	// modesLimit bounds the questions to CNI plug-ins.
	modesLimit = 30 * time.Second
	// lookEvery is how often drivers are asked again.
	lookEvery = 30 * time.Second
)

// look finds out what the host and its drivers are.
func (c *Client) look(ctx context.Context) *jobs.Node {
	id, opts := c.cfg.Node, c.cfg.Host
	opts.Datacenter, opts.Reserved = id.Datacenter, id.ReservedForTheHost
	if opts.AllocDir = c.cfg.AllocDir; opts.AllocDir != "" {
		if err := c.cfg.FS.MkdirAll(opts.AllocDir, 0o711); err != nil {
			c.cfg.Log.Error("the folder of allocations cannot be made", "dir", opts.AllocDir, "error", err)
		}
	}
	host := fingerprint.Read("/", &opts)
	n := &jobs.Node{ID: id.ID, Name: id.Name, Datacenter: id.Datacenter, Class: id.Class, Pool: id.Pool,
		Attributes: host.Attributes, Meta: merge(id.Meta, c.dynamic), Capacity: host.Capacity,
		HostVolumes: map[string]jobs.HostVolume{},
		Duty:        jobs.Duty{MaxAllocs: id.MaxAllocs}}
	n.Capacity.Networks = append(n.Capacity.Networks, id.AdvertisedHostNetworks...)
	for name, v := range c.cfg.Volumes {
		n.HostVolumes[name] = jobs.HostVolume{ReadOnly: v.ReadOnly}
	}
	for name, value := range id.Attributes {
		n.Attributes[name] = value
	}
	if c.cfg.Networks != nil {
		limited, cancel := context.WithTimeout(ctx, modesLimit)
		modes, attributes := c.cfg.Networks.Modes(limited)
		cancel()
		n.Capacity.Modes = modes
		for name, value := range attributes {
			n.Attributes[name] = value
		}
	}
	n.Drivers, c.given = c.drivers(ctx)
	maps.Copy(n.Attributes, c.given)
	return n
}

// drivers asks all drivers, and returns them with the attributes that they give the node.
func (c *Client) drivers(ctx context.Context) (found map[string]jobs.Driver, given map[string]string) {
	found, given = map[string]jobs.Driver{}, map[string]string{}
	texts := map[string]string{}
	for name, d := range c.cfg.Drivers {
		limited, cancel := context.WithTimeout(ctx, callLimit)
		f := d.Fingerprint(limited)
		cancel()
		if !f.Detected && f.Text == "" {
			continue
		}
		found[name] = jobs.Driver{Detected: f.Detected, Healthy: f.Healthy}
		texts[name] = f.Text
		maps.Copy(given, f.Attributes)
	}
	c.mu.Lock()
	c.texts = texts
	c.mu.Unlock()
	return found, given
}

// fingerprintAtTimes registers again when drivers come or go, or say something else of themselves.
func (c *Client) fingerprintAtTimes(ctx context.Context) {
	if c.cfg.AllocDir == "" {
		return // a simulated node is what it was told to be
	}
	for c.pause(ctx, lookEvery) {
		if c.cfg.Networks != nil {
			c.cfg.Networks.Tend()
		}
		found, given := c.drivers(ctx)
		if ctx.Err() == nil && c.setDrivers(found, given) {
			c.cfg.Log.Info("the node's drivers changed", "drivers", found, "attributes", given)
		}
	}
}

// live registers and beats.
func (c *Client) live(ctx context.Context) {
	c.register(ctx)
	if ctx.Err() == nil {
		close(c.told)
	}
	// A beat that nobody took is due again soon: two that are lost with a server are otherwise more than the grace.
	retry := backoff.Backoff{Min: 250 * time.Millisecond, Max: 2 * time.Second}
	for {
		c.mu.Lock()
		every := c.every
		c.mu.Unlock()
		pause := every - time.Duration(rand.Int64N(int64(every)/8+1))
		if retry.Tries() > 0 {
			pause = min(pause, retry.Next())
		}
		timer := c.cfg.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c.anew:
			timer.Stop()
			c.register(ctx)
			continue
		case <-timer.C:
		}
		switch err := c.beat(ctx); {
		case err == nil:
			if retry.Tries() > 0 {
				c.compareSoon(c.cfg.Clock.Now())
			}
			retry.Reset()
		case errkind.Is(err, errkind.NotFound):
			retry.Reset()
			c.forgotten()
			c.register(ctx)
		default:
			c.cfg.Log.Debug("no server takes the node's heartbeat", "error", err)
			if retry.Tries() == 0 {
				retry.Next()
			}
			c.unheard()
		}
	}
}

// forgotten is after the leader said that it does not know the node: somebody purged it, or the servers began anew, and
// their indexes with them.
func (c *Client) forgotten() {
	c.forgetEnds()
	c.compareSoon(c.cfg.Clock.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index, c.least = 0, 0
}

// register says what the node is until a server takes it.
func (c *Client) register(ctx context.Context) {
	retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: 15 * time.Second} // NK-6
	for ctx.Err() == nil {
		c.mu.Lock()
		current := c.node.Load()
		m := &noderpc.Register{Key: c.key, Spec: current, RPCAddr: c.cfg.RPCAddr(), HTTPAddr: c.cfg.HTTPAddr(),
			TLS: c.cfg.TLS, DriverTexts: c.texts}
		c.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, callLimit)
		answer, err := c.cfg.Servers.Call(limited, noderpc.MethodRegister, noderpc.Bytes(m))
		cancel()
		if err == nil {
			var r *noderpc.Registered
			if r, err = noderpc.Read[noderpc.Registered](answer); err == nil {
				c.answered(r.Every)
				c.mu.Lock()
				c.least = r.Index
				c.mu.Unlock()
				c.tookNode(current)
				c.cfg.Log.Info("the node is registered", "node", c.key.Node.String(), "heartbeat", r.Every)
				return
			}
		}
		c.cfg.Log.Debug("the node is not registered yet", "error", err)
		if errkind.Is(err, errkind.Denied) {
			c.cfg.Log.Error("the servers refuse the node: another one has its id", "node", c.key.Node.String(), "error", err)
		}
		c.pause(ctx, retry.Next())
	}
}

// answered notes that a server heard the node.
func (c *Client) answered(every time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = c.cfg.Clock.Now()
	if every > 0 {
		c.every = every
	}
}

func (c *Client) beat(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, beatLimit)
	defer cancel()
	m := &noderpc.Heartbeat{Nodes: []noderpc.Key{c.key}}
	compares := c.isDue(c.cfg.Clock.Now())
	if compares {
		m.Held = []noderpc.Held{{Node: c.key.Node, Sum: sumOf(held(c))}}
	}
	answer, err := c.cfg.Servers.Call(limited, noderpc.MethodHeartbeat, noderpc.Bytes(m))
	if err != nil {
		return err
	}
	b, err := noderpc.Read[noderpc.Beaten](answer)
	if err != nil {
		return err
	}
	c.answered(b.Every)
	if compares {
		compare(c, b.Known)
	}
	if slices.Contains(b.Unknown, c.key.Node) {
		return errkind.New(errkind.NotFound, "the servers do not know the node")
	}
	return nil
}

// unheard stops what its job wants stopped on a node that no server hears.
func (c *Client) unheard() {
	c.mu.Lock()
	silence := c.cfg.Clock.Since(c.heard)
	never := c.heard.IsZero()
	c.mu.Unlock()
	if never {
		return
	}
	for _, a := range c.snapshot() {
		g := a.Workload().Group
		after := jobwire.Get(g.StopAfterClientDisconnect)
		if g.Disconnect != nil {
			after = jobwire.Get(g.Disconnect.StopOnClientAfter)
		}
		if after > 0 && silence >= time.Duration(after) {
			a.Stop()
		}
	}
}

// watch follows the node's allocations, from its registration on.
func (c *Client) watch(ctx context.Context) {
	select {
	case <-c.told:
	case <-ctx.Done():
		return
	}
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 15 * time.Second}
	for ctx.Err() == nil {
		err := c.follow(ctx, &retry)
		if ctx.Err() != nil {
			return
		}
		c.cfg.Log.Debug("the node's allocations are asked for again", "error", err)
		c.pause(ctx, retry.Next())
	}
}

// follow is one stream.
func (c *Client) follow(ctx context.Context, retry *backoff.Backoff) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	since := c.index
	c.mu.Unlock()
	whole := c.begins(cancel)
	if whole {
		since = 0
	}
	stream, err := c.cfg.Servers.Stream(ctx, noderpc.MethodAllocs, noderpc.Bytes(&noderpc.Watch{Key: c.key, Since: since,
		Bases: noderpc.MaxBases}))
	if err != nil {
		return err
	}
	defer stream.Close()
	bases := &workload.Bases{}
	for {
		text, err := stream.Recv()
		if err != nil {
			return err
		}
		frame, err := noderpc.Read[noderpc.Allocs](text)
		if err != nil {
			return err
		}
		c.mu.Lock()
		needed := max(c.index, c.least)
		c.mu.Unlock()
		if frame.Index < needed {
			return errkind.Errorf(errkind.Unavailable, "the server is behind: it is at %d, and the node saw %d", frame.Index,
				needed)
		}
		retry.Reset()
		c.take(c.life, frame, bases)
		if whole {
			whole = false
			c.hasWhole()
		}
	}
}
