package agentrows

import (
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/hostinfo"
)

// agentHost answers with what the operating system says about this host. What it does not
// say is named in Errors and left out.
func agentHost(q *rows.Request) error {
	if err := q.Allow(acl.Operator, "", acl.Read); err != nil {
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
	host, err := hostinfo.Host(q.Clock.Now())
	note(err)
	return q.ReplyValue(map[string]any{
		"Memory": memory, "CPU": cpus, "Disk": disk, "Host": host,
		"CollectionTime": q.Clock.Now().UnixNano(), "Errors": failures,
	})
}
