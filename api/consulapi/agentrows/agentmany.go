package agentrows

import (
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/local"
)

// agentServicesRegister registers a list of what agentServiceRegister takes.
func agentServicesRegister(q *rows.Request, l Local) error {
	raw, err := q.WireList()
	if err != nil {
		return err
	}
	list := make([]*local.ServiceDefinition, len(raw))
	for i := range raw {
		if list[i], err = local.DecodeService(raw[i]); err != nil {
			return rows.At(i, err)
		}
	}
	o := registerOptions(q)
	q.ReleaseBuffer() // the call waits for a sync
	if err := l.RegisterServices(q.R.Context(), list, o); err != nil {
		return err
	}
	return q.ReplyEmpty()
}
