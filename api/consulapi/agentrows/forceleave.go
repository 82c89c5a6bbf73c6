package agentrows

import (
	"net/http"
	"net/url"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/catalogrows"
	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
)

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
