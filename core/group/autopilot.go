package group

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/core/group/raftlog"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// Autopilot keeps the membership healthy while this server leads: it gives members
// that have been healthy for the stabilisation time their vote, and removes servers
// that are gone once others have replaced them: see spared.
// All methods are safe for concurrent use; Run owns its goroutines.
type Autopilot struct {
	g      *Group
	source MemberSource
	remove func(id string)
	config atomic.Pointer[AutopilotConfig]
	state  atomic.Pointer[AutopilotState]
	// update is how often the health is computed, reconcile how often members are promoted or removed.
	update, reconcile time.Duration

	mu sync.Mutex // guards ap
	ap *autopilot.Autopilot
}

// MemberStatus is what gossip says of a server.
type MemberStatus string

// The states of a member.
const (
	MemberAlive  MemberStatus = "alive"
	MemberFailed MemberStatus = "failed"
	MemberLeft   MemberStatus = "left"
)

// ServerInfo is what the outside knows of a server of this group.
type ServerInfo struct {
	ID, Name, Address, Version string
	Status                     MemberStatus
	// Replica serves reads and never gets a vote.
	Replica bool
	// Hearsay: gossip said all this. The server is asked itself before its vote is given or taken.
	Hearsay bool
	Meta    map[string]string
}

// MemberSource tells which servers there are and how far their logs are.
type MemberSource interface {
	// Servers lists the servers that are known now. It must not block.
	Servers() []ServerInfo
}

// AutopilotConfig is what an operator may set.
type AutopilotConfig struct {
	CleanupDeadServers bool
	// LastContactThreshold (200 ms x the Raft multiplier at least) and MaxTrailingLogs (250) bound what counts as healthy.
	LastContactThreshold time.Duration
	MaxTrailingLogs      uint64
	// MinQuorum is the number of voters below which nobody is removed; 0: only the quorum counts.
	MinQuorum uint
	// ServerStabilizationTime is how long a server must be healthy before it votes.
	ServerStabilizationTime time.Duration
}

// DefaultAutopilotConfig is what holds until an operator sets another one.
func DefaultAutopilotConfig() AutopilotConfig {
	return AutopilotConfig{CleanupDeadServers: true, LastContactThreshold: 200 * time.Millisecond, MaxTrailingLogs: 250,
		ServerStabilizationTime: 10 * time.Second}
}

// Check reports what SetConfig would refuse.
func (c AutopilotConfig) Check() error {
	if c.LastContactThreshold < 0 || c.ServerStabilizationTime < 0 {
		return errkind.New(errkind.Invalid, "autopilot: LastContactThreshold and ServerStabilizationTime must not be "+
			"below zero")
	}
	return nil
}

// AutopilotState is the health of the group as its leader sees it.
type AutopilotState struct {
	Healthy          bool
	FailureTolerance int
	Leader           string
	Voters           []string
	Servers          map[string]ServerHealth
}

// ServerHealth is one server's part of AutopilotState.
type ServerHealth struct {
	ServerInfo
	Leader, Voter, Healthy bool
	StableSince            time.Time
	LastContact            time.Duration
	LastTerm, LastIndex    uint64
}

// NewAutopilot makes an Autopilot; remove, which may be nil, is told of servers
// that are removed because they failed, so that gossip forgets them too; it must not block.
func NewAutopilot(g *Group, source MemberSource, cfg AutopilotConfig, remove func(id string)) *Autopilot {
	a := &Autopilot{g: g, source: source, remove: remove, update: 2 * time.Second, reconcile: 2 * time.Second}
	a.config.Store(&cfg)
	return a
}

// Config returns the configuration in force.
func (a *Autopilot) Config() AutopilotConfig { return *a.config.Load() }

// SetConfig puts another configuration in force. The caller replicates it. A zero
// LastContactThreshold means the least there is: clients send only what they change.
func (a *Autopilot) SetConfig(cfg AutopilotConfig) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	a.config.Store(&cfg)
	return nil
}

// State returns the newest health; false when this server does not lead or has none yet.
func (a *Autopilot) State() (AutopilotState, bool) {
	s := a.state.Load()
	if s == nil {
		return AutopilotState{}, false
	}
	copied := *s
	copied.Servers = maps.Clone(s.Servers)
	return copied, true
}

// Run works whenever this server leads, until ctx ends.
func (a *Autopilot) Run(ctx context.Context) error {
	for {
		changed := a.g.LeaderChanges()
		in := a.g.current.Load()
		if in != nil && in.leads() {
			a.lead(ctx, in)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// lead runs the library until this server stops leading.
func (a *Autopilot) lead(ctx context.Context, in *instance) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	d := delegate{a: a, in: in, began: in.links.peers.now()}
	ap := autopilot.New(in.raft, d, autopilot.WithLogger(raftlog.Logger{To: a.g.cfg.Log.With("part", "autopilot")}),
		autopilot.WithUpdateInterval(a.update), autopilot.WithReconcileInterval(a.reconcile),
		autopilot.WithPromoter(promoter{new(autopilot.StablePromoter), d, inner}))
	a.mu.Lock()
	a.ap = ap
	a.mu.Unlock()
	ap.Start(inner)
	for a.g.current.Load() == in && in.leads() && ctx.Err() == nil {
		changed := a.g.LeaderChanges()
		if a.g.current.Load() != in || !in.leads() {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	<-ap.Stop()
	a.mu.Lock()
	a.ap = nil
	a.mu.Unlock()
	a.state.Store(nil)
}

// RemoveDeadServers asks for a clean-up now instead of at the next interval; it does nothing on a follower.
func (a *Autopilot) RemoveDeadServers() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ap != nil {
		a.ap.RemoveDeadServers()
	}
}

// delegate answers the library's questions for one leadership.
type delegate struct {
	a  *Autopilot
	in *instance
	// began is when the leadership began, by the clock of peers.
	began int64
}

// AutopilotConfig implements autopilot.ApplicationIntegration.
func (d delegate) AutopilotConfig() *autopilot.Config {
	c := d.a.Config()
	return &autopilot.Config{CleanupDeadServers: c.CleanupDeadServers, LastContactThreshold: max(c.LastContactThreshold,
		d.in.g.cfg.heartbeat()/5),
		MaxTrailingLogs: c.MaxTrailingLogs, MinQuorum: c.MinQuorum, ServerStabilizationTime: c.ServerStabilizationTime}
}

// KnownServers implements autopilot.ApplicationIntegration.
func (d delegate) KnownServers() map[raft.ServerID]*autopilot.Server {
	out := map[raft.ServerID]*autopilot.Server{}
	_, leaderID := d.in.raft.LeaderWithID()
	addresses := map[string]string{}
	for _, s := range raftdisk.Members(d.in.raft.GetConfiguration().Configuration()) {
		addresses[s.ID] = s.Address
	}
	for _, s := range d.a.source.Servers() {
		if _, twice := out[raft.ServerID(s.ID)]; twice && s.Address != addresses[s.ID] {
			continue // two claim one id: the one at the member's address counts
		}
		status := autopilot.NodeUnknown
		switch s.Status {
		case MemberAlive:
			status = autopilot.NodeAlive
		case MemberFailed:
			status = autopilot.NodeFailed
		case MemberLeft:
			status = autopilot.NodeLeft
		}
		kind := autopilot.NodeVoter
		if s.Replica {
			kind = nodeReplica
		}
		var ext any
		if s.Hearsay {
			ext = hearsay
		}
		id := raft.ServerID(s.ID)
		out[id] = &autopilot.Server{ID: id, Ext: ext, Name: s.Name, Address: raft.ServerAddress(s.Address),
			NodeStatus: status, Version: s.Version,
			Meta: s.Meta, RaftVersion: 3, IsLeader: id == leaderID, NodeType: kind}
	}
	return out
}

// FetchServerStats implements autopilot.ApplicationIntegration from what the
// peers' answers to replication said: no call leaves for it.
func (d delegate) FetchServerStats(_ context.Context,
	servers map[raft.ServerID]*autopilot.Server) map[raft.ServerID]*autopilot.ServerStats {
	term := d.in.raft.CurrentTerm()
	out := map[raft.ServerID]*autopilot.ServerStats{}
	now := d.in.links.peers.now()
	d.in.links.peers.each(func(id string, s peerSeen) {
		if _, wanted := servers[raft.ServerID(id)]; wanted {
			stats := &autopilot.ServerStats{LastContact: time.Duration(now - s.contact), LastIndex: s.match}
			if s.term == term && s.match > 0 {
				stats.LastTerm = term
			}
			out[raft.ServerID(id)] = stats
		}
	})
	out[raft.ServerID(d.in.g.cfg.LocalID)] = &autopilot.ServerStats{LastTerm: term, LastIndex: d.in.raft.LastIndex()}
	return out
}

// NotifyState implements autopilot.ApplicationIntegration.
func (d delegate) NotifyState(s *autopilot.State) {
	out := &AutopilotState{Healthy: s.Healthy, FailureTolerance: s.FailureTolerance, Leader: string(s.Leader),
		Servers: map[string]ServerHealth{}}
	for _, id := range s.Voters {
		out.Voters = append(out.Voters, string(id))
	}
	for id, server := range s.Servers {
		out.Servers[string(id)] = ServerHealth{
			ServerInfo: ServerInfo{ID: string(id), Name: server.Server.Name, Address: string(server.Server.Address),
				Version: server.Server.Version,
				Status:  MemberStatus(server.Server.NodeStatus), Replica: server.Server.NodeType == nodeReplica,
				Meta: server.Server.Meta},
			Leader: server.State == autopilot.RaftLeader, Voter: server.HasVotingRights(), Healthy: server.Health.Healthy,
			StableSince: server.Health.StableSince, LastContact: server.Stats.LastContact, LastTerm: server.Stats.LastTerm,
			LastIndex: server.Stats.LastIndex,
		}
	}
	d.a.state.Store(out)
	healthy := 0.0
	if s.Healthy {
		healthy = 1
	}
	d.in.g.cfg.Metrics.Gauge("autopilot.healthy", "group", d.in.g.cfg.Name).Set(healthy)
	d.in.g.cfg.Metrics.Gauge("autopilot.failure_tolerance", "group", d.in.g.cfg.Name).Set(float64(s.FailureTolerance))
	voters, failed := 0, 0
	for _, server := range s.Servers {
		if server.HasVotingRights() {
			voters++
			if !server.Health.Healthy {
				failed++
			}
		}
	}
	d.in.g.cfg.Metrics.Gauge("autopilot.voters", "group", d.in.g.cfg.Name).Set(float64(voters))
	d.in.g.cfg.Metrics.Gauge("autopilot.failed_voters", "group", d.in.g.cfg.Name).Set(float64(failed))
}

// RemoveFailedServer implements autopilot.ApplicationIntegration: gossip forgets
// it, and the membership too when gossip's own path does not reach this group.
func (d delegate) RemoveFailedServer(s *autopilot.Server) {
	id := string(s.ID)
	if d.a.remove != nil {
		d.a.remove(id)
	}
	go func() { // bounded by its own deadline; the library asks not to be held up
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := d.in.g.RemoveServer(ctx, id); err != nil {
			d.in.g.cfg.Log.Warn("autopilot cannot remove a failed server", "server", id, "err", err)
		} else {
			d.in.g.cfg.Log.Info("autopilot removed a failed server", "server", id)
			d.in.g.cfg.Metrics.Publish(telemetry.VoterRemoved{Group: d.in.g.cfg.Name, Server: s.Name, ID: id})
		}
	}()
}
