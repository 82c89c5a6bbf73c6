package jobsplane

import (
	"cmp"
	"net/http"
	"net/url"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/planes/jobs/nomadacl"
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
	nomadrows.ListJobs:       {Resource: acl.JobsList, Level: acl.Write},
	nomadrows.ReadJob:        {Resource: acl.JobsRead, Level: acl.Write},
	nomadrows.ReadLogs:       {Resource: acl.JobsLogs, Level: acl.Write},
	nomadrows.ReadFS:         {Resource: acl.JobsFiles, Level: acl.Write},
	nomadrows.ReadScaling:    {Resource: acl.JobsScaling, Level: acl.Write},
	nomadrows.SubmitJob:      {Resource: acl.JobsSubmit, Level: acl.Write},
	nomadrows.DispatchJob:    {Resource: acl.JobsDispatch, Level: acl.Write},
	nomadrows.ScaleJob:       {Resource: acl.JobsScale, Level: acl.Write},
	nomadrows.AllocExec:      {Resource: acl.JobsExec, Level: acl.Write},
	nomadrows.AllocNodeExec:  {Resource: acl.JobsExecRaw, Level: acl.Write},
	nomadrows.AllocLifecycle: {Resource: acl.JobsLifecycle, Level: acl.Write},
	nomadrows.NodeRead:       {Resource: acl.JobsNode, Level: acl.Read},
	nomadrows.NodeWrite:      {Resource: acl.JobsNode, Level: acl.Write},
	nomadrows.AgentRead:      {Resource: acl.JobsAgent, Level: acl.Read},
	nomadrows.OperatorRead:   {Resource: acl.JobsOperator, Level: acl.Read},
	nomadrows.OperatorWrite:  {Resource: acl.JobsOperator, Level: acl.Write},
	nomadrows.ListVariable:   {Resource: acl.VariableList, Level: acl.Write},
	nomadrows.ReadVariable:   {Resource: acl.VariableRead, Level: acl.Write},
	nomadrows.WriteVariable:  {Resource: acl.VariableWrite, Level: acl.Write},
	nomadrows.DeleteVariable: {Resource: acl.VariableDestroy, Level: acl.Write},
}

// byName tells whether a right is one in a namespace, or to a variable of it.
func byName(r acl.Resource) bool { return r >= acl.JobsList && r <= acl.VariableDestroy }

// Allows implements nomadrows.Rights.
func (r rights) Allows(token, namespace string, what nomadrows.Capability) (bool, error) {
	right, ok := needs[what]
	if !ok {
		right = plane.Right{Resource: acl.ACL, Level: acl.Write}
	}
	if (what == nomadrows.ReadVariable || what == nomadrows.ListVariable) && r.reads != nil && r.reads(token, namespace) {
		return true, nil
	}
	if byName(right.Resource) {
		right.Name = namespace
	}
	asked := &http.Request{Header: http.Header{"X-Consul-Token": {cmp.Or(token, acl.AnonymousSecret)}}, URL: &url.URL{}}
	return r.allows(asked, right), nil
}

// accessOf is the catalog's access control for the Nomad API, nil where there is none.
func accessOf(d *plane.Doors) nomadrows.AccessControl {
	if !d.Cfg.ACL.Enabled {
		return nil
	}
	return &nomadacl.Catalog{API: d.OwnAPI(), Nobody: acl.AnonymousSecret}
}

// rightsOf are nil, so that everything is allowed, where the catalog has no access control.
func rightsOf(d *plane.Doors, i identities) nomadrows.Rights {
	if !d.Cfg.ACL.Enabled {
		return nil
	}
	return rights{d.Allows, i.reads}
}
