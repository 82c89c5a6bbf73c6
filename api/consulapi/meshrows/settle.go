package meshrows

import (
	"encoding/json"
	"net/url"
	"strconv"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
)

const (
	SettlePattern  = "/v1/internal/mesh/settle/"
	settledPattern = "/v1/internal/mesh/settled"
)

// maxPending bounds the proxies that are named.
const maxPending = 20

// settledState is how the proxies of one host stand to a service's instances.
type settledState struct {
	Known   bool // the host has heard of everything up to the index
	Proxies int
	Pending []string
}

// meshSettled answers for this host alone.
func (mr *Rows) meshSettled(q *rows.Request) error {
	m := mr.Proxies
	if m == nil {
		return errNoMesh
	}
	service := q.Query.Value("service")
	if !mayReadProxy(q, service) {
		return q.Allow(acl.Service, service, acl.Read)
	}
	index, err := strconv.ParseUint(q.Query.Value("index"), 10, 64)
	if err != nil {
		return answer.Invalidf("Invalid value for index: %q", q.Query.Value("index"))
	}
	var out settledState
	out.Known, out.Proxies, out.Pending = m.Settled(service, index)
	if out.Pending = out.Pending[:min(len(out.Pending), maxPending)]; out.Pending == nil {
		out.Pending = []string{}
	}
	return q.ReplyValue(out)
}

// meshSettle gathers from all hosts with proxies whether they know that an instance drains, and their proxies have
// acknowledged it.
func (mr *Rows) meshSettle(q *rows.Request) error {
	service := q.Rest
	if !mayReadProxy(q, service) {
		return q.Allow(acl.Service, service, acl.Read)
	}
	st, err := mr.meshServers(q)
	if err != nil {
		return err
	}
	out := struct {
		Settled         bool
		Index           uint64
		Hosts, Proxies  int
		Pending, Silent []string
	}{Settled: true, Index: st.Index(), Pending: []string{}, Silent: []string{}}
	if st.Check(q.Query.Value("node"), catalog.ServiceDrainPrefix+q.Query.Value("id")) == nil { // this server has not heard of the mark
		out.Settled = false
		return q.ReplyValue(out)
	}
	hosts, _ := mr.proxyHosts(q, st, nil)
	out.Hosts = len(hosts)
	path := settledPattern + "?" + url.Values{"service": {service}, "index": {strconv.FormatUint(out.Index, 10)}}.Encode()
	for _, s := range mr.gather(q, hosts, path, func(body []byte) error {
		var one settledState
		if err := json.Unmarshal(body, &one); err != nil {
			return err
		}
		out.Proxies += one.Proxies
		out.Settled = out.Settled && one.Known && len(one.Pending) == 0
		out.Pending = append(out.Pending, one.Pending...)
		return nil
	}) {
		out.Settled = false
		out.Silent = append(out.Silent, s.Node)
	}
	out.Pending = out.Pending[:min(len(out.Pending), maxPending)]
	return q.ReplyValue(out)
}
