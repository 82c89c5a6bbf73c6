package consulapi

import (
	"net/http"
	"strings"
	"testing"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

const zombie = `{"Node":"Zombie","ID":"` + someID +
	`","Address":"10.0.0.9","Service":{"Service":"web"},"Check":{"Name":"c","ServiceID":"web","Status":"passing"}}`

// says wants a text somewhere in the answer.
func (r *rig) says(method, target, body string, status int, text string) {
	r.Helper()
	if a := r.do(method, target, body); a.status != status || !strings.Contains(a.body, text) {
		r.Errorf("%s %s: %d %s, want %d %s", method, target, a.status, a.body, status, text)
	}
}

func TestRemovalByForceBarsTheNode(t *testing.T) {
	r := newRig(t, nil)
	r.says("PUT", "/v1/catalog/register", zombie, 200, "true")
	r.says("PUT", "/v1/session/create", `{"Node":"zombie","NodeChecks":[]}`, 200, "ID")
	r.says("DELETE", "/v1/catalog/node/zombie", "", 400, "force is missing")
	r.says("DELETE", "/v1/catalog/node/zombie?force&hold=soon", "", 400, `Invalid hold "soon"`)
	r.says("DELETE", "/v1/catalog/node/zombie?force", "", 200, `{"Node":"Zombie","Removed":true,"Until":"`)
	if c := r.store.State().Counts(); c.Nodes != 0 || c.Instances != 0 || c.Checks != 0 || c.Sessions != 0 {
		t.Errorf("left over: %+v", c)
	}
	const text = "node Zombie was removed by force at "
	r.says("PUT", "/v1/catalog/register", zombie, 500, text)
	r.says("PUT", "/v1/catalog/register", `{"Node":"ZOMBIE","Address":"10.0.0.9"}`, 500, text)
	r.says("PUT", "/v1/catalog/register", `{"Node":"other","ID":"`+someID+`","Address":"10.0.0.9"}`, 500, text)
	r.says("PUT", "/v1/catalog/register-batch", `[`+zombie+`]`, 200, text)
	r.says("PUT", "/v1/txn", `[{"Node":{"Verb":"set","Node":{"Node":"zombie","Address":"10.0.0.9"}}}]`, 409, text)
	r.says("DELETE", "/v1/catalog/node/zombie?force&hold=2h", "", 200, `"Removed":false`) // again: the ID stays barred
	r.says("PUT", "/v1/catalog/register", `{"Node":"other","ID":"`+someID+`","Address":"10.0.0.9"}`, 500, text)
	r.says("GET", "/v1/catalog/node-bars", "", 200, `[{"Node":"Zombie","ID":"`+someID+`","Time":"`)
	r.says("DELETE", "/v1/catalog/node/zombie/bar", "", 200, "true")
	r.says("GET", "/v1/catalog/node-bars", "", 200, `[]`)
	r.says("DELETE", "/v1/catalog/node/zombie/bar", "", 404, "node zombie is not barred")
	r.says("PUT", "/v1/catalog/register", zombie, 200, "true")
	// The leader does not remove itself.
	r.says("DELETE", "/v1/catalog/node/N1?force", "", 400, "leads the cluster")
}

func TestForceLeaveByForceBarsTheNode(t *testing.T) {
	r := newRig(t, nil)
	r.says("PUT", "/v1/catalog/register", zombie, 200, "true")
	r.says("PUT", "/v1/agent/force-leave/zombie?force", "", 400, "force goes with prune")
	r.says("PUT", "/v1/agent/force-leave/zombie?prune", "", 500, "No node found")
	r.says("PUT", "/v1/agent/force-leave/zombie?prune&force&hold=5m", "", 200, `"Removed":true`)
	r.says("PUT", "/v1/catalog/register", zombie, 500, "removed by force")
}

// passed keeps what a follower passes on.
type passed struct {
	rows.Forwarder
	lines []string
}

func (p *passed) Forward(w http.ResponseWriter, r *http.Request, toLeader bool) error {
	if !toLeader {
		return errkind.New(errkind.Internal, "not to the leader")
	}
	p.lines = append(p.lines, r.Method+" "+r.URL.String()+" "+r.Header.Get("X-Consul-Token"))
	return nil
}

func TestForceLeaveOnAFollowerAsksTheLeader(t *testing.T) {
	p := &passed{}
	r := newRig(t, func(c *Config) { c.Forward = p })
	r.store.contact.Leader = false
	r.says("PUT", "/v1/agent/force-leave/zombie%20x?prune&force&hold=5m&token=s", "", 200, "")
	if got, want := strings.Join(p.lines, "\n"), "DELETE /v1/catalog/node/zombie%20x?force&hold=5m s"; got != want {
		t.Errorf("passed on: %q, want %q", got, want)
	}
}

func TestRenewingALease(t *testing.T) {
	r := newRig(t, nil)
	put(t, r.store, &catalog.Register{Node: catalog.Node{Name: "plain", Address: "10.0.0.1"}})
	r.says("PUT", "/v1/catalog/register?lease=30s", zombie, 200, "true")
	index := r.store.State().Index()
	r.says("PUT", "/v1/catalog/node/zombie/renew", "", 200, `"Node":"Zombie"`)
	r.says("PUT", "/v1/catalog/node/plain/renew", "", 400, "no lease")
	r.says("PUT", "/v1/catalog/node/nobody/renew", "", 404, "")
	r.says("PUT", "/v1/catalog/node/zombie", "", 400, "unknown path")
	if r.store.State().Index() != index {
		t.Error("a renewal changed the catalog")
	}
}
