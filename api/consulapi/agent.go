package consulapi

import (
	"log/slog"
	"net/http"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vivaldi"
)

var errNoGossip = answer.Fail(http.StatusInternalServerError, "This process is in no gossip pool")

func agentSelf(q *request) error {
	if err := q.allow(acl.Agent, q.api.cfg.Identity.NodeName, acl.Read); err != nil {
		return err
	}
	id := &q.api.cfg.Identity
	meta := id.NodeMeta
	if meta == nil {
		meta = map[string]string{}
	}
	debug, stats := map[string]any{}, map[string]map[string]string{}
	if info := q.api.cfg.Info; info != nil {
		debug, stats = info.DebugConfig(), info.Stats()
	}
	out := map[string]any{
		"Config": map[string]any{
			"Datacenter": id.Datacenter, "PrimaryDatacenter": id.PrimaryDatacenter, "NodeName": id.NodeName,
			"NodeID": id.NodeID, "Revision": id.Revision, "Server": id.Server, "Version": id.Version, "BuildDate": id.BuildDate,
		},
		"DebugConfig": debug, "Stats": stats, "Meta": meta, "Coord": q.place(), "Member": q.self(),
	}
	if id.GRPCPort > 0 || id.GRPCTLSPort > 0 { // absent, never null, where nothing listens
		out["xDS"] = map[string]any{
			"SupportedProxies": map[string][]string{"envoy": supportedEnvoys},
			"Port":             id.GRPCPort,
			"Ports":            map[string]int{"Plaintext": id.GRPCPort, "TLS": id.GRPCTLSPort},
		}
	}
	return q.replyValue(out)
}

// supportedEnvoys are the Envoy versions that proxies may run, newest first, the newest patch of each.
var supportedEnvoys = []string{"1.40.0", "1.39.3", "1.38.3", "1.37.0", "1.36.4"}

// place is where this agent lies.
func (q *request) place() wireCoord {
	if q.api.cfg.Coordinates == nil {
		return coordOf(vivaldi.New())
	}
	return coordOf(q.api.cfg.Coordinates.Own())
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
func (q *request) self() wireMember {
	if q.api.cfg.Members != nil {
		for _, m := range q.api.cfg.Members.Members() {
			if m.Name == q.api.cfg.Identity.NodeName {
				return member(m)
			}
		}
	}
	return member(Member{Name: q.api.cfg.Identity.NodeName, Status: 1})
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
func (q *request) pool() Members {
	if q.q.Has("wan") {
		return q.api.cfg.WAN
	}
	return q.api.cfg.Members
}

// somePool is pool, or why there is none.
func (q *request) somePool() (Members, error) {
	if p := q.pool(); p != nil {
		return p, nil
	}
	if !q.q.Has("wan") {
		return nil, errNoGossip
	}
	if !q.api.cfg.Identity.Server {
		return nil, answer.Fail(http.StatusInternalServerError, "Must be a server to join WAN cluster")
	}
	return nil, answer.Fail(http.StatusInternalServerError, "This server takes no part in the gossip between datacenters: set ports.serf_wan")
}

func agentMembers(q *request) error {
	f, err := q.filter(memberSchema)
	if err != nil {
		return err
	}
	out := []wireMember{}
	if pool := q.pool(); pool != nil {
		for _, m := range pool.Members() {
			node := m.Name
			if q.q.Has("wan") { // where names carry their datacenter
				node = strings.TrimSuffix(m.Name, "."+m.Tags["dc"])
			}
			if q.sees(acl.Node, node) && f.Match(&m) {
				out = append(out, member(m))
			}
		}
	}
	return q.replyValue(out)
}

func agentJoin(q *request) error {
	if err := q.allow(acl.Agent, q.api.cfg.Identity.NodeName, acl.Write); err != nil {
		return err
	}
	if q.rest == "" {
		return answer.Invalidf("Missing address to join")
	}
	pool, err := q.somePool()
	if err != nil {
		return err
	}
	if _, err := pool.Join(q.r.Context(), []string{q.rest}); err != nil {
		return answer.Fail(http.StatusInternalServerError, errkind.Text(err))
	}
	return q.replyEmpty()
}

func agentForceLeave(q *request) error {
	if err := q.allow(acl.Operator, "", acl.Write); err != nil {
		return err
	}
	if q.rest == "" {
		return answer.Invalidf("Missing node name")
	}
	pool, err := q.somePool()
	if err != nil {
		return err
	}
	prune, force := q.q.Has("prune"), q.q.Has("force") && !q.q.Has("wan")
	if force {
		if !prune {
			return answer.Invalidf("force goes with prune: /v1/agent/force-leave/%s?prune&force", q.rest)
		}
		if err := q.allow(acl.Node, q.rest, acl.Write); err != nil {
			return err
		}
		if _, err := q.hold(); err != nil {
			return err
		}
	}
	server := goneServer(pool, q.rest)
	err = pool.ForceLeave(q.rest, prune)
	if force && (err == nil || errkind.Is(err, errkind.NotFound)) {
		return q.forceLeaveNode() // also of one that gossip does not know any more
	}
	if errkind.Is(err, errkind.NotFound) {
		return answer.Fail(http.StatusInternalServerError, "agent: No node found with name '"+q.rest+"'")
	}
	if err != nil {
		return answer.Fail(http.StatusInternalServerError, errkind.Text(err))
	}
	if server != "" && !q.q.Has("wan") {
		return q.forceLeavePeer(server)
	}
	return q.replyEmpty()
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

// info asks for write on the agent and for what answers about the process.
func (q *request) info() (AgentInfo, error) {
	if err := q.allow(acl.Agent, q.api.cfg.Identity.NodeName, acl.Write); err != nil {
		return nil, err
	}
	if q.api.cfg.Info == nil {
		return nil, answer.Fail(http.StatusInternalServerError, "This process cannot be controlled by its API")
	}
	return q.api.cfg.Info, nil
}

func agentLeave(q *request) error {
	info, err := q.info()
	if err != nil {
		return err
	}
	if err := info.Leave(q.r.Context()); err != nil {
		return answer.Fail(http.StatusInternalServerError, errkind.Text(err))
	}
	return q.replyEmpty()
}

func agentReload(q *request) error {
	info, err := q.info()
	if err != nil {
		return err
	}
	if err := info.Reload(q.r.Context()); err != nil {
		return answer.Fail(http.StatusInternalServerError, errkind.Text(err))
	}
	return q.replyEmpty()
}

func agentVersion(q *request) error {
	if err := q.allow(acl.Agent, q.api.cfg.Identity.NodeName, acl.Read); err != nil {
		return err
	}
	id := &q.api.cfg.Identity
	return q.replyValue(struct{ SHA, BuildDate, HumanVersion, FIPS string }{id.Revision, id.BuildDate, id.Version, ""})
}

func agentMetrics(q *request) error {
	if err := q.allow(acl.Agent, q.api.cfg.Identity.NodeName, acl.Read); err != nil {
		return err
	}
	if q.api.cfg.MetricsHandler == nil {
		return answer.Fail(http.StatusInternalServerError, "This process keeps no metrics")
	}
	q.api.cfg.MetricsHandler.ServeHTTP(q.w, q.r)
	return nil
}

var logLevels = map[string]slog.Level{
	"": slog.LevelInfo, "trace": slog.LevelDebug - 4, "debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "warning": slog.LevelWarn, "err": slog.LevelError, "error": slog.LevelError,
}

func agentMonitor(q *request) error {
	if err := q.allow(acl.Agent, q.api.cfg.Identity.NodeName, acl.Read); err != nil {
		return err
	}
	level, ok := logLevels[strings.ToLower(q.q.Value("loglevel"))]
	if !ok {
		return answer.Invalidf("Unknown log level: %s", q.q.Value("loglevel"))
	}
	if q.api.cfg.Logs == nil {
		return answer.Fail(http.StatusInternalServerError, "This process keeps no log to follow")
	}
	s := httpx.NewStream(q.w, q.r, rawType)
	defer s.Close()
	held, release := q.standing().Hold(q.r.Context())
	defer release()
	_ = q.api.cfg.Logs.Follow(held, level, q.q.Has("logjson"), s, s.Flush)
	return nil
}

// agentMetricsStream sends a summary now and one for each interval that ends.
func agentMetricsStream(q *request) error {
	if err := q.allow(acl.Agent, q.api.cfg.Identity.NodeName, acl.Read); err != nil {
		return err
	}
	source, ok := q.api.cfg.MetricsHandler.(MetricsStreamer)
	if !ok {
		return answer.Fail(http.StatusInternalServerError, "This process keeps no metrics to follow")
	}
	s := httpx.NewStream(q.w, q.r, httpx.JSONType)
	defer s.Close()
	held, release := q.standing().Hold(q.r.Context())
	defer release()
	_ = source.Stream(held, s, s.Flush)
	return nil
}

func agentToken(q *request) error {
	if !q.api.cfg.ACLEnabled || q.api.cfg.SetToken == nil {
		return answer.Fail(http.StatusUnauthorized, "ACL support disabled")
	}
	if err := q.allow(acl.Agent, q.api.cfg.Identity.NodeName, acl.Write); err != nil {
		return err
	}
	var in struct{ Token string }
	if err := q.decode(&in); err != nil {
		return err
	}
	if err := q.api.cfg.SetToken(q.rest, in.Token); err != nil {
		return err
	}
	return q.replyEmpty()
}
