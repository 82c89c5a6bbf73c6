package client

// Node is a host of the catalog.
type Node struct {
	ID              string
	Node            string
	Address         string
	Datacenter      string
	TaggedAddresses map[string]string
	Meta            map[string]string
	CreateIndex     uint64
	ModifyIndex     uint64
}

// Tally counts instances by their worst check, the node's own among them.
type Tally struct{ Instances, Passing, Warning, Critical int }

// ServiceCount is a service in one line.
type ServiceCount struct {
	Name string
	Tags []string
	Tally
}

// NodeCount is a node in one line. Status is the worst of its own checks.
type NodeCount struct {
	Node, Status string
	Tally
}

// Service is one instance in a health answer or on the agent.
type Service struct {
	Kind        string `json:",omitempty"`
	ID          string
	Service     string
	Tags        []string
	Meta        map[string]string
	Port        int
	Address     string
	SocketPath  string `json:",omitempty"`
	CreateIndex uint64 `json:",omitempty"`
	ModifyIndex uint64 `json:",omitempty"`
}

// Check is a health check in the catalog.
type Check struct {
	Node        string
	CheckID     string
	Name        string
	Status      string
	Notes       string
	Output      string
	ServiceID   string
	ServiceName string
	ServiceTags []string
	Type        string
	CreateIndex uint64
	ModifyIndex uint64
}

// ServiceEntry is an instance with its node and all checks that decide about it.
type ServiceEntry struct {
	Node    Node
	Service Service
	Checks  []Check
}

// Status is the worst of the entry's checks: passing, warning, critical or maintenance.
func (e *ServiceEntry) Status() string { return Worst(e.Checks) }

// Worst sums checks up as clients of the contract do.
func Worst(checks []Check) string {
	worst := "passing"
	for _, c := range checks {
		switch {
		case c.CheckID == "_node_maintenance" || len(c.CheckID) > 21 && c.CheckID[:21] == "_service_maintenance:":
			return "maintenance"
		case c.Status == "critical" || c.Status == "warning" && worst == "passing":
			worst = c.Status
		}
	}
	return worst
}

// KVPair is one key. Value is base64 in JSON.
type KVPair struct {
	Key         string
	Value       []byte
	Flags       uint64
	Session     string `json:",omitempty"`
	LockIndex   uint64
	CreateIndex uint64
	ModifyIndex uint64
}

// Session is what CreateSession takes. TTL and LockDelay are Go durations as text.
type Session struct {
	Name       string   `json:",omitempty"`
	Node       string   `json:",omitempty"`
	LockDelay  string   `json:",omitempty"`
	Behavior   string   `json:",omitempty"`
	TTL        string   `json:",omitempty"`
	NodeChecks []string `json:",omitempty"`
}

// Member is a process of the gossip pool.
type Member struct {
	Name        string
	Addr        string
	Port        int
	Tags        map[string]string
	Status      int // 1 alive, 2 leaving, 3 left, 4 failed
	ProtocolCur uint8
}

// StatusText is the status in a word.
func (m *Member) StatusText() string {
	if words := [...]string{"none", "alive", "leaving", "left", "failed"}; m.Status >= 0 && m.Status < len(words) {
		return words[m.Status]
	}
	return "unknown"
}

// RaftServer is a member of the servers' Raft group.
type RaftServer struct {
	ID, Node, Address string
	Leader, Voter     bool
	ProtocolVersion   string
	LastIndex         uint64
}

// RaftConfiguration is the servers' Raft group.
type RaftConfiguration struct {
	Servers []RaftServer
	Index   uint64
}

// Autopilot is the servers' self-care. Durations are text, as the contract has them.
type Autopilot struct {
	CleanupDeadServers      bool
	LastContactThreshold    string
	MaxTrailingLogs         uint64
	MinQuorum               uint
	ServerStabilizationTime string
	RedundancyZoneTag       string
	DisableUpgradeMigration bool
	UpgradeVersionTag       string
	CreateIndex             uint64
	ModifyIndex             uint64
}

// Self is what an agent says about itself.
type Self struct {
	Config map[string]any
	Member Member
	Stats  map[string]map[string]string
	Meta   map[string]string
}
