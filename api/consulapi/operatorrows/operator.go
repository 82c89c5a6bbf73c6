package operatorrows

import (
	"net/http"
	"strconv"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

// A server answers the status rows itself, whether there is a leader or not:
// they are what everybody polls before there is one.

func (or *Rows) statusLeader(q *rows.Request) error {
	leader := ""
	if or.Group != nil {
		leader = or.Group.Leader()
	}
	return q.Reply(answer.AppendString(q.Buffer(), leader))
}

func (or *Rows) statusPeers(q *rows.Request) error {
	var peers []string
	if or.Group != nil {
		peers = or.Group.Peers()
	}
	return q.Reply(answer.AppendStrings(q.Buffer(), peers))
}

// Operator asks for the right and checks that there is a group to operate.
func (or *Rows) Operator(q *rows.Request, l acl.Level) (Operator, error) {
	if err := q.Allow(acl.Operator, "", l); err != nil {
		return nil, err
	}
	if or.Group == nil {
		return nil, answer.ErrNoServers
	}
	return or.Group, nil
}

// leaderOnly forwards what only the leader knows or may do. done tells that it was answered.
func leaderOnly(q *rows.Request) error {
	if err := q.ReadParams(); err != nil {
		return err
	}
	if q.Mode == registry.Stale {
		return nil
	}
	_, err := q.Registry.Read(q.R.Context(), registry.Default)
	return err // of kind NotLeader: fail forwards
}

type wireRaftServer struct {
	ID, Node, Address string
	Leader            bool
	ProtocolVersion   string
	Voter             bool
	LastIndex         uint64
}

func (or *Rows) raftConfiguration(q *rows.Request) error {
	op, err := or.Operator(q, acl.Read)
	if err != nil {
		return err
	}
	if err := leaderOnly(q); err != nil {
		return err
	}
	servers, index, err := op.Configuration()
	if err != nil {
		return err
	}
	out := struct {
		Servers []wireRaftServer
		Index   uint64
	}{Servers: []wireRaftServer{}, Index: index}
	for _, s := range servers {
		out.Servers = append(out.Servers, wireRaftServer{ID: s.ID, Node: s.Node, Address: s.Address,
			Leader: s.Leader, ProtocolVersion: "3", Voter: s.Voter, LastIndex: s.LastIndex})
	}
	return q.ReplyValue(out)
}

func (or *Rows) raftRemovePeer(q *rows.Request) error {
	op, err := or.Operator(q, acl.Write)
	if err != nil {
		return err
	}
	id, address := q.Query.Value("id"), q.Query.Value("address")
	switch {
	case id == "" && address == "":
		return answer.Invalidf("Must specify either ?id with the server's ID or ?address with IP:port of peer to remove")
	case id != "" && address != "":
		return answer.Invalidf("Must specify only one of ?id or ?address")
	}
	group := q.Query.Value("group") // of another plane: this server knows its leader
	if group == "" {
		if err := leaderOnly(q); err != nil {
			return err
		}
	}
	return RemovePeer(q, op, PeerRemoval{ID: id, Address: address, Group: group, Token: q.Token()},
		q.Query.Has("if-present"))
}

// RemovePeer takes a server out of the Raft groups and answers; ifPresent lets it be gone already.
func RemovePeer(q *rows.Request, op Operator, r PeerRemoval, ifPresent bool) error {
	err := op.RemovePeer(q.R.Context(), r)
	switch {
	case errkind.Is(err, errkind.NotFound) && r.Group != "":
		return answer.Fail(http.StatusNotFound, errkind.Text(err))
	case errkind.Is(err, errkind.NotFound) && ifPresent:
		return q.ReplyEmpty()
	case err != nil && r.Group != "": // nobody else is asked for it
		return answer.Fail(http.StatusInternalServerError, errkind.Text(err))
	case err != nil:
		return answer.Refused(err)
	}
	return q.ReplyEmpty()
}

func (or *Rows) raftTransfer(q *rows.Request) error {
	op, err := or.Operator(q, acl.Write)
	if err != nil {
		return err
	}
	if err := leaderOnly(q); err != nil {
		return err
	}
	if err := op.TransferLeader(q.R.Context(), q.Query.Value("id")); err != nil {
		if errkind.Is(err, errkind.NotLeader) {
			return err
		}
		return answer.Fail(http.StatusNotFound, "Failed to transfer Leader: "+errkind.Text(err))
	}
	return q.Reply([]byte(`{"Success":true}`))
}

// wireAutopilot is the configuration as clients read and write it.
type wireAutopilot struct {
	CleanupDeadServers      bool
	LastContactThreshold    bodies.Span
	MaxTrailingLogs         uint64
	MinQuorum               uint
	ServerStabilizationTime bodies.Span
	RedundancyZoneTag       string
	DisableUpgradeMigration bool
	UpgradeVersionTag       string
	CreateIndex             uint64
	ModifyIndex             uint64
}

func (or *Rows) autopilotConfig(q *rows.Request) error {
	op, err := or.Operator(q, acl.Read)
	if err != nil {
		return err
	}
	if err := leaderOnly(q); err != nil {
		return err
	}
	c := op.Autopilot()
	return q.ReplyValue(wireAutopilot{CleanupDeadServers: c.CleanupDeadServers,
		LastContactThreshold: bodies.Span(c.LastContactThreshold),
		MaxTrailingLogs:      c.MaxTrailingLogs, MinQuorum: c.MinQuorum,
		ServerStabilizationTime: bodies.Span(c.ServerStabilizationTime),
		RedundancyZoneTag:       c.RedundancyZoneTag, DisableUpgradeMigration: c.DisableUpgradeMigration,
		UpgradeVersionTag: c.UpgradeVersionTag, CreateIndex: c.CreateIndex, ModifyIndex: c.ModifyIndex})
}

func (or *Rows) autopilotSet(q *rows.Request) error {
	op, err := or.Operator(q, acl.Write)
	if err != nil {
		return err
	}
	var in wireAutopilot
	if err := q.Decode(&in); err != nil {
		return err
	}
	c := AutopilotConfig{CleanupDeadServers: in.CleanupDeadServers,
		LastContactThreshold: time.Duration(in.LastContactThreshold),
		MaxTrailingLogs:      in.MaxTrailingLogs, MinQuorum: in.MinQuorum,
		ServerStabilizationTime: time.Duration(in.ServerStabilizationTime),
		RedundancyZoneTag:       in.RedundancyZoneTag, DisableUpgradeMigration: in.DisableUpgradeMigration,
		UpgradeVersionTag: in.UpgradeVersionTag}
	v, cas := q.Query.Get("cas")
	if cas {
		if c.ModifyIndex, err = strconv.ParseUint(v, 10, 64); err != nil {
			return answer.Invalidf("Error parsing cas value: %v", err)
		}
	}
	ok, err := op.SetAutopilot(q.R.Context(), c, cas)
	if errkind.Is(err, errkind.Invalid) {
		return err
	}
	if err != nil {
		return answer.Refused(err)
	}
	if cas {
		return q.ReplyBool(ok)
	}
	return q.ReplyEmpty()
}

type wireServerHealth struct {
	ID, Name, Address, SerfStatus, Version string
	Leader                                 bool
	LastContact                            bodies.Span
	LastTerm, LastIndex                    uint64
	Healthy, Voter                         bool
	StableSince                            time.Time
}

func wireHealth(s ServerHealth) wireServerHealth {
	return wireServerHealth{ID: s.ID, Name: s.Name, Address: s.Address, SerfStatus: s.SerfStatus, Version: s.Version,
		Leader: s.Leader, LastContact: bodies.Span(s.LastContact), LastTerm: s.LastTerm, LastIndex: s.LastIndex,
		Healthy: s.Healthy, Voter: s.Voter, StableSince: s.StableSince.UTC()}
}

func (or *Rows) autopilot(q *rows.Request) (AutopilotHealth, error) {
	op, err := or.Operator(q, acl.Read)
	if err != nil {
		return AutopilotHealth{}, err
	}
	if err := leaderOnly(q); err != nil {
		return AutopilotHealth{}, err
	}
	return op.AutopilotHealth(), nil
}

func (or *Rows) autopilotHealth(q *rows.Request) error {
	h, err := or.autopilot(q)
	if err != nil {
		return err
	}
	out := struct {
		Healthy          bool
		FailureTolerance int
		Servers          []wireServerHealth
	}{h.Healthy, h.FailureTolerance, []wireServerHealth{}}
	for _, s := range h.Servers {
		out.Servers = append(out.Servers, wireHealth(s))
	}
	status := http.StatusOK
	if !h.Healthy {
		status = http.StatusTooManyRequests // data, not throttling
	}
	return q.ReplyValueStatus(status, out)
}

func (or *Rows) autopilotState(q *rows.Request) error {
	h, err := or.autopilot(q)
	if err != nil {
		return err
	}
	type server struct {
		ID, Name, Address, NodeStatus, Version string
		LastContact                            bodies.Span
		LastTerm, LastIndex                    uint64
		Healthy                                bool
		StableSince                            time.Time
		Status, NodeType                       string
		Meta                                   map[string]string
	}
	out := struct {
		Healthy                    bool
		FailureTolerance           int
		OptimisticFailureTolerance int
		Servers                    map[string]server
		Leader                     string
		Voters                     []string
	}{Healthy: h.Healthy, FailureTolerance: h.FailureTolerance, OptimisticFailureTolerance: h.FailureTolerance,
		Servers: map[string]server{}, Voters: []string{}}
	for _, s := range h.Servers {
		status, kind := "non-voter", "voter"
		if s.Replica {
			status, kind = "read-replica", "read-replica"
		}
		switch {
		case s.Leader:
			status, out.Leader = "leader", s.ID
		case s.Voter:
			status = "voter"
		}
		if s.Voter {
			out.Voters = append(out.Voters, s.ID)
		}
		out.Servers[s.ID] = server{ID: s.ID, Name: s.Name, Address: s.Address, NodeStatus: s.NodeStatus, Version: s.Version,
			LastContact: bodies.Span(s.LastContact), LastTerm: s.LastTerm, LastIndex: s.LastIndex, Healthy: s.Healthy,
			StableSince: s.StableSince.UTC(), Status: status, NodeType: kind, Meta: map[string]string{}}
	}
	return q.ReplyValue(out)
}
