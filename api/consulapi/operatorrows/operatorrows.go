// Package operatorrows answers operators: Raft's servers, autopilot, who leads, snapshots, gossip keys, usage, and
// where nodes lie in the network.
package operatorrows

import (
	"context"
	"io"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
)

// Config is what the rows for operators need; all is nil on a client agent, Keyring where gossip is not encrypted.
type Config struct {
	Group       Operator
	Snapshots   Snapshots
	Keyring     Keyring
	Coordinates Coordinates // nil: nobody knows where nodes lie
}

// Rows are the rows for operators.
type Rows struct{ Config }

// New makes the rows; it starts nothing.
func New(cfg Config) *Rows { return &Rows{cfg} }

// Routes are the rows of this part of the contract.
func (or *Rows) Routes() []rows.Row {
	return []rows.Row{
		rows.Read("GET", "/v1/coordinate/datacenters", acl.NoResource, or.coordinateDatacenters),
		rows.Read("GET", "/v1/coordinate/nodes", acl.Node, coordinateNodes),
		rows.Read("GET", "/v1/coordinate/node/", acl.Node, coordinateNode),
		rows.Write("PUT", "/v1/coordinate/update", acl.Node, or.coordinateUpdate),
		rows.Read("GET", "/v1/operator/keyring", acl.Keyring, or.keyringList),
		rows.Write("POST", "/v1/operator/keyring", acl.Keyring, or.keyringInstall),
		rows.Write("PUT", "/v1/operator/keyring", acl.Keyring, or.keyringUse),
		rows.Write("DELETE", "/v1/operator/keyring", acl.Keyring, or.keyringRemove),
		rows.Read("GET", "/v1/operator/usage", acl.Operator, operatorUsage),
		rows.Read("GET", "/v1/status/leader", acl.NoResource, or.statusLeader).ForAnyone(),
		rows.Read("GET", "/v1/status/peers", acl.NoResource, or.statusPeers).ForAnyone(),
		rows.Read("GET", "/v1/operator/raft/configuration", acl.Operator, or.raftConfiguration),
		rows.Write("DELETE", "/v1/operator/raft/peer", acl.Operator, or.raftRemovePeer),
		rows.Write("POST", "/v1/operator/raft/transfer-leader", acl.Operator, or.raftTransfer),
		rows.Read("GET", "/v1/operator/autopilot/configuration", acl.Operator, or.autopilotConfig),
		rows.Write("PUT", "/v1/operator/autopilot/configuration", acl.Operator, or.autopilotSet),
		rows.Read("GET", "/v1/operator/autopilot/health", acl.Operator, or.autopilotHealth),
		rows.Read("GET", "/v1/operator/autopilot/state", acl.Operator, or.autopilotState),
		rows.Read("GET", "/v1/snapshot", acl.ACL, or.snapshotSave).Streaming(),
		rows.Write("PUT", "/v1/snapshot", acl.ACL, or.snapshotRestore).Streaming(),
	}
}

// Snapshots saves and restores the whole state, on a server.
type Snapshots interface {
	// Save spools an archive of the state of now; index is the State's. Whether this server may
	// answer was settled before. The caller closes it.
	Save(ctx context.Context) (archive io.ReadCloser, index uint64, err error)
	// Restore verifies the archive to its last byte, then replaces the state on all servers. Leader only.
	Restore(ctx context.Context, archive io.Reader) error
}

// RaftServer is one row of /v1/operator/raft/configuration.
type RaftServer struct {
	ID, Node, Address string
	Leader, Voter     bool
	LastIndex         uint64
}

// ServerHealth is autopilot's view of one server.
type ServerHealth struct {
	ID, Name, Address, SerfStatus, Version string
	Leader, Voter, Healthy                 bool
	Replica                                bool   // never gets a vote
	NodeStatus                             string // what gossip says, in autopilot's words: alive, failed, left
	LastContact                            time.Duration
	LastTerm, LastIndex                    uint64
	StableSince                            time.Time
}

// AutopilotHealth is autopilot's view of the servers.
type AutopilotHealth struct {
	Healthy          bool
	FailureTolerance int
	Servers          []ServerHealth
}

// AutopilotConfig is what operators set of autopilot.
type AutopilotConfig struct {
	CleanupDeadServers      bool
	LastContactThreshold    time.Duration
	MaxTrailingLogs         uint64
	MinQuorum               uint
	ServerStabilizationTime time.Duration
	RedundancyZoneTag       string
	DisableUpgradeMigration bool
	UpgradeVersionTag       string
	CreateIndex             uint64
	ModifyIndex             uint64
}

// PeerRemoval says whom to take out of the Raft groups: one of ID and Address is set.
type PeerRemoval struct {
	ID, Address string
	// Group is the only one, as servers ask each other; "" is all.
	Group string
	// Token is the caller's, for a server that has to be asked.
	Token string
}

// Operator is the catalog's Raft group and its autopilot, on a server.
type Operator interface {
	// Leader is the leader's server address, "" when unknown.
	Leader() string
	// Peers are the addresses of all servers of the group.
	Peers() []string
	Configuration() (servers []RaftServer, index uint64, err error)
	// RemovePeer takes a server out of the Raft groups. NotFound: none has it.
	RemovePeer(ctx context.Context, r PeerRemoval) error
	// TransferLeader hands leadership to the server id, or to any when it is empty.
	TransferLeader(ctx context.Context, id string) error
	Autopilot() AutopilotConfig
	// SetAutopilot replaces the configuration; with cas only when ModifyIndex is still c.ModifyIndex.
	SetAutopilot(ctx context.Context, c AutopilotConfig, cas bool) (bool, error)
	AutopilotHealth() AutopilotHealth
}
