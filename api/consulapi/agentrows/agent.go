package agentrows

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/catalogrows"
	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/hostinfo"
	"corbel.dev/corbel/kit/vivaldi"
)

var errNoGossip = answer.Fail(http.StatusInternalServerError, "This process is in no gossip pool")

func (ar *Rows) agentSelf(q *rows.Request) error {
	if err := q.Allow(acl.Agent, q.Identity.NodeName, acl.Read); err != nil {
		return err
	}
	id := &q.Identity
	meta := id.NodeMeta
	if meta == nil {
		meta = map[string]string{}
	}
	debug, stats := map[string]any{}, map[string]map[string]string{}
	if info := ar.Info; info != nil {
		debug, stats = info.DebugConfig(), info.Stats()
	}
	out := map[string]any{
		"Config": map[string]any{
			"Datacenter": id.Datacenter, "PrimaryDatacenter": id.PrimaryDatacenter, "NodeName": id.NodeName,
			"NodeID": id.NodeID, "Revision": id.Revision, "Server": id.Server, "Version": id.Version, "BuildDate": id.BuildDate,
		},
		"DebugConfig": debug, "Stats": stats, "Meta": meta, "Coord": ar.place(q), "Member": ar.self(q),
	}
	if id.GRPCPort > 0 || id.GRPCTLSPort > 0 { // absent, never null, where nothing listens
		out["xDS"] = map[string]any{
			"SupportedProxies": map[string][]string{"envoy": supportedEnvoys},
			"Port":             id.GRPCPort,
			"Ports":            map[string]int{"Plaintext": id.GRPCPort, "TLS": id.GRPCTLSPort},
		}
	}
	return q.ReplyValue(out)
}

// supportedEnvoys are the Envoy versions that proxies may run, newest first, the newest patch of each.
var supportedEnvoys = []string{"1.40.0", "1.39.3", "1.38.3", "1.37.0", "1.36.4"}

// place is where this agent lies.
func (ar *Rows) place(q *rows.Request) operatorrows.WireCoord {
	if ar.Place == nil {
		return operatorrows.CoordOf(vivaldi.New())
	}
	return operatorrows.CoordOf(ar.Place())
}

type wireMember struct {
	Name        string
	Addr        string
	Port        uint16
	Tags        map[string]string
	Status      int
	ProtocolMin uint8
	ProtocolMax uint8
	ProtocolCur uint8
	DelegateMin uint8
	DelegateMax uint8
	DelegateCur uint8
}

func member(m Member) wireMember {
	if m.Tags == nil {
		m.Tags = map[string]string{}
	}
	return wireMember{Name: m.Name, Addr: m.Addr, Port: m.Port, Tags: m.Tags, Status: m.Status,
		ProtocolMin: 1, ProtocolMax: 5, ProtocolCur: 2, DelegateMin: 2, DelegateMax: 5, DelegateCur: 4}
}

// self is this agent's own row.
func (ar *Rows) self(q *rows.Request) wireMember {
	if ar.Members != nil {
		for _, m := range ar.Members.Members() {
			if m.Name == q.Identity.NodeName {
				return member(m)
			}
		}
	}
	return member(Member{Name: q.Identity.NodeName, Status: 1})
}

var memberSchema = filter.NewSchema(
	map[string]func(*Member) string{
		"Name": func(m *Member) string { return m.Name },
		"Addr": func(m *Member) string { return m.Addr },
	},
	map[string]func(*Member) int{
		"Port":   func(m *Member) int { return int(m.Port) },
		"Status": func(m *Member) int { return m.Status },
	},
	map[string]func(*Member) map[string]string{"Tags": func(m *Member) map[string]string { return m.Tags }},
)

// pool is the gossip pool that the request is about; nil when this process is not in it.
func (ar *Rows) pool(q *rows.Request) Members {
	if q.Query.Has("wan") {
		return ar.WAN
	}
	return ar.Members
}

// somePool is pool, or why there is none.
func (ar *Rows) somePool(q *rows.Request) (Members, error) {
	if p := ar.pool(q); p != nil {
		return p, nil
	}
	if !q.Query.Has("wan") {
		return nil, errNoGossip
	}
	if !q.Identity.Server {
		return nil, answer.Fail(http.StatusInternalServerError, "Must be a server to join WAN cluster")
	}
	return nil, answer.Fail(http.StatusInternalServerError,
		"This server takes no part in the gossip between datacenters: set ports.serf_wan")
}

func (ar *Rows) agentMembers(q *rows.Request) error {
	f, err := q.Filter(memberSchema)
	if err != nil {
		return err
	}
	out := []wireMember{}
	if pool := ar.pool(q); pool != nil {
		for _, m := range pool.Members() {
			node := m.Name
			if q.Query.Has("wan") { // where names carry their datacenter
				node = strings.TrimSuffix(m.Name, "."+m.Tags["dc"])
			}
			if q.Sees(acl.Node, node) && f.Match(&m) {
				out = append(out, member(m))
			}
		}
	}
	return q.ReplyValue(out)
}

func (ar *Rows) agentJoin(q *rows.Request) error {
	if err := q.Allow(acl.Agent, q.Identity.NodeName, acl.Write); err != nil {
		return err
	}
	if q.Rest == "" {
		return answer.Invalidf("Missing address to join")
	}
	pool, err := ar.somePool(q)
	if err != nil {
		return err
	}
	if _, err := pool.Join(q.R.Context(), []string{q.Rest}); err != nil {
		return answer.Fail(http.StatusInternalServerError, errkind.Text(err))
	}
	return q.ReplyEmpty()
}

// info asks for write on the agent and for what answers about the process.
func (ar *Rows) info(q *rows.Request) (AgentInfo, error) {
	if err := q.Allow(acl.Agent, q.Identity.NodeName, acl.Write); err != nil {
		return nil, err
	}
	if ar.Info == nil {
		return nil, answer.Fail(http.StatusInternalServerError, "This process cannot be controlled by its API")
	}
	return ar.Info, nil
}

func (ar *Rows) agentLeave(q *rows.Request) error {
	info, err := ar.info(q)
	if err != nil {
		return err
	}
	if err := info.Leave(q.R.Context()); err != nil {
		return answer.Fail(http.StatusInternalServerError, errkind.Text(err))
	}
	return q.ReplyEmpty()
}

func (ar *Rows) agentReload(q *rows.Request) error {
	info, err := ar.info(q)
	if err != nil {
		return err
	}
	if err := info.Reload(q.R.Context()); err != nil {
		return answer.Fail(http.StatusInternalServerError, errkind.Text(err))
	}
	return q.ReplyEmpty()
}

func agentVersion(q *rows.Request) error {
	if err := q.Allow(acl.Agent, q.Identity.NodeName, acl.Read); err != nil {
		return err
	}
	id := &q.Identity
	return q.ReplyValue(struct{ SHA, BuildDate, HumanVersion, FIPS string }{id.Revision, id.BuildDate, id.Version, ""})
}

func (ar *Rows) agentMetrics(q *rows.Request) error {
	if err := q.Allow(acl.Agent, q.Identity.NodeName, acl.Read); err != nil {
		return err
	}
	if ar.MetricsHandler == nil {
		return answer.Fail(http.StatusInternalServerError, "This process keeps no metrics")
	}
	ar.MetricsHandler.ServeHTTP(q.W, q.R)
	return nil
}

var logLevels = map[string]slog.Level{
	"": slog.LevelInfo, "trace": slog.LevelDebug - 4, "debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "warning": slog.LevelWarn, "err": slog.LevelError, "error": slog.LevelError,
}

func (ar *Rows) agentMonitor(q *rows.Request) error {
	if err := q.Allow(acl.Agent, q.Identity.NodeName, acl.Read); err != nil {
		return err
	}
	level, ok := logLevels[strings.ToLower(q.Query.Value("loglevel"))]
	if !ok {
		return answer.Invalidf("Unknown log level: %s", q.Query.Value("loglevel"))
	}
	if ar.Logs == nil {
		return answer.Fail(http.StatusInternalServerError, "This process keeps no log to follow")
	}
	s := httpx.NewStream(q.W, q.R, rows.RawType)
	defer s.Close()
	held, release := q.Standing().Hold(q.R.Context())
	defer release()
	_ = ar.Logs.Follow(held, level, q.Query.Has("logjson"), s, s.Flush)
	return nil
}

// agentMetricsStream sends a summary now and one for each interval that ends.
func (ar *Rows) agentMetricsStream(q *rows.Request) error {
	if err := q.Allow(acl.Agent, q.Identity.NodeName, acl.Read); err != nil {
		return err
	}
	source, ok := ar.MetricsHandler.(MetricsStreamer)
	if !ok {
		return answer.Fail(http.StatusInternalServerError, "This process keeps no metrics to follow")
	}
	s := httpx.NewStream(q.W, q.R, httpx.JSONType)
	defer s.Close()
	held, release := q.Standing().Hold(q.R.Context())
	defer release()
	_ = source.Stream(held, s, s.Flush)
	return nil
}

func (ar *Rows) agentToken(q *rows.Request) error {
	if ar.SetToken == nil {
		return answer.Fail(http.StatusUnauthorized, "ACL support disabled")
	}
	if err := q.Allow(acl.Agent, q.Identity.NodeName, acl.Write); err != nil {
		return err
	}
	var in struct{ Token string }
	if err := q.Decode(&in); err != nil {
		return err
	}
	if err := ar.SetToken(q.Rest, in.Token); err != nil {
		return err
	}
	return q.ReplyEmpty()
}

// agentHost answers with what the operating system says about this host. What it does not
// say is named in Errors and left out.
func agentHost(q *rows.Request) error {
	if err := q.Allow(acl.Operator, "", acl.Read); err != nil {
		return err
	}
	var failures []string
	note := func(err error) {
		if err != nil {
			failures = append(failures, err.Error())
		}
	}
	memory, err := hostinfo.Memory()
	note(err)
	disk, err := hostinfo.Disk("/")
	note(err)
	cpus, err := hostinfo.CPUs()
	note(err)
	host, err := hostinfo.Host(q.Clock.Now())
	note(err)
	return q.ReplyValue(map[string]any{
		"Memory": memory, "CPU": cpus, "Disk": disk, "Host": host,
		"CollectionTime": q.Clock.Now().UnixNano(), "Errors": failures,
	})
}

// agentReady answers 200 while this process is ready for work, else 503 with what it waits for: for load balancers
// and those that restart one process after the other.
func (ar *Rows) agentReady(q *rows.Request) error {
	waiting := []string{}
	if lacks := ar.Lacks; lacks != nil {
		waiting = append(waiting, lacks()...)
	}
	status := http.StatusOK
	if len(waiting) > 0 {
		status = http.StatusServiceUnavailable
		q.W.Header().Set("Retry-After", "1")
	}
	body, err := json.Marshal(map[string]any{"Ready": len(waiting) == 0, "Waiting": waiting})
	if err != nil {
		return err
	}
	return q.ReplyStatus(status, body)
}

func (ar *Rows) agentForceLeave(q *rows.Request) error {
	if err := q.Allow(acl.Operator, "", acl.Write); err != nil {
		return err
	}
	if q.Rest == "" {
		return answer.Invalidf("Missing node name")
	}
	pool, err := ar.somePool(q)
	if err != nil {
		return err
	}
	prune, force := q.Query.Has("prune"), q.Query.Has("force") && !q.Query.Has("wan")
	if force {
		if !prune {
			return answer.Invalidf("force goes with prune: /v1/agent/force-leave/%s?prune&force", q.Rest)
		}
		if err := q.Allow(acl.Node, q.Rest, acl.Write); err != nil {
			return err
		}
		if _, err := catalogrows.Hold(q); err != nil {
			return err
		}
	}
	server := goneServer(pool, q.Rest)
	err = pool.ForceLeave(q.Rest, prune)
	if force && (err == nil || errkind.Is(err, errkind.NotFound)) {
		return forceLeaveNode(q) // also of one that gossip does not know any more
	}
	if errkind.Is(err, errkind.NotFound) {
		return answer.Fail(http.StatusInternalServerError, "agent: No node found with name '"+q.Rest+"'")
	}
	if err != nil {
		return answer.Fail(http.StatusInternalServerError, errkind.Text(err))
	}
	if server != "" && !q.Query.Has("wan") {
		return ar.forceLeavePeer(q, server)
	}
	return q.ReplyEmpty()
}

// goneServer is the id of a server that does not answer gossip, "" of everybody else.
func goneServer(pool Members, name string) string {
	for _, m := range pool.Members() {
		if m.Name == name && m.Status >= memberLeft && m.Tags["role"] == "consul" {
			return m.Tags["id"]
		}
	}
	return ""
}

// memberLeft is the status of members that left; failed ones have the next.
const memberLeft = 3

// forceLeaveNode does, on the leader, what DELETE /v1/catalog/node/x?force does.
func forceLeaveNode(q *rows.Request) error {
	if q.Registry != nil && q.Leads(q.R.Context()) {
		return catalogrows.RemoveByForce(q, q.Rest)
	}
	query := "force"
	if hold, _ := q.Query.Get("hold"); hold != "" {
		query += "&hold=" + url.QueryEscape(hold)
	}
	return forwardDelete(q, &url.URL{Path: catalogrows.NodePattern + q.Rest, RawQuery: query})
}

// forceLeavePeer takes a server that is gone out of the Raft groups: gossip alone takes nobody's vote.
func (ar *Rows) forceLeavePeer(q *rows.Request, id string) error {
	if q.Registry != nil && q.Leads(q.R.Context()) {
		op, err := ar.operator.Operator(q, acl.Write)
		if err != nil {
			return err
		}
		return operatorrows.RemovePeer(q, op, operatorrows.PeerRemoval{ID: id, Token: q.Token()}, true)
	}
	query := url.Values{"id": {id}, "if-present": {""}}
	return forwardDelete(q, &url.URL{Path: "/v1/operator/raft/peer", RawQuery: query.Encode()})
}

// forwardDelete has the leader do what belongs to the request and is not done here.
func forwardDelete(q *rows.Request, at *url.URL) error {
	token := q.Token()
	q.R = q.R.Clone(q.R.Context())
	q.R.Method = http.MethodDelete
	q.R.URL = at
	q.R.RequestURI = q.R.URL.RequestURI()
	if token != "" {
		q.R.Header.Set("X-Consul-Token", token)
	}
	return q.PassOn(q.Registry != nil)
}
