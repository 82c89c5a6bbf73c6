package cluster

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// What an operator set, inside the barrier.
const (
	autopilotKey = "core/raft/autopilot/configuration"
	replicasKey  = "core/raft/non-voters"
)

// adminRow is one of the paths below sys/ that are the cluster's.
type adminRow struct {
	path        string
	read, write func(admin, context.Context, *secrets.Fields) (any, error)
	raft        bool
}

var adminRows = []adminRow{
	{path: "ha-status", read: admin.haStatus},
	{path: "storage/raft/configuration", read: admin.configuration, raft: true},
	{path: "storage/raft/remove-peer", write: admin.removePeer, raft: true},
	{path: "storage/raft/promote", write: admin.promote, raft: true},
	{path: "storage/raft/demote", write: admin.demote, raft: true},
	{path: "storage/raft/autopilot/state", read: admin.autopilotState, raft: true},
	{path: "storage/raft/autopilot/configuration", read: admin.autopilotConfig, write: admin.setAutopilot,
		raft: true},
}

// System is for keeper.Config: it answers the paths below sys/ that are the cluster's. The caller may.
func (c *Cluster) System(ctx context.Context, op secrets.Operation, path string, f *secrets.Fields) (data any,
	found bool, err error) {
	for _, row := range adminRows {
		if row.path != path || row.raft && c.cfg.Raft == nil {
			continue
		}
		do := row.read
		if op.Writes() {
			do = row.write
		}
		if do == nil {
			return nil, true, errkind.New(errkind.Conflict, "unsupported operation")
		}
		data, err = do(admin{c}, ctx, f)
		return data, true, err
	}
	return nil, false, nil
}

// Alone is System of a server that shares its storage with no other.
func Alone(self Server) func(context.Context, secrets.Operation, string, *secrets.Fields) (any, bool, error) {
	return func(_ context.Context, op secrets.Operation, path string, _ *secrets.Fields) (any, bool, error) {
		switch {
		case path != "ha-status":
			return nil, false, nil
		case op != secrets.Read:
			return nil, true, errkind.New(errkind.Conflict, "unsupported operation")
		}
		return map[string]any{"nodes": []any{node(self, true)}}, true, nil
	}
}

// node is a server as ha-status shows it.
func node(s Server, active bool) map[string]any {
	out := map[string]any{"hostname": s.Hostname, "api_address": s.APIAddr, "cluster_address": "", "active_node": active,
		"last_echo": nil, "version": s.Version, "upgrade_version": s.Version, "redundancy_zone": ""}
	if s.ClusterAddr != "" {
		out["cluster_address"] = "https://" + s.ClusterAddr
	}
	if !active {
		out["last_echo"] = s.Since.Format(time.RFC3339Nano)
	}
	return out
}

// admin answers what is asked of the cluster below sys/.
type admin struct{ *Cluster }

func (c admin) haStatus(context.Context, *secrets.Fields) (any, error) {
	nodes := []any{node(c.cfg.Self, true)}
	list := c.Servers()
	slices.SortFunc(list, func(a, b Server) int {
		if a.APIAddr < b.APIAddr {
			return -1
		}
		return 1
	})
	for _, s := range list {
		nodes = append(nodes, node(s, false))
	}
	return map[string]any{"nodes": nodes}, nil
}

func (c *Cluster) group() (*group.Group, error) {
	if g := c.cfg.Raft.group.Load(); g != nil {
		return g, nil
	}
	return nil, errNotOpen
}

func (c admin) configuration(context.Context, *secrets.Fields) (any, error) {
	g, err := c.group()
	if err != nil {
		return nil, err
	}
	list, index, err := g.Configuration()
	if err != nil {
		return nil, err
	}
	leader, _ := g.Leader()
	servers := make([]any, 0, len(list))
	for _, s := range list {
		servers = append(servers, map[string]any{"node_id": s.ID, "address": s.Address, "leader": s.ID == leader,
			"voter": s.Voter, "protocol_version": "3"})
	}
	return map[string]any{"config": map[string]any{"index": index, "servers": servers}}, nil
}

// peer reads server_id and finds the member.
func (c admin) peer(f *secrets.Fields) (*group.Group, group.Server, error) {
	id := f.String("server_id")
	if err := f.Err(); err != nil {
		return nil, group.Server{}, err
	}
	if id == "" {
		return nil, group.Server{}, errkind.New(errkind.Invalid, "server_id: no server id was given")
	}
	g, err := c.group()
	if err != nil {
		return nil, group.Server{}, err
	}
	list, _, err := g.Configuration()
	if err != nil {
		return nil, group.Server{}, err
	}
	for _, s := range list {
		if s.ID == id {
			return g, s, nil
		}
	}
	return nil, group.Server{}, errkind.Errorf(errkind.Invalid, "server_id: no member of the Raft cluster has the id %q",
		id)
}

func (c admin) removePeer(ctx context.Context, f *secrets.Fields) (any, error) {
	g, s, err := c.peer(f)
	if err != nil {
		return nil, err
	}
	list, _, err := g.Configuration()
	if err != nil {
		return nil, err
	}
	if voters(list) == 1 && s.Voter {
		return nil, errkind.New(errkind.Invalid, "server_id: the only voter cannot be removed")
	}
	if err := g.RemoveServer(ctx, s.ID); err != nil {
		return nil, err
	}
	c.cfg.Log.Info("secrets: a server was removed from the Raft cluster", "server", s.ID)
	return nil, c.setReplica(ctx, s.ID, false)
}

func voters(list []group.Server) (n int) {
	for _, s := range list {
		if s.Voter {
			n++
		}
	}
	return n
}

func (c admin) promote(ctx context.Context, f *secrets.Fields) (any, error) {
	g, s, err := c.peer(f)
	if err != nil {
		return nil, err
	}
	if err := c.setReplica(ctx, s.ID, false); err != nil {
		return nil, err
	}
	return nil, g.AddVoter(ctx, s.ID, s.Address)
}

func (c admin) demote(ctx context.Context, f *secrets.Fields) (any, error) {
	g, s, err := c.peer(f)
	if err != nil {
		return nil, err
	}
	if leader, _ := g.Leader(); s.ID == leader {
		return nil, errkind.New(errkind.Invalid, "server_id: the leader cannot be demoted: have it step down first")
	}
	if err := c.setReplica(ctx, s.ID, true); err != nil { // before: autopilot would give the vote back
		return nil, err
	}
	return nil, g.DemoteVoter(ctx, s.ID)
}

// setReplica notes whether a member is to have no vote ever.
func (c admin) setReplica(ctx context.Context, id string, replica bool) error {
	list := c.cfg.Raft.nonVoters()
	if slices.Contains(list, id) == replica {
		return nil
	}
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == id })
	if replica {
		list = append(list, id)
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := c.keeper.SetRecord(ctx, replicasKey, raw); err != nil {
		return err
	}
	c.cfg.Raft.replicas.Store(&list)
	return nil
}

// autopilotSettings are autopilot's configuration as it is stored and shown.
type autopilotSettings struct {
	CleanupDeadServers             bool   `json:"cleanup_dead_servers"`
	LastContactThreshold           string `json:"last_contact_threshold"`
	DeadServerLastContactThreshold string `json:"dead_server_last_contact_threshold"`
	MaxTrailingLogs                uint64 `json:"max_trailing_logs"`
	MinQuorum                      uint   `json:"min_quorum"`
	ServerStabilizationTime        string `json:"server_stabilization_time"`
	DisableUpgradeMigration        bool   `json:"disable_upgrade_migration"`
}

func (n *Node) settings() autopilotSettings {
	cfg := n.cfg.Autopilot
	if pilot := n.pilot.Load(); pilot != nil {
		cfg = pilot.Config()
	}
	return autopilotSettings{CleanupDeadServers: cfg.CleanupDeadServers,
		LastContactThreshold:           cfg.LastContactThreshold.String(),
		DeadServerLastContactThreshold: time.Duration(n.deadAfter.Load()).String(), MaxTrailingLogs: cfg.MaxTrailingLogs,
		MinQuorum:               cfg.MinQuorum,
		ServerStabilizationTime: cfg.ServerStabilizationTime.String(), DisableUpgradeMigration: true}
}

// use puts settings in force.
func (n *Node) use(s *autopilotSettings) error {
	contact, err := time.ParseDuration(s.LastContactThreshold)
	if err != nil {
		return errkind.Errorf(errkind.Invalid, "last_contact_threshold: %q is no duration", s.LastContactThreshold)
	}
	stable, err := time.ParseDuration(s.ServerStabilizationTime)
	if err != nil {
		return errkind.Errorf(errkind.Invalid, "server_stabilization_time: %q is no duration", s.ServerStabilizationTime)
	}
	dead, err := time.ParseDuration(s.DeadServerLastContactThreshold)
	if err != nil || dead < time.Minute {
		return errkind.New(errkind.Invalid, "dead_server_last_contact_threshold: must be a duration of at least 1m")
	}
	if s.CleanupDeadServers && s.MinQuorum < 3 {
		return errkind.New(errkind.Invalid, "min_quorum: must be at least 3 when cleanup_dead_servers is set")
	}
	cfg := group.AutopilotConfig{CleanupDeadServers: s.CleanupDeadServers, LastContactThreshold: contact,
		MaxTrailingLogs: s.MaxTrailingLogs,
		MinQuorum:       s.MinQuorum, ServerStabilizationTime: stable}
	if err := cfg.Check(); err != nil {
		return err
	}
	n.deadAfter.Store(int64(dead))
	if pilot := n.pilot.Load(); pilot != nil {
		return pilot.SetConfig(cfg)
	}
	return nil
}

func (c admin) autopilotConfig(context.Context, *secrets.Fields) (any, error) {
	return c.cfg.Raft.settings(), nil
}

func (c admin) setAutopilot(ctx context.Context, f *secrets.Fields) (any, error) {
	n := c.cfg.Raft
	former := n.settings()
	s := former
	s.CleanupDeadServers = f.Bool("cleanup_dead_servers", s.CleanupDeadServers)
	s.MinQuorum, s.MaxTrailingLogs = uint(f.Int("min_quorum", int(s.MinQuorum))),
		uint64(f.Int("max_trailing_logs", int(s.MaxTrailingLogs)))
	for name, dst := range map[string]*string{"last_contact_threshold": &s.LastContactThreshold,
		"server_stabilization_time":          &s.ServerStabilizationTime,
		"dead_server_last_contact_threshold": &s.DeadServerLastContactThreshold} {
		if f.Has(name) {
			*dst = f.Duration(name, 0).String()
		}
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	if f.Int("min_quorum", 0) < 0 || f.Int("max_trailing_logs", 0) < 0 {
		return nil, errkind.New(errkind.Invalid, "min_quorum, max_trailing_logs: must not be negative")
	}
	if err := n.use(&s); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(&s)
	if err == nil {
		err = c.keeper.SetRecord(ctx, autopilotKey, raw)
	}
	if err != nil {
		_ = n.use(&former) // it was in force
	}
	return nil, err
}

// takeSettings puts what an operator set in force, as a term begins.
func (c *Cluster) takeSettings(ctx context.Context) error {
	n := c.cfg.Raft
	if n == nil {
		return nil
	}
	var s autopilotSettings
	ok, err := c.stored(ctx, autopilotKey, &s)
	if err == nil && ok {
		err = n.use(&s)
	}
	if err != nil {
		return err
	}
	var list []string
	if _, err := c.stored(ctx, replicasKey, &list); err != nil {
		return err
	}
	n.replicas.Store(&list)
	return nil
}

func (c *Cluster) stored(ctx context.Context, key string, out any) (bool, error) {
	raw, ok, err := c.keeper.Record(ctx, key)
	if err != nil || !ok {
		return false, err
	}
	if json.Unmarshal(raw, out) != nil {
		return false, errkind.Errorf(errkind.Corrupt, "%s is not what was stored", key)
	}
	return true, nil
}

func (c admin) autopilotState(context.Context, *secrets.Fields) (any, error) {
	pilot := c.cfg.Raft.pilot.Load()
	if pilot == nil {
		return nil, errNotOpen
	}
	st, ok := pilot.State()
	if !ok {
		return nil, errkind.New(errkind.Unavailable, "autopilot has not looked at the servers yet: ask again in some seconds")
	}
	servers := map[string]any{}
	nonVoters := []string{}
	for id, h := range st.Servers {
		status := "voter"
		switch {
		case h.Leader:
			status = "leader"
		case !h.Voter:
			status = "non-voter"
			nonVoters = append(nonVoters, id)
		}
		servers[id] = map[string]any{"id": id, "name": h.Name, "address": h.Address, "node_status": string(h.Status),
			"last_contact": h.LastContact.String(),
			"last_term":    h.LastTerm, "last_index": h.LastIndex, "healthy": h.Healthy,
			"stable_since": h.StableSince.UTC().Format(time.RFC3339Nano), "status": status,
			"node_type": nodeType(h.Replica), "version": c.cfg.Self.Version}
	}
	slices.Sort(nonVoters)
	return map[string]any{"healthy": st.Healthy, "failure_tolerance": st.FailureTolerance,
		"optimistic_failure_tolerance": st.FailureTolerance,
		"servers":                      servers, "leader": st.Leader, "voters": st.Voters, "non_voters": nonVoters}, nil
}

func nodeType(replica bool) string {
	if replica {
		return "read-replica"
	}
	return "voter"
}
