package agentrows

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/kit/errkind"
)

var errNoLocal = answer.Fail(http.StatusInternalServerError, "This process keeps no local services or checks")

// onLocal makes a row's handler of one that needs this host's registrations.
func (ar *Rows) onLocal(handle func(*rows.Request, Local) error) func(*rows.Request) error {
	return func(q *rows.Request) error {
		if ar.Local == nil {
			return errNoLocal
		}
		return handle(q, ar.Local)
	}
}

func agentServices(q *rows.Request, l Local) error {
	f, err := q.Filter(filter.Services)
	if err != nil {
		return err
	}
	services := l.View().Services
	b := append(q.Buffer(), '{')
	for _, id := range slices.Sorted(maps.Keys(services)) {
		s := services[id].Service
		if !q.Sees(acl.Service, s.Name) || !f.Match(s) {
			continue
		}
		b = answer.AppendString(b, id)
		b = append(b, ':')
		b = answer.AppendAgentService(b, s, q.Identity.Datacenter, "")
		b = append(b, ',')
	}
	return q.ReplyScratch(answer.CloseObject(b))
}

func agentService(q *rows.Request, l Local) error {
	hash := ""
	if q.Query != "" {
		hash = q.Query.Value("hash")
	}
	// A hash blocks as an index does; any index makes the parser read the wait.
	waitQuery := httpx.Query("index=1&wait=" + q.Query.Value("wait"))
	block, err := httpx.ParseBlocking(waitQuery, q.Wait)
	if err != nil {
		return err
	}
	if hash != "" {
		q.Parked.Add(1)
		defer q.Parked.Add(-1)
	}
	if s := l.View().Services[q.Rest]; s != nil { // nobody is parked who may not see the answer
		if err := q.Allow(acl.Service, s.Service.Name, acl.Read); err != nil {
			return err
		}
	}
	s, hash, err := awaitCentral(q, l, hash, httpx.Jitter(block.Wait))
	if err != nil {
		return err
	}
	q.W.Header()["X-Consul-Contenthash"] = []string{hash}
	return q.Reply(answer.AppendAgentService(q.Buffer(), s, q.Identity.Datacenter, hash))
}

// seesOwnCheck is seesCheck on the agent itself, where a service's check needs no right on the node.
func seesOwnCheck(q *rows.Request, c *catalog.Check) bool {
	if c.ServiceName != "" {
		return q.Sees(acl.Service, c.ServiceName)
	}
	return q.Sees(acl.Node, c.Node)
}

func agentChecks(q *rows.Request, l Local) error {
	f, err := q.Filter(filter.Checks)
	if err != nil {
		return err
	}
	checks := l.View().Checks
	b := append(q.Buffer(), '{')
	for _, id := range slices.Sorted(maps.Keys(checks)) {
		c := checks[id].Check
		if !seesOwnCheck(q, c) || !f.Match(c) {
			continue
		}
		b = answer.AppendString(b, id)
		b = append(b, ':')
		b = answer.AppendCheck(b, c)
		b = append(b, ',')
	}
	return q.ReplyScratch(answer.CloseObject(b))
}

// healthCodes are the statuses of the agent's health rows: data, not failures.
var healthCodes = map[string]int{
	"passing": http.StatusOK, "warning": http.StatusTooManyRequests,
	"critical": http.StatusServiceUnavailable, local.StatusMaintenance: http.StatusServiceUnavailable,
}

// wantsText reports whether the client asked for the bare status.
func wantsText(q *rows.Request) bool {
	if q.Query.Value("format") == "text" {
		return true
	}
	accept := q.R.Header["Accept"]
	return len(accept) > 0 && strings.HasPrefix(accept[0], "text/plain")
}

func replyHealth(q *rows.Request, code int, status string, body []byte) error {
	q.W.Header()["X-Consul-Reason"] = []string{status}
	if wantsText(q) {
		httpx.Write(q.W, q.R, code, rows.RawType, []byte(status))
		return nil
	}
	return q.ReplyStatus(code, body)
}

func appendServiceHealth(q *rows.Request, b []byte, status string, s *local.Service, checks []*local.Check) []byte {
	b = answer.StringField(b, `{"AggregatedStatus":`, status)
	b = append(b, `,"Service":`...)
	b = answer.AppendAgentService(b, s.Service, q.Identity.Datacenter, "")
	list := answer.List{Bytes: append(b, `,"Checks":`...)}
	for _, c := range checks {
		list.Bytes = answer.AppendCheck(list.Next(), c.Check)
	}
	return append(list.End(), '}')
}

func agentHealthByID(q *rows.Request, l Local) error {
	if q.Rest == "" {
		return answer.Invalidf("Missing serviceID")
	}
	status, s, checks := l.ServiceHealth(q.Rest)
	if s == nil {
		q.W.Header()["X-Consul-Reason"] = []string{"critical"}
		return errkind.New(errkind.NotFound, "ServiceId "+q.Rest+" not found")
	}
	if err := q.Allow(acl.Service, s.Service.Name, acl.Read); err != nil {
		return err
	}
	return replyHealth(q, healthCodes[status], status, appendServiceHealth(q, q.Buffer(), status, s, checks))
}

func agentHealthByName(q *rows.Request, l Local) error {
	if q.Rest == "" {
		return answer.Invalidf("Missing service Name")
	}
	if err := q.Allow(acl.Service, q.Rest, acl.Read); err != nil {
		return err
	}
	list := answer.List{Bytes: q.Buffer()}
	worst, word := 0, "critical"
	for _, id := range l.View().ServicesNamed(q.Rest) {
		status, s, checks := l.ServiceHealth(id)
		if s == nil {
			continue
		}
		list.Bytes = appendServiceHealth(q, list.Next(), status, s, checks)
		if code := healthCodes[status]; code > worst {
			worst, word = code, status
		}
	}
	if worst == 0 {
		worst = http.StatusNotFound
	}
	return replyHealth(q, worst, word, list.End())
}

// registration decodes a register body with the decoder that definition files use too.
func registration(q *rows.Request) ([]byte, error) {
	b, err := q.Body(q.Limits.BodyBytes)
	if err != nil {
		return nil, err
	}
	if err := bodies.Sound(b); err != nil {
		return nil, answer.Invalidf("Request decode failed: %v", err)
	}
	return b, nil
}

func registerOptions(q *rows.Request) local.RegisterOptions {
	o := local.RegisterOptions{Persist: true, Token: rows.OwnToken(q.R, q.Query)}
	if !q.Open {
		o.May = func(service string) error { return mayRegister(q, service) }
	}
	if q.Query != "" {
		o.ReplaceExistingChecks = q.Query.Has("replace-existing-checks")
	}
	return o
}

func agentServiceRegister(q *rows.Request, l Local) error {
	b, err := registration(q)
	if err != nil {
		return err
	}
	d, err := definition.DecodeService(b)
	if err != nil {
		return err
	}
	o := registerOptions(q)
	q.ReleaseBuffer() // the call waits for a sync
	if err := l.RegisterService(q.R.Context(), d, o); err != nil {
		return err
	}
	return q.ReplyEmpty()
}

// mayRegister asks for write on a service that a registration brings or displaces, or with "" on the node. What those
// are catalog/local says: ids and names are derived.
func mayRegister(q *rows.Request, service string) error {
	if service == "" {
		return q.Allow(acl.Node, q.Identity.NodeName, acl.Write)
	}
	return q.Allow(acl.Service, service, acl.Write)
}

// serviceRight asks for write on the name of a registered service.
func serviceRight(q *rows.Request, l Local, id string) error {
	if q.Open {
		return nil
	}
	if s := l.View().Services[id]; s != nil {
		return q.Allow(acl.Service, s.Service.Name, acl.Write)
	}
	return nil
}

// checkRight asks for write on what a registered check belongs to.
func checkRight(q *rows.Request, l Local, id string) error {
	if q.Open {
		return nil
	}
	c := l.View().Checks[id]
	switch {
	case c == nil:
		return nil
	case c.Check.ServiceName != "":
		return q.Allow(acl.Service, c.Check.ServiceName, acl.Write)
	}
	return q.Allow(acl.Node, q.Identity.NodeName, acl.Write)
}

func agentServiceDeregister(q *rows.Request, l Local) error {
	if err := serviceRight(q, l, q.Rest); err != nil {
		return err
	}
	if err := l.DeregisterService(q.R.Context(), q.Rest); err != nil {
		return err
	}
	return q.ReplyEmpty()
}

// enable reads the parameter that maintenance needs.
func enable(q *rows.Request) (bool, error) {
	v, ok := q.Query.Get("enable")
	if !ok || v == "" {
		return false, answer.Invalidf("Missing value for enable")
	}
	on, err := strconv.ParseBool(v)
	if err != nil {
		return false, answer.Invalidf("Invalid value for enable: %q", v)
	}
	return on, nil
}

func agentServiceMaintenance(q *rows.Request, l Local) error {
	if q.Rest == "" {
		return answer.Invalidf("Missing service ID")
	}
	on, err := enable(q)
	if err != nil {
		return err
	}
	if err := serviceRight(q, l, q.Rest); err != nil {
		return err
	}
	if err := l.SetServiceMaintenance(q.R.Context(), q.Rest, on, q.Query.Value("reason"), true); err != nil {
		return err
	}
	return q.ReplyEmpty()
}

func agentMaintenance(q *rows.Request, l Local) error {
	on, err := enable(q)
	if err != nil {
		return err
	}
	if err := q.Allow(acl.Node, q.Identity.NodeName, acl.Write); err != nil {
		return err
	}
	if err := l.SetNodeMaintenance(q.R.Context(), on, q.Query.Value("reason"), true); err != nil {
		return err
	}
	return q.ReplyEmpty()
}

func agentCheckRegister(q *rows.Request, l Local) error {
	b, err := registration(q)
	if err != nil {
		return err
	}
	d, err := definition.DecodeCheck(b)
	if err != nil {
		return err
	}
	o := registerOptions(q)
	q.ReleaseBuffer()
	if err := l.RegisterCheck(q.R.Context(), d, o); err != nil {
		return err
	}
	return q.ReplyEmpty()
}

func agentCheckDeregister(q *rows.Request, l Local) error {
	if err := checkRight(q, l, q.Rest); err != nil {
		return err
	}
	if err := l.DeregisterCheck(q.R.Context(), q.Rest); err != nil {
		return err
	}
	return q.ReplyEmpty()
}

// agentCheckMark is the row of one status: pass, warn, fail.
func agentCheckMark(status catalog.Health) func(*rows.Request, Local) error {
	return func(q *rows.Request, l Local) error { return heartbeat(q, l, status.String(), q.Query.Value("note")) }
}

func agentCheckUpdate(q *rows.Request, l Local) error {
	var in struct{ Status, Output string }
	if err := q.Decode(&in); err != nil {
		return err
	}
	if _, ok := catalog.ParseHealth(in.Status); !ok {
		return answer.Invalidf("Invalid check status: '%s'", in.Status)
	}
	return heartbeat(q, l, in.Status, in.Output)
}

// heartbeat gives a TTL check its status.
func heartbeat(q *rows.Request, l Local, status, output string) error {
	if q.Rest == "" {
		return answer.Invalidf("Missing check ID")
	}
	if err := checkRight(q, l, q.Rest); err != nil {
		return err
	}
	if err := l.UpdateTTL(q.Rest, status, output); err != nil {
		return err
	}
	return q.ReplyEmpty()
}

// agentServicesRegister registers a list of what agentServiceRegister takes.
func agentServicesRegister(q *rows.Request, l Local) error {
	raw, err := q.WireList()
	if err != nil {
		return err
	}
	list := make([]*definition.Service, len(raw))
	for i := range raw {
		if list[i], err = definition.DecodeService(raw[i]); err != nil {
			return rows.At(i, err)
		}
	}
	o := registerOptions(q)
	q.ReleaseBuffer() // the call waits for a sync
	if err := l.RegisterServices(q.R.Context(), list, o); err != nil {
		return err
	}
	return q.ReplyEmpty()
}
