package jobsplane

import (
	"net/http"
	"net/url"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/node/plane"
)

// rights judge the tokens of the Nomad API by the catalog's rules: jobs are named by their namespace, variables by
// namespace/path, nodes and operators have the resources that they have elsewhere.
type rights struct {
	allows func(r *http.Request, right plane.Right) bool
	// reads tells whether a token is a workload identity that may read a variable; nil knows none.
	reads func(token, name string) bool
}

// needs is what each capability demands. One that is missing here demands acl:write.
var needs = map[nomadrows.Capability]plane.Right{
	nomadrows.ListJobs:       {Resource: acl.Jobs, Level: acl.Read},
	nomadrows.ReadJob:        {Resource: acl.Jobs, Level: acl.Read},
	nomadrows.ReadLogs:       {Resource: acl.Jobs, Level: acl.Read},
	nomadrows.ReadFS:         {Resource: acl.Jobs, Level: acl.Read},
	nomadrows.SubmitJob:      {Resource: acl.Jobs, Level: acl.Write},
	nomadrows.DispatchJob:    {Resource: acl.Jobs, Level: acl.Write},
	nomadrows.ScaleJob:       {Resource: acl.Jobs, Level: acl.Write},
	nomadrows.AllocExec:      {Resource: acl.Jobs, Level: acl.Write},
	nomadrows.AllocLifecycle: {Resource: acl.Jobs, Level: acl.Write},
	nomadrows.NodeRead:       {Resource: acl.Node, Level: acl.Read},
	nomadrows.NodeWrite:      {Resource: acl.Node, Level: acl.Write},
	nomadrows.AgentRead:      {Resource: acl.Agent, Level: acl.Read},
	nomadrows.OperatorRead:   {Resource: acl.Operator, Level: acl.Read},
	nomadrows.OperatorWrite:  {Resource: acl.Operator, Level: acl.Write},
	nomadrows.ReadVariable:   {Resource: acl.Variable, Level: acl.Read},
	nomadrows.WriteVariable:  {Resource: acl.Variable, Level: acl.Write},
}

// Allows implements nomadrows.Rights.
func (r rights) Allows(token, namespace string, what nomadrows.Capability) (bool, error) {
	right, ok := needs[what]
	if !ok {
		right = plane.Right{Resource: acl.ACL, Level: acl.Write}
	}
	if what == nomadrows.ReadVariable && r.reads != nil && r.reads(token, namespace) {
		return true, nil
	}
	if right.Resource == acl.Jobs || right.Resource == acl.Variable {
		right.Name = namespace
	}
	asked := &http.Request{Header: http.Header{}, URL: &url.URL{}}
	if token != "" {
		asked.Header.Set("X-Consul-Token", token)
	}
	return r.allows(asked, right), nil
}

// rightsOf are nil, so that everything is allowed, where the catalog has no access control.
func rightsOf(d *plane.Doors, i identities) nomadrows.Rights {
	if !d.Cfg.ACL.Enabled {
		return nil
	}
	return rights{d.Allows, i.reads}
}
