package member

import "time"

// Act is something that gossip starts in a process: by a message, by what a member says of itself, or by what others
// say of it. Gossip proves one thing alone, that who speaks has the pool's key, so that each act has a row which says
// who may start it and what stands between the word and harm. An act without a row is started by nobody: its messages
// are dropped, and who reads the pool for it sees no member.
type Act uint8

// The acts of messages and of memberlist's own protocol.
const (
	// ActLeave: a member is leaving, in its own words.
	ActLeave Act = iota + 1
	// ActForceLeave: a failed member becomes left, in an operator's words.
	ActForceLeave
	// ActPrune: a failed or left member is forgotten at once.
	ActPrune
	// ActEvent: a user event is kept, and its watches run.
	ActEvent
	// ActKeyRequest: the keyring changes, or is told. Servers carry it over RPC; see Pool.AnswerKeys.
	ActKeyRequest
	// ActKeyReply: the answer of a member to ActKeyRequest counts.
	ActKeyReply
	// ActArrive: a member is there, or changes its address or tags.
	ActArrive
	// ActFail: a member has failed, or has left if it said so.
	ActFail
	// ActHearsay: who failed or left before this member could see it.
	ActHearsay
	// ActConflict: the log says that two members have one name.
	ActConflict
	// ActCoordinate: a member lies somewhere in the network.
	ActCoordinate
)

// The acts of who reads the pool: see Pool.Members.
const (
	// ActShow: people and metrics are shown the members, and the process paces itself by their number.
	ActShow Act = iota + ActCoordinate + 1
	// ActReconcile: the leader writes the members and their health into the catalog.
	ActReconcile
	// ActSuggestServer: a server is suggested to the Raft groups, as one that comes or one that left.
	ActSuggestServer
	// ActAskServer: a server gets requests, and callers' tokens with them.
	ActAskServer
	// ActAskMember: a member is asked about its own host.
	ActAskMember
	// ActKnowPlain: on a network without TLS, an address is that of a server.
	ActKnowPlain
	// ActHintJoin: a new agent is told whose gossip to join.
	ActHintJoin
	// ActFlood: a server of this datacenter is brought into the pool of all datacenters.
	ActFlood
	// ActFederate: a server of another datacenter gets requests.
	ActFederate
	// ActCarryKeys: a member is told to change its keyring.
	ActCarryKeys

	actEnd // of the table; the next act goes before it
)

// Origin is who may start an act by gossip.
type Origin uint8

// The origins.
const (
	// Nobody: it is not for gossip. The default.
	Nobody Origin = iota
	// Subject is the member that the word is about: it refutes what others say in its name.
	Subject
	// Holder is whoever has the pool's key.
	Holder
)

// Row says of an act who may start it, and what then stands between the word and harm.
type Row struct {
	Name  string
	From  Origin
	Bound string
	of    func(*Member) bool // whom the act is about; nil: all members
}

// rows is the table. Rights of callers and certificates are judged elsewhere: here is what needs neither.
var rows = [actEnd]Row{
	ActLeave:      {Name: "leave", From: Subject, Bound: "a member that stays says so at once"},
	ActForceLeave: {Name: "force-leave", From: Holder, Bound: "it moves nobody who answers; votes are not touched"},
	ActPrune:      {Name: "prune", From: Holder, Bound: "it forgets nobody who answers; votes are not touched"},
	ActEvent: {Name: "user event", From: Holder,
		Bound: "watches are the host's own configuration; size and number are bounded"},
	ActKeyRequest: {Name: "key request"},
	ActKeyReply:   {Name: "key reply"},
	ActArrive: {Name: "join or tags", From: Holder,
		Bound: "a living member's name is kept; other datacenters are refused"},
	ActFail:       {Name: "member failed", From: Holder, Bound: "a member that is there refutes it"},
	ActHearsay:    {Name: "hearsay", From: Holder, Bound: "it moves nobody who answers; the number is bounded"},
	ActConflict:   {Name: "name conflict", From: Holder, Bound: "a line of the log each minute"},
	ActCoordinate: {Name: "coordinate", From: Subject, Bound: "an estimate of distance; what is no coordinate is dropped"},

	ActShow: {Name: "show members", From: Holder, Bound: "nothing is done by it"},
	ActReconcile: {Name: "write members to the catalog", From: Holder,
		Bound: "the node, its serfHealth, and the service consul of a server; no vote"},
	ActSuggestServer: {Name: "suggest a server to Raft", From: Holder, of: isServer,
		Bound: "the leader asks the server itself, over TLS; a voter that answers stays"},
	ActAskServer: {Name: "ask a server", From: Holder, of: isServer,
		Bound: "the certificate names a server, or nothing is sent"},
	ActAskMember: {Name: "ask a member", From: Holder,
		Bound: "the certificate is of the authority, or nothing is sent; no caller's token goes along"},
	ActKnowPlain: {Name: "know a server without TLS", From: Holder, of: isLivingServer,
		Bound: "without TLS alone, where nothing is proven; on servers, for Raft alone and without a leader"},
	ActHintJoin: {Name: "hint where to join", From: Holder, of: isLivingServer,
		Bound: "who joins there has the key, and asks servers over TLS"},
	ActFlood: {Name: "flood the WAN pool", From: Holder, of: isLivingServer,
		Bound: "who answers has the key of the WAN pool; all else asks for a certificate"},
	ActFederate: {Name: "ask another datacenter", From: Holder, of: isServer,
		Bound: "the certificate names a server of that datacenter, or nothing is sent"},
	ActCarryKeys: {Name: "carry a key operation", From: Holder,
		Bound: "the certificate is of the authority, or no key is sent"},
}

func isServer(m *Member) bool       { return m.Tags["role"] == "consul" }
func isLivingServer(m *Member) bool { return isServer(m) && m.Status == Alive }

// row is the act's; what is none has nobody's.
func (a Act) row() *Row {
	if a < actEnd {
		return &rows[a]
	}
	return &Row{}
}

// Acts lists the table.
func Acts() map[Act]Row {
	all := make(map[Act]Row, actEnd)
	for a := Act(1); a < actEnd; a++ {
		all[a] = rows[a]
	}
	return all
}

// String returns the act's name.
func (a Act) String() string { return a.row().Name }

// start lets the word of a member start an act, if its row lets anybody.
func (p *Pool) start(a Act, do func()) {
	if a.row().From != Nobody {
		do()
		return
	}
	p.alarms.refused.Add(1)
	if p.alarms.refusal.due(time.Now()) {
		p.cfg.Log.Warn("gossip asked for what it may not start, and was refused: a member is of an older version, or"+
			" somebody has the gossip key who should not", "act", a)
	}
}

// Members returns those known whom the act is about, sorted by name. The slice is shared: it must not be changed.
func (p *Pool) Members(a Act) []Member {
	row := a.row()
	switch {
	case row.From == Nobody:
		return nil
	case row.of == nil:
		return p.members.list()
	}
	var list []Member
	for _, m := range p.members.list() {
		if row.of(&m) {
			list = append(list, m)
		}
	}
	return list
}

// Member returns one of Members by name.
func (p *Pool) Member(a Act, name string) (Member, bool) {
	m, ok := p.members.get(name)
	if row := a.row(); !ok || row.From == Nobody || row.of != nil && !row.of(&m) {
		return Member{}, false
	}
	return m, true
}
