package catalogrows

import (
	"net/http"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/registry"
)

func catalogRegister(q *rows.Request) error {
	var in bodies.Register
	if err := q.Decode(&in); err != nil {
		return err
	}
	if err := q.BodyDatacenter(in.Datacenter); err != nil {
		return err
	}
	if err := lease(q, &in); err != nil {
		return err
	}
	cmd, err := in.Command(q.Identity.Datacenter)
	if err != nil {
		return err
	}
	if !q.Open {
		if err := grants.MayRegister(q.Grant, q.Registry.State(), cmd); err != nil {
			return err
		}
	}
	return applyTrue(q, cmd)
}

// maxLease is the longest lease of a node that may be asked for: ten years.
const maxLease = 87_600 * time.Hour

// lease reads ?lease=30s, which is the node's metadata of that name.
func lease(q *rows.Request, in *bodies.Register) error {
	text, _ := q.Query.Get("lease")
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

func catalogDeregister(q *rows.Request) error {
	var in struct{ Datacenter, Node, Address, ServiceID, CheckID string }
	if err := q.Decode(&in); err != nil {
		return err
	}
	if err := q.BodyDatacenter(in.Datacenter); err != nil {
		return err
	}
	if in.Node == "" {
		return answer.Fail(http.StatusInternalServerError, "Must provide node")
	}
	cmd := &catalog.Deregister{Node: in.Node, ServiceID: in.ServiceID, CheckID: in.CheckID}
	if !q.Open {
		if err := grants.MayDeregister(q.Grant, q.Registry.State(), cmd); err != nil {
			return err
		}
	}
	return applyTrue(q, cmd)
}

// applyTrue proposes a command that has no outcome but done.
func applyTrue(q *rows.Request, cmd catalog.Command) error {
	_, err := q.Apply(q.R.Context(), cmd)
	return q.Done(err)
}
