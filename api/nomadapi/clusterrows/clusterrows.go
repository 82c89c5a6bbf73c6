// Package clusterrows answers the rows of the servers themselves: what operators set, who is a member, who leads,
// health, and the sweep of what is over.
package clusterrows

import (
	"net/http"
	"slices"
	"strconv"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/errkind"
)

type request = nomadrows.Request

// Rows are the rows of the cluster.
func Rows() []nomadrows.Row {
	const any, agent, see, set = nomadrows.Anyone, nomadrows.AgentRead, nomadrows.OperatorRead, nomadrows.OperatorWrite
	return []nomadrows.Row{
		{Methods: "GET", Path: "/v1/operator/scheduler/configuration", Right: see, Handle: scheduler},
		{Methods: "PUT POST", Path: "/v1/operator/scheduler/configuration", Right: set, Handle: setScheduler},
		{Methods: "GET", Path: "/v1/operator/snapshot", Right: nomadrows.Management, Stream: true, Handle: saveSnapshot},
		{Methods: "PUT POST", Path: "/v1/operator/snapshot", Right: nomadrows.Management, Stream: true,
			Handle: restoreSnapshot},
		{Methods: "GET", Path: "/v1/operator/raft/configuration", Right: see, Handle: raft},
		{Methods: "GET", Path: "/v1/operator/autopilot/health", Right: see, Handle: autopilot},
		{Methods: "GET", Path: "/v1/agent/self", Right: agent, Own: true, Handle: self},
		{Methods: "GET", Path: "/v1/agent/members", Right: agent, Own: true, Handle: members},
		{Methods: "GET", Path: "/v1/agent/servers", Right: agent, Own: true, Handle: servers},
		{Methods: "GET", Path: "/v1/agent/health", Right: any, Own: true, Handle: health},
		{Methods: "GET", Path: "/v1/agent/monitor", Right: agent, Own: true, Handle: monitor},
		{Methods: "GET", Path: "/v1/agent/schedulers", Right: agent, Own: true, Handle: schedulers},
		{Methods: "GET", Path: "/v1/status/leader", Right: any, Own: true, Handle: leader},
		{Methods: "GET", Path: "/v1/status/peers", Right: any, Own: true, Handle: peers},
		{Methods: "GET", Path: "/v1/regions", Right: any, Own: true, Handle: regions},
		{Methods: "GET", Path: "/v1/metrics", Right: any, Own: true, Handle: metrics},
		{Methods: "PUT POST", Path: "/v1/system/gc", Right: nomadrows.Management, Handle: collect},
		{Methods: "PUT POST", Path: "/v1/system/reconcile/summaries", Right: nomadrows.Management, Handle: reconcile},
		{Methods: "GET", Path: "/v1/operator/license", Right: any, Own: true, Handle: license},
		{Methods: "GET", Path: "/v1/volumes", Right: nomadrows.ReadJob, Own: true, Handle: none},
		{Methods: "GET", Path: "/v1/plugins", Right: nomadrows.ReadJob, Own: true, Handle: none},
		{Methods: "GET", Path: "/v1/volume/csi/:id", Right: nomadrows.ReadJob, Own: true, Handle: noVolume},
		{Methods: "GET", Path: "/v1/plugin/csi/:id", Right: nomadrows.ReadJob, Own: true, Handle: noPlugin},
		{Methods: "GET", Path: "/.well-known/jwks.json", Right: any, Handle: keys},
		{Methods: "GET", Path: "/v1/operator/keyring/keys", Right: nomadrows.Management, Handle: signing},
		{Methods: "PUT POST", Path: "/v1/operator/keyring/rotate", Right: nomadrows.Management, Handle: rotate},
		{Methods: "DELETE", Path: "/v1/operator/keyring/key/:id", Right: nomadrows.Management, Handle: removeKey},
		{Methods: "GET", Path: "/.well-known/openid-configuration", Right: any, Handle: discovery},
	}
}

func scheduler(q *request) error {
	return q.Read(nomadrows.Whole(nomadrows.Scheduler, func(v nomadrows.View) (any, error) {
		s := v.Scheduler()
		if s.SchedulerAlgorithm == "" {
			s.SchedulerAlgorithm = jobs.Binpack
		}
		return struct {
			SchedulerConfig nomadrows.SchedulerSetting
			Index           uint64
			LastContact     int64
			KnownLeader     bool
			NextToken       string
		}{SchedulerConfig: s, Index: v.Index(nomadrows.Scheduler), KnownLeader: true}, nil
	}))
}

func setScheduler(q *request) error {
	s, err := nomadrows.Decode[nomadrows.SchedulerSetting](q)
	if err != nil {
		return err
	}
	switch s.SchedulerAlgorithm {
	case "", jobs.Binpack, jobs.SpreadFit:
	default:
		return nomadrows.BadRequest("invalid scheduler algorithm: %s", s.SchedulerAlgorithm)
	}
	var index *uint64
	if text, ok := q.Query.Get("cas"); ok {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nomadrows.BadRequest("Error parsing cas value: %v", err)
		}
		index = &n
	}
	w, err := q.Settings.SetScheduler(q.Ctx(), *s, index)
	if err != nil {
		return err
	}
	return q.Wrote(w.Index, struct {
		Updated bool
		Index   uint64
	}{w.Updated, w.Index})
}

type raftServer struct {
	ID, Node, Address string
	Leader, Voter     bool
	RaftProtocol      string
}

func raft(q *request) error {
	list := []raftServer{}
	for _, s := range q.Cluster.Servers() {
		if s.Status == "alive" || s.Voter {
			list = append(list, raftServer{s.ID, s.Name + "." + s.Region, s.Address, s.Leader, s.Voter, "3"})
		}
	}
	return q.JSON(struct {
		Servers []raftServer
		Index   uint64
	}{list, 0})
}

type serverHealth struct {
	ID, Name, Address, SerfStatus, Version string
	Leader, Voter, Healthy                 bool
	LastContact                            string
}

func autopilot(q *request) error {
	healthy, voters := true, 0
	list := []serverHealth{}
	for _, s := range q.Cluster.Servers() {
		if s.Status == "left" {
			continue
		}
		ok := s.Status == "alive"
		healthy = healthy && ok
		if ok && s.Voter {
			voters++
		}
		list = append(list, serverHealth{s.ID, s.Name, s.Address, s.Status, s.Tags["build"], s.Leader, s.Voter, ok, "0s"})
	}
	return q.JSON(struct {
		Healthy          bool
		FailureTolerance int
		Servers          []serverHealth
	}{healthy, max(0, (voters-1)/2), list})
}

type member struct {
	Name, Addr  string
	Port        uint16
	Tags        map[string]string
	Status      string
	ProtocolMin uint8
	ProtocolMax uint8
	ProtocolCur uint8
	DelegateMin uint8
	DelegateMax uint8
	DelegateCur uint8
}

func memberOf(s nomadrows.Server) member {
	host, port := split(s.Address)
	tags := map[string]string{"role": "nomad", "region": s.Region, "dc": s.Datacenter, "id": s.ID,
		"port": strconv.Itoa(int(port)), "rpc_addr": host}
	for name, value := range s.Tags {
		tags[name] = value
	}
	return member{Name: s.Name + "." + s.Region, Addr: host, Port: port, Tags: tags, Status: s.Status, ProtocolMin: 1,
		ProtocolMax: 5, ProtocolCur: 2, DelegateMin: 2, DelegateMax: 5, DelegateCur: 4}
}

// split divides an address; a port that is none is 0.
func split(address string) (host string, port uint16) {
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == ':' {
			n, err := strconv.ParseUint(address[i+1:], 10, 16)
			if err != nil {
				return address, 0
			}
			return address[:i], uint16(n)
		}
	}
	return address, 0
}

func members(q *request) error {
	own := q.Cluster.Self()
	list := []member{}
	for _, s := range q.Cluster.Servers() {
		list = append(list, memberOf(s))
	}
	if others := q.Cluster.Regions(); others != nil {
		for _, s := range others.Servers() {
			list = append(list, memberOf(s))
		}
	}
	return q.JSON(struct {
		ServerName, ServerRegion, ServerDC string
		Members                            []member
	}{own.Name, own.Region, own.Datacenter, list})
}

func servers(q *request) error {
	list := []string{}
	for _, s := range q.Cluster.Servers() {
		if s.Status == "alive" {
			list = append(list, s.Address)
		}
	}
	return q.JSON(list)
}

func self(q *request) error {
	own := q.Cluster.Self()
	config := map[string]any{"Region": own.Region, "Datacenter": own.Datacenter, "NodeName": own.Name,
		"Server": map[string]any{"Enabled": own.Server}, "Client": map[string]any{"Enabled": !own.Node.IsZero()},
		"ACL":     map[string]any{"Enabled": q.Rights != nil},
		"Version": map[string]any{"Version": own.Version}}
	for name, value := range own.Config {
		config[name] = value
	}
	answer := struct {
		Config map[string]any               `json:"config"`
		Member *member                      `json:"member"`
		Stats  map[string]map[string]string `json:"stats"`
	}{config, &member{Name: own.Name + "." + own.Region, Status: "alive", Tags: map[string]string{}}, own.Stats}
	if answer.Stats == nil {
		answer.Stats = map[string]map[string]string{}
	}
	for _, s := range q.Cluster.Servers() {
		if s.Name == own.Name {
			m := memberOf(s)
			answer.Member = &m
		}
	}
	if !own.Node.IsZero() {
		answer.Stats["client"] = map[string]string{"node_id": own.Node.String()}
	}
	return q.JSON(answer)
}

type well struct {
	Ok      bool   `json:"ok"`
	Message string `json:"message"`
}

func health(q *request) error {
	own := q.Cluster.Self()
	answer := map[string]well{}
	good := true
	if own.Server {
		leads := q.Cluster.Leader() != ""
		answer["server"] = well{leads, "ok"}
		if !leads {
			good = false
			answer["server"] = well{false, "No cluster leader"}
		}
	}
	if !own.Node.IsZero() {
		answer["client"] = well{true, "ok"}
	}
	if !good {
		text := `{"server":{"ok":false,"message":"No cluster leader"}}`
		return &nomadrows.Refusal{Status: http.StatusInternalServerError, Text: text}
	}
	return q.JSON(answer)
}

func schedulers(q *request) error {
	own := q.Cluster.Self()
	return q.JSON(struct {
		ServerID   string           `json:"server_id"`
		Schedulers []map[string]any `json:"schedulers"`
	}{own.Name, []map[string]any{{"id": own.Name, "enabled_schedulers": []string{jobs.Batch, jobs.Service, jobs.SysBatch,
		jobs.System}, "status": "running"}}})
}

func leader(q *request) error {
	address := q.Cluster.Leader()
	if address == "" {
		return nomadrows.Failed("No cluster leader")
	}
	return q.JSON(address)
}

func peers(q *request) error {
	list := []string{}
	for _, s := range q.Cluster.Servers() {
		if s.Voter {
			list = append(list, s.Address)
		}
	}
	return q.JSON(list)
}

func regions(q *request) error {
	list := []string{q.Cluster.Self().Region}
	if others := q.Cluster.Regions(); others != nil {
		list = append(list, others.Names()...)
	}
	slices.Sort(list)
	return q.JSON(slices.Compact(list))
}

func metrics(q *request) error {
	if q.Metrics == nil {
		return nomadrows.NotFound("this process has no metrics")
	}
	q.Metrics.ServeHTTP(q.W, q.R)
	return nil
}

func collect(q *request) error {
	if err := q.Settings.Collect(q.Ctx()); err != nil {
		return err
	}
	return nil
}

func reconcile(q *request) error { return q.Settings.Reconcile(q.Ctx()) }

func license(q *request) error {
	q.W.WriteHeader(http.StatusNoContent)
	return nil
}

// none answers lists of what only plug-ins of storage bring, and these do not run here.
func none(q *request) error { return q.JSON([]any{}) }

func noVolume(*request) error { return nomadrows.NotFound("volume not found") }

func noPlugin(*request) error { return nomadrows.NotFound("plugin not found") }

func keys(q *request) error {
	if q.Keys == nil {
		return nomadrows.NotFound("")
	}
	set, err := q.Keys.JWKS(q.Ctx())
	if err != nil {
		return unsealed(err)
	}
	q.W.Header()["Cache-Control"] = []string{"public, max-age=60"}
	return q.JSON(set)
}

func discovery(q *request) error {
	if q.Keys == nil || q.Keys.Issuer() == "" {
		return nomadrows.NotFound("OIDC Discovery endpoint disabled")
	}
	issuer := q.Keys.Issuer()
	return q.JSON(map[string]any{"issuer": issuer, "jwks_uri": issuer + "/.well-known/jwks.json",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256", "EdDSA"}})
}

func signing(q *request) error {
	list := []nomadrows.SigningKey{}
	if q.Keys != nil {
		list = append(list, q.Keys.Signing()...)
	}
	return q.JSON(list)
}

func removeKey(q *request) error {
	if q.Keys == nil {
		return nomadrows.Failed("there are no workload identities")
	}
	if err := q.Keys.Remove(q.Ctx(), q.Args["id"]); err != nil {
		return err
	}
	return q.Wrote(0, nil)
}

func rotate(q *request) error {
	if q.Keys == nil {
		return nomadrows.Failed("there are no workload identities")
	}
	k, err := q.Keys.Rotate(q.Ctx())
	if err != nil {
		return unsealed(err)
	}
	return q.JSON(map[string]any{"Key": k})
}

// unsealed is err as 503 while nothing seals or opens keys.
func unsealed(err error) error {
	if errkind.Is(err, errkind.Unavailable) {
		return &nomadrows.Refusal{Status: http.StatusServiceUnavailable, Text: errkind.Text(err)}
	}
	return err
}
