package consulapi

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/kit/errkind"
)

var errNoLocal = answer.Fail(http.StatusInternalServerError, "This process keeps no local services or checks")

// onLocal makes a row's handler of one that needs this host's registrations.
func onLocal(handle func(*request, Local) error) func(*request) error {
	return func(q *request) error {
		if q.api.cfg.Local == nil {
			return errNoLocal
		}
		return handle(q, q.api.cfg.Local)
	}
}

func agentServices(q *request, l Local) error {
	f, err := q.filter(filter.Services)
	if err != nil {
		return err
	}
	services := l.View().Services
	b := append(q.buffer(), '{')
	for _, id := range slices.Sorted(maps.Keys(services)) {
		s := services[id].Service
		if !q.sees(acl.Service, s.Name) || !f.Match(s) {
			continue
		}
		b = answer.AppendString(b, id)
		b = append(b, ':')
		b = answer.AppendAgentService(b, s, q.api.cfg.Identity.Datacenter, "")
		b = append(b, ',')
	}
	return q.replyScratch(answer.CloseObject(b))
}

func agentService(q *request, l Local) error {
	hash := ""
	if q.q != "" {
		hash = q.q.Value("hash")
	}
	// A hash blocks as an index does; any index makes the parser read the wait.
	waitQuery := httpx.Query("index=1&wait=" + q.q.Value("wait"))
	block, err := httpx.ParseBlocking(waitQuery, q.api.cfg.Wait)
	if err != nil {
		return err
	}
	if hash != "" {
		q.api.blocking.Add(1)
		defer q.api.blocking.Add(-1)
	}
	if s := l.View().Services[q.rest]; s != nil { // nobody is parked who may not see the answer
		if err := q.allow(acl.Service, s.Service.Name, acl.Read); err != nil {
			return err
		}
	}
	s, hash, err := q.awaitCentral(l, hash, httpx.Jitter(block.Wait))
	if err != nil {
		return err
	}
	q.w.Header()["X-Consul-Contenthash"] = []string{hash}
	return q.reply(answer.AppendAgentService(q.buffer(), s, q.api.cfg.Identity.Datacenter, hash))
}

// seesOwnCheck is seesCheck on the agent itself, where a service's check needs no right on the node.
func (q *request) seesOwnCheck(c *catalog.Check) bool {
	if c.ServiceName != "" {
		return q.sees(acl.Service, c.ServiceName)
	}
	return q.sees(acl.Node, c.Node)
}

func agentChecks(q *request, l Local) error {
	f, err := q.filter(filter.Checks)
	if err != nil {
		return err
	}
	checks := l.View().Checks
	b := append(q.buffer(), '{')
	for _, id := range slices.Sorted(maps.Keys(checks)) {
		c := checks[id].Check
		if !q.seesOwnCheck(c) || !f.Match(c) {
			continue
		}
		b = answer.AppendString(b, id)
		b = append(b, ':')
		b = answer.AppendCheck(b, c)
		b = append(b, ',')
	}
	return q.replyScratch(answer.CloseObject(b))
}

// healthCodes are the statuses of the agent's health rows: data, not failures.
var healthCodes = map[string]int{
	"passing": http.StatusOK, "warning": http.StatusTooManyRequests,
	"critical": http.StatusServiceUnavailable, local.StatusMaintenance: http.StatusServiceUnavailable,
}

// wantsText reports whether the client asked for the bare status.
func (q *request) wantsText() bool {
	if q.q.Value("format") == "text" {
		return true
	}
	accept := q.r.Header["Accept"]
	return len(accept) > 0 && strings.HasPrefix(accept[0], "text/plain")
}

func (q *request) replyHealth(code int, status string, body []byte) error {
	q.w.Header()["X-Consul-Reason"] = []string{status}
	if q.wantsText() {
		httpx.Write(q.w, q.r, code, rawType, []byte(status))
		return nil
	}
	return q.replyStatus(code, body)
}

func (q *request) appendServiceHealth(b []byte, status string, s *local.Service, checks []*local.Check) []byte {
	b = answer.StringField(b, `{"AggregatedStatus":`, status)
	b = append(b, `,"Service":`...)
	b = answer.AppendAgentService(b, s.Service, q.api.cfg.Identity.Datacenter, "")
	list := answer.List{Bytes: append(b, `,"Checks":`...)}
	for _, c := range checks {
		list.Bytes = answer.AppendCheck(list.Next(), c.Check)
	}
	return append(list.End(), '}')
}

func agentHealthByID(q *request, l Local) error {
	if q.rest == "" {
		return answer.Invalidf("Missing serviceID")
	}
	status, s, checks := l.ServiceHealth(q.rest)
	if s == nil {
		q.w.Header()["X-Consul-Reason"] = []string{"critical"}
		return errkind.New(errkind.NotFound, "ServiceId "+q.rest+" not found")
	}
	if err := q.allow(acl.Service, s.Service.Name, acl.Read); err != nil {
		return err
	}
	return q.replyHealth(healthCodes[status], status, q.appendServiceHealth(q.buffer(), status, s, checks))
}

func agentHealthByName(q *request, l Local) error {
	if q.rest == "" {
		return answer.Invalidf("Missing service Name")
	}
	if err := q.allow(acl.Service, q.rest, acl.Read); err != nil {
		return err
	}
	list := answer.List{Bytes: q.buffer()}
	worst, word := 0, "critical"
	for _, id := range l.ServicesNamed(q.rest) {
		status, s, checks := l.ServiceHealth(id)
		if s == nil {
			continue
		}
		list.Bytes = q.appendServiceHealth(list.Next(), status, s, checks)
		if code := healthCodes[status]; code > worst {
			worst, word = code, status
		}
	}
	if worst == 0 {
		worst = http.StatusNotFound
	}
	return q.replyHealth(worst, word, list.End())
}

// registration decodes a register body with the decoder that definition files use too.
func (q *request) registration() ([]byte, error) {
	b, err := q.body(q.api.cfg.Limits.BodyBytes)
	if err != nil {
		return nil, err
	}
	if err := bodies.Sound(b); err != nil {
		return nil, answer.Invalidf("Request decode failed: %v", err)
	}
	return b, nil
}

func (q *request) registerOptions() local.RegisterOptions {
	o := local.RegisterOptions{Persist: true, Token: ownToken(q.r, q.q)}
	if !q.api.open {
		o.May = q.mayRegister
	}
	if q.q != "" {
		o.ReplaceExistingChecks = q.q.Has("replace-existing-checks")
	}
	return o
}

func agentServiceRegister(q *request, l Local) error {
	b, err := q.registration()
	if err != nil {
		return err
	}
	d, err := local.DecodeService(b)
	if err != nil {
		return err
	}
	o := q.registerOptions()
	q.releaseBuffer() // the call waits for a sync
	if err := l.RegisterService(q.r.Context(), d, o); err != nil {
		return err
	}
	return q.replyEmpty()
}

// mayRegister asks for write on a service that a registration brings or displaces, or with "" on the node. What those
// are catalog/local says: ids and names are derived.
func (q *request) mayRegister(service string) error {
	if service == "" {
		return q.allow(acl.Node, q.api.cfg.Identity.NodeName, acl.Write)
	}
	return q.allow(acl.Service, service, acl.Write)
}

// serviceRight asks for write on the name of a registered service.
func (q *request) serviceRight(l Local, id string) error {
	if q.api.open {
		return nil
	}
	if s := l.View().Services[id]; s != nil {
		return q.allow(acl.Service, s.Service.Name, acl.Write)
	}
	return nil
}

// checkRight asks for write on what a registered check belongs to.
func (q *request) checkRight(l Local, id string) error {
	if q.api.open {
		return nil
	}
	c := l.View().Checks[id]
	switch {
	case c == nil:
		return nil
	case c.Check.ServiceName != "":
		return q.allow(acl.Service, c.Check.ServiceName, acl.Write)
	}
	return q.allow(acl.Node, q.api.cfg.Identity.NodeName, acl.Write)
}

func agentServiceDeregister(q *request, l Local) error {
	if err := q.serviceRight(l, q.rest); err != nil {
		return err
	}
	if err := l.DeregisterService(q.r.Context(), q.rest); err != nil {
		return err
	}
	return q.replyEmpty()
}

// enable reads the parameter that maintenance needs.
func (q *request) enable() (bool, error) {
	v, ok := q.q.Get("enable")
	if !ok || v == "" {
		return false, answer.Invalidf("Missing value for enable")
	}
	on, err := strconv.ParseBool(v)
	if err != nil {
		return false, answer.Invalidf("Invalid value for enable: %q", v)
	}
	return on, nil
}

func agentServiceMaintenance(q *request, l Local) error {
	if q.rest == "" {
		return answer.Invalidf("Missing service ID")
	}
	on, err := q.enable()
	if err != nil {
		return err
	}
	if err := q.serviceRight(l, q.rest); err != nil {
		return err
	}
	if err := l.SetServiceMaintenance(q.r.Context(), q.rest, on, q.q.Value("reason"), true); err != nil {
		return err
	}
	return q.replyEmpty()
}

func agentMaintenance(q *request, l Local) error {
	on, err := q.enable()
	if err != nil {
		return err
	}
	if err := q.allow(acl.Node, q.api.cfg.Identity.NodeName, acl.Write); err != nil {
		return err
	}
	if err := l.SetNodeMaintenance(q.r.Context(), on, q.q.Value("reason"), true); err != nil {
		return err
	}
	return q.replyEmpty()
}

func agentCheckRegister(q *request, l Local) error {
	b, err := q.registration()
	if err != nil {
		return err
	}
	d, err := local.DecodeCheck(b)
	if err != nil {
		return err
	}
	o := q.registerOptions()
	q.releaseBuffer()
	if err := l.RegisterCheck(q.r.Context(), d, o); err != nil {
		return err
	}
	return q.replyEmpty()
}

func agentCheckDeregister(q *request, l Local) error {
	if err := q.checkRight(l, q.rest); err != nil {
		return err
	}
	if err := l.DeregisterCheck(q.r.Context(), q.rest); err != nil {
		return err
	}
	return q.replyEmpty()
}

// agentCheckMark is the row of one status: pass, warn, fail.
func agentCheckMark(status catalog.Health) func(*request, Local) error {
	return func(q *request, l Local) error { return q.heartbeat(l, status.String(), q.q.Value("note")) }
}

func agentCheckUpdate(q *request, l Local) error {
	var in struct{ Status, Output string }
	if err := q.decode(&in); err != nil {
		return err
	}
	if _, ok := catalog.ParseHealth(in.Status); !ok {
		return answer.Invalidf("Invalid check status: '%s'", in.Status)
	}
	return q.heartbeat(l, in.Status, in.Output)
}

// heartbeat gives a TTL check its status.
func (q *request) heartbeat(l Local, status, output string) error {
	if q.rest == "" {
		return answer.Invalidf("Missing check ID")
	}
	if err := q.checkRight(l, q.rest); err != nil {
		return err
	}
	if err := l.UpdateTTL(q.rest, status, output); err != nil {
		return err
	}
	return q.replyEmpty()
}
