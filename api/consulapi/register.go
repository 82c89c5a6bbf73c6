package consulapi

import (
	"net/http"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/registry"
)

func catalogRegister(q *request) error {
	var in bodies.Register
	if err := q.decode(&in); err != nil {
		return err
	}
	if err := q.bodyDatacenter(in.Datacenter); err != nil {
		return err
	}
	if err := q.lease(&in); err != nil {
		return err
	}
	cmd, err := in.Command(q.api.cfg.Identity.Datacenter)
	if err != nil {
		return err
	}
	if !q.api.open {
		if err := grants.MayRegister(q.grant, q.api.cfg.Registry.State(), cmd); err != nil {
			return err
		}
	}
	return q.applyTrue(cmd)
}

// maxLease is the longest lease of a node that may be asked for: ten years.
const maxLease = 87_600 * time.Hour

// lease reads ?lease=30s, which is the node's metadata of that name.
func (q *request) lease(in *bodies.Register) error {
	text, _ := q.q.Get("lease")
	if text == "" {
		text = in.NodeMeta[registry.LeaseMeta]
	}
	if text == "" {
		return nil
	}
	if d, err := time.ParseDuration(text); err != nil || d < registry.MinLease || d > maxLease {
		return answer.Invalidf("Invalid lease %q: give a duration of at least %s and at most %s, as 30s", text, registry.MinLease, maxLease)
	}
	if in.NodeMeta == nil {
		in.NodeMeta = map[string]string{}
	}
	in.NodeMeta[registry.LeaseMeta] = text
	return nil
}

// applyTrue proposes a command that has no outcome but done.
func (q *request) applyTrue(cmd catalog.Command) error {
	q.api.requests.Add(1)
	res, err := q.api.cfg.Registry.Apply(q.r.Context(), cmd)
	if err != nil {
		return err
	}
	if res.Err != nil {
		return answer.Refused(res.Err)
	}
	return q.replyBool(true)
}

func catalogDeregister(q *request) error {
	var in struct{ Datacenter, Node, Address, ServiceID, CheckID string }
	if err := q.decode(&in); err != nil {
		return err
	}
	if err := q.bodyDatacenter(in.Datacenter); err != nil {
		return err
	}
	if in.Node == "" {
		return answer.Fail(http.StatusInternalServerError, "Must provide node")
	}
	cmd := &catalog.Deregister{Node: in.Node, ServiceID: in.ServiceID, CheckID: in.CheckID}
	if !q.api.open {
		if err := grants.MayDeregister(q.grant, q.api.cfg.Registry.State(), cmd); err != nil {
			return err
		}
	}
	return q.applyTrue(cmd)
}
