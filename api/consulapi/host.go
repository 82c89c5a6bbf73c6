package consulapi

import (
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/hostinfo"
)

// agentHost answers with what the operating system says about this host. What it does not
// say is named in Errors and left out.
func agentHost(q *request) error {
	if err := q.allow(acl.Operator, "", acl.Read); err != nil {
		return err
	}
	var failures []string
	note := func(err error) {
		if err != nil {
			failures = append(failures, err.Error())
		}
	}
	memory, err := hostinfo.Memory()
	note(err)
	disk, err := hostinfo.Disk("/")
	note(err)
	cpus, err := hostinfo.CPUs()
	note(err)
	host, err := hostinfo.Host(q.api.cfg.Clock.Now())
	note(err)
	return q.replyValue(map[string]any{
		"Memory": memory, "CPU": cpus, "Disk": disk, "Host": host,
		"CollectionTime": q.api.cfg.Clock.Now().UnixNano(), "Errors": failures,
	})
}
