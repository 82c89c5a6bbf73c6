package consulapi

import (
	"net/http"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/catalog/registry"
)

type wireRegister struct {
	Datacenter      string
	ID              string
	Node            string
	Address         string
	TaggedAddresses map[string]string
	NodeMeta        map[string]string
	Service         *wireService
	Check           *wireCheck
	Checks          []*wireCheck
	SkipNodeUpdate  bool
	Locality        *catalog.Locality
}

func catalogRegister(q *request) error {
	var in wireRegister
	if err := q.decode(&in); err != nil {
		return err
	}
	if err := q.bodyDatacenter(in.Datacenter); err != nil {
		return err
	}
	if err := q.lease(&in); err != nil {
		return err
	}
	cmd, err := in.command(q.api.cfg.Identity.Datacenter)
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
func (q *request) lease(in *wireRegister) error {
	text, _ := q.q.Get("lease")
	if text == "" {
		text = in.NodeMeta[registry.LeaseMeta]
	}
	if text == "" {
		return nil
	}
	if d, err := time.ParseDuration(text); err != nil || d < registry.MinLease || d > maxLease {
		return invalidf("Invalid lease %q: give a duration of at least %s and at most %s, as 30s", text, registry.MinLease, maxLease)
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
		return refused(res.Err)
	}
	return q.replyBool(true)
}

func (in *wireRegister) command(datacenter string) (*catalog.Register, error) {
	if in.Node == "" {
		return nil, failWith(http.StatusInternalServerError, "Must provide node")
	}
	if in.Address == "" && !in.SkipNodeUpdate {
		return nil, failWith(http.StatusInternalServerError, "Must provide address if SkipNodeUpdate is not set")
	}
	node := wireNode{ID: in.ID, Node: in.Node, Address: in.Address, Datacenter: datacenter,
		TaggedAddresses: in.TaggedAddresses, Meta: in.NodeMeta, Locality: in.Locality}
	cmd := &catalog.Register{Node: *node.node(), SkipNodeUpdate: in.SkipNodeUpdate}
	if in.Service != nil {
		s, err := in.Service.service(in.Node)
		if err != nil {
			return nil, err
		}
		if err := local.ValidateTags(s.Tags); err != nil {
			return nil, err
		}
		if s.Name == "" {
			return nil, failWith(http.StatusInternalServerError, "Must provide service name (Service.Service)")
		}
		if s.ID == "" {
			s.ID = s.Name
		}
		if in.Service.Weights == nil {
			s.Weights = catalog.Weights{Passing: 1, Warning: 1}
		}
		cmd.Service = s
	}
	if in.Check != nil {
		in.Checks = append(in.Checks, in.Check)
	}
	for _, w := range in.Checks {
		if w == nil {
			continue
		}
		c, err := w.check(in.Node)
		if err != nil {
			return nil, err
		}
		cmd.Checks = append(cmd.Checks, c)
	}
	return cmd, nil
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
		return failWith(http.StatusInternalServerError, "Must provide node")
	}
	cmd := &catalog.Deregister{Node: in.Node, ServiceID: in.ServiceID, CheckID: in.CheckID}
	if !q.api.open {
		if err := grants.MayDeregister(q.grant, q.api.cfg.Registry.State(), cmd); err != nil {
			return err
		}
	}
	return q.applyTrue(cmd)
}
